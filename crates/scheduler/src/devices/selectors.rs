//! Compiled selectors: few are written, and each is asked about every device.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_cel::device::{Selector, SelectorError};
use parking_lot::Mutex;

/// More of them than this are compiled again: a text can be 10 KB long.
const MOST: usize = 128;

pub(super) type Compiled = Result<Selector, SelectorError>;

#[derive(Debug, Default)]
pub struct Selectors {
    compiled: Mutex<HashMap<String, Arc<Compiled>>>,
}

impl Selectors {
    pub(super) fn get(&self, text: &str) -> Arc<Compiled> {
        if let Some(known) = self.compiled.lock().get(text) {
            return known.clone();
        }
        let selector = Arc::new(Selector::compile(text));
        let mut compiled = self.compiled.lock();
        if compiled.len() >= MOST {
            compiled.clear();
        }
        compiled.insert(text.to_owned(), selector.clone());
        selector
    }
}

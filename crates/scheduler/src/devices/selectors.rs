//! Compiled selectors: few are written, and each is asked about every device.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_cel::device::Selector;
use parking_lot::Mutex;

/// More of them than this are compiled again: a text can be 10 KB long.
const MOST: usize = 128;

#[derive(Debug, Default)]
pub struct Selectors {
    compiled: Mutex<HashMap<String, Arc<Result<Selector, String>>>>,
}

impl Selectors {
    pub(super) fn get(&self, text: &str) -> Arc<Result<Selector, String>> {
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

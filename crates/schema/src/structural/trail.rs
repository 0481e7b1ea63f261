//! The way to a place in an object, kept in one text while it is gone: keys can be long, and most ways are never told.

use std::fmt::Write;

use ferry_meta::bounds;

/// What is shown of a way.
const SHOWN: usize = 4096;

/// `spec.list[2].name`.
#[derive(Default)]
pub(super) struct Trail(String);

impl Trail {
    pub(super) fn within_field<T>(&mut self, key: &str, walk: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        if length > 0 {
            self.0.push('.');
        }
        self.0.push_str(key);
        let result = walk(self);
        self.0.truncate(length);
        result
    }

    pub(super) fn within_item<T>(&mut self, index: usize, walk: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        let _ = write!(self.0, "[{index}]");
        let result = walk(self);
        self.0.truncate(length);
        result
    }

    pub(super) fn shown(&self) -> String {
        bounds::cut(&self.0, SHOWN).into_owned()
    }
}

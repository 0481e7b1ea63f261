//! What is wrong with an object: as much of it as somebody reads, and the number of the rest.

use std::fmt::{self, Write};
use std::ops::{Deref, DerefMut};

use serde_json::Value;

use crate::bounds;
use crate::field::FieldError;

/// More errors are counted, not kept.
const MOST_ERRORS: usize = 1000;
/// Nor are those beyond this many bytes of text.
const MOST_BYTES: usize = 128 << 10;
/// What one error may take of it; values and details that are longer are cut.
const LONGEST: usize = 64 << 10;

/// Errors in the order they were found. An object can have as many as it has fields: what is kept of them is bounded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldErrors {
    kept: Vec<FieldError>,
    bytes: usize,
    more: usize,
}

impl FieldErrors {
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are beyond those that are kept.
    pub fn more(&self) -> usize {
        self.more
    }

    /// Whether nothing more is kept: who would go to great lengths to word an error need not.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= MOST_ERRORS || self.bytes >= MOST_BYTES
    }

    pub fn push(&mut self, mut error: FieldError) {
        if self.is_full() {
            self.more += 1;
            return;
        }
        let length = length(&error).unwrap_or_else(|| {
            shorten(&mut error);
            LONGEST / 2
        });
        self.bytes += length;
        self.kept.push(error);
    }

    /// Tells of an error without making one.
    pub fn count_one_more(&mut self) {
        self.more += 1;
    }

    pub fn extend(&mut self, found: impl Found) {
        found.add_to(self);
    }

    pub fn retain(&mut self, keep: impl FnMut(&FieldError) -> bool) {
        self.kept.retain(keep);
    }

    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Takes off those from a place on.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        Self { kept: self.kept.split_off(at), bytes: self.bytes, more: std::mem::take(&mut self.more) }
    }
}

/// What can be added to errors.
pub trait Found {
    fn add_to(self, errors: &mut FieldErrors);
}

impl Found for FieldErrors {
    fn add_to(self, errors: &mut FieldErrors) {
        errors.more += self.more;
        self.kept.into_iter().for_each(|error| errors.push(error));
    }
}

impl<I: Iterator<Item = FieldError>> Found for I {
    fn add_to(self, errors: &mut FieldErrors) {
        self.for_each(|error| errors.push(error));
    }
}

impl From<FieldError> for FieldErrors {
    fn from(error: FieldError) -> Self {
        std::iter::once(error).collect()
    }
}

impl FromIterator<FieldError> for FieldErrors {
    fn from_iter<I: IntoIterator<Item = FieldError>>(found: I) -> Self {
        let mut errors = Self::new();
        errors.extend(found.into_iter());
        errors
    }
}

impl Deref for FieldErrors {
    type Target = [FieldError];

    fn deref(&self) -> &[FieldError] {
        &self.kept
    }
}

impl DerefMut for FieldErrors {
    fn deref_mut(&mut self) -> &mut [FieldError] {
        &mut self.kept
    }
}

impl IntoIterator for FieldErrors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.into_iter()
    }
}

impl<'a> IntoIterator for &'a FieldErrors {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.iter()
    }
}

/// Replaces a value and a detail that are too long by their beginnings.
fn shorten(error: &mut FieldError) {
    let mut shown = Beginning { text: String::new() };
    let _ = match &error.shown {
        Some(text) => shown.write_str(text),
        None => shown.write_str(&go_beginning(&error.value)),
    };
    error.shown = Some(shown.text);
    error.value = Value::Null;
    error.detail = bounds::cut(&error.detail, LONGEST / 2).into_owned();
}

fn go_beginning(value: &Value) -> String {
    let mut shown = Beginning { text: String::new() };
    let _ = match value {
        Value::String(text) => shown.write_str(&crate::field::quote(&bounds::cut(text, LONGEST / 4))),
        other => write!(shown, "{other}"),
    };
    shown.text
}

/// How long the text of an error is; None if it is too long.
fn length(error: &FieldError) -> Option<usize> {
    let mut length = Measure { left: LONGEST };
    write!(length, "{error}").ok().map(|()| LONGEST - length.left)
}

/// Counts the bytes that are written, up to a limit.
struct Measure {
    left: usize,
}

impl Write for Measure {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = self.left.checked_sub(text.len());
        self.left = left.unwrap_or_default();
        left.map(|_| ()).ok_or(fmt::Error)
    }
}

/// The beginning of a text; writing ends with it.
struct Beginning {
    text: String,
}

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = (LONGEST / 4).saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        self.text.push_str(&text[..end]);
        self.text.push_str("...");
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::field::Path;

    fn error(value: Value) -> FieldError {
        FieldError::invalid(&Path::new("spec"), value, "is wrong")
    }

    #[test]
    fn more_errors_than_anybody_reads_are_counted() {
        let mut errors = FieldErrors::new();
        errors.extend((0..900_000).map(|number| error(json!(number))));
        assert_eq!((errors.len(), errors.more()), (MOST_ERRORS, 900_000 - MOST_ERRORS));
        let mut all = FieldErrors::from(error(json!("first")));
        all.extend(errors);
        assert_eq!((all.len(), all.more()), (MOST_ERRORS, 900_001 - MOST_ERRORS));
    }

    #[test]
    fn long_errors_are_cut_and_their_text_is_bounded() {
        let mut errors = FieldErrors::new();
        for value in [json!("x".repeat(1 << 20)), json!(["é".repeat(1 << 20)]), json!("short")] {
            errors.push(error(value));
        }
        let lines: Vec<String> = errors.iter().map(FieldError::line).collect();
        assert!(lines.iter().all(|line| line.len() < LONGEST / 2 && line.ends_with("is wrong")), "{lines:?}");
        assert_eq!(lines[2], "spec: Invalid value: \"short\": is wrong");
        let long = "x".repeat(LONGEST - 100);
        errors.extend((0..100).map(|_| error(json!(long))));
        assert!(errors.iter().map(|error| error.line().len()).sum::<usize>() < MOST_BYTES + 2 * LONGEST);
        assert_eq!(errors.len() + errors.more(), 103);
    }
}

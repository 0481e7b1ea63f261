//! Field paths and the errors of validation, with upstream's texts.

use std::fmt::{self, Write};

use serde_json::Value;

/// What most paths fit into, with the byte of their length.
const INLINE: usize = 63;
/// Paths are cut there: keys that clients choose are part of them, and a copy is made for every field below.
const LONGEST_PATH: usize = 4096;

/// A path to a field: `spec.containers[0].env[FOO]`. Paths are made for every field that is checked, wrong or not, so short
/// ones take no memory of the heap; children share nothing with their parent.
#[derive(Clone)]
pub struct Path(Text);

#[derive(Clone)]
enum Text {
    Inline { length: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl Path {
    pub fn root() -> Self {
        Self(Text::Inline { length: 0, bytes: [0; INLINE] })
    }

    pub fn new(text: impl AsRef<str>) -> Self {
        Self::joined(&[text.as_ref().as_bytes()])
    }

    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let parent = self.bytes();
        if parent.is_empty() { Self::new(name) } else { Self::joined(&[parent, b".", name.as_bytes()]) }
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut rest = index;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Self::joined(&[self.bytes(), b"[", &digits[start..], b"]"])
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self::joined(&[self.bytes(), b"[", key.as_bytes(), b"]"])
    }

    pub fn as_str(&self) -> &str {
        // It is made of whole texts.
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }

    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Text::Heap(bytes) => bytes,
        }
    }

    fn joined(parts: &[&[u8]]) -> Self {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        if length > LONGEST_PATH {
            return Self::cut(parts);
        }
        if length > INLINE {
            return Self(Text::Heap(parts.concat().into()));
        }
        let mut bytes = [0; INLINE];
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Self(Text::Inline { length: length as u8, bytes })
    }

    /// As much of the parts as a path may have, in whole characters.
    fn cut(parts: &[&[u8]]) -> Self {
        let mut bytes = Vec::with_capacity(LONGEST_PATH);
        for part in parts {
            let room = LONGEST_PATH - bytes.len();
            bytes.extend_from_slice(part.get(..room).unwrap_or(part));
        }
        if let Err(error) = std::str::from_utf8(&bytes) {
            bytes.truncate(error.valid_up_to());
        }
        Self(Text::Heap(bytes.into()))
    }
}

impl Default for Path {
    fn default() -> Self {
        Self::root()
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Path {}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Path").field(&self.as_str()).finish()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Upstream prints a nil path as `<nil>`.
        f.write_str(if self.bytes().is_empty() { "<nil>" } else { self.as_str() })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorType {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
}

impl ErrorType {
    /// The `reason` of a Status cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TypeInvalid => "Invalid value",
            Self::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooMany | Self::Internal)
    }
}

/// One rejected field. `Display` is the message of its cause: without the path.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: ErrorType,
    pub path: Path,
    pub value: Value,
    pub detail: String,
    /// How the value prints, where its JSON would not do: upstream prints the fields of a type in its own order. Empty shows none.
    pub shown: Option<String>,
}

impl FieldError {
    fn new(kind: ErrorType, path: &Path, value: Value, detail: impl Into<String>) -> Self {
        Self { kind, path: path.clone(), value, detail: detail.into(), shown: None }
    }

    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Required, path, Value::Null, detail)
    }

    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Invalid, path, value.into(), detail)
    }

    pub fn type_invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::TypeInvalid, path, value.into(), detail)
    }

    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Forbidden, path, Value::Null, detail)
    }

    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(ErrorType::Duplicate, path, value.into(), "")
    }

    pub fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(ErrorType::NotFound, path, value.into(), "")
    }

    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Internal, path, Value::Null, detail)
    }

    /// `supported` is printed in the order given; callers sort where upstream sorts.
    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let mut detail = String::new();
        for (i, text) in supported.iter().enumerate() {
            let lead = if i == 0 { "supported values: " } else { ", " };
            let _ = write!(detail, "{lead}{}", quote(text));
        }
        Self::new(ErrorType::NotSupported, path, value.into(), detail)
    }

    pub fn too_long(path: &Path, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(ErrorType::TooLong, path, Value::Null, format!("may not be more than {max} {unit}"))
    }

    pub fn too_many(path: &Path, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(ErrorType::TooMany, path, Value::Null, format!("{actual}: must have at most {max} {unit}"))
    }

    #[must_use]
    pub fn shown_as(mut self, text: impl Into<String>) -> Self {
        self.shown = Some(text.into());
        self
    }

    /// The line of a Status message: the path, then the cause.
    pub fn line(&self) -> String {
        format!("{}: {self}", self.path)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.words())?;
        if self.kind.shows_value() {
            match &self.shown {
                Some(text) if text.is_empty() => {}
                Some(text) => write!(f, ": {text}")?,
                None => write!(f, ": {}", go_value(&self.value))?,
            }
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

/// Values are shown as Go shows them: strings quoted, `nil` as null, everything else as compact JSON.
fn go_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

/// Quotes as Go's `%q` and `strconv.Quote` do for what occurs in names and values.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_do_not_grow_without_end() {
        let long = Path::new("a").child(&"é".repeat(LONGEST_PATH));
        assert_eq!(long.as_str().len(), LONGEST_PATH);
        let mut path = long.clone();
        for _ in 0..10 {
            path = path.child("b").index(7).key(&"x".repeat(100));
        }
        assert_eq!(path, long);
        assert_eq!(Path::new("é".repeat(LONGEST_PATH)).as_str().len(), LONGEST_PATH);
        assert_eq!(Path::new("a").key(&"é".repeat(LONGEST_PATH)).as_str().len(), LONGEST_PATH);
    }

    #[test]
    fn paths_of_every_length_read_as_they_were_put_together() {
        assert_eq!(Path::root().to_string(), "<nil>");
        assert_eq!(Path::root().child("kind").as_str(), "kind");
        assert_eq!(Path::new("spec").child("ports").index(0).child("name").as_str(), "spec.ports[0].name");
        assert_eq!(Path::new("a").index(10_203).key("ä").as_str(), "a[10203][ä]");
        let mut path = Path::root();
        let mut text = String::new();
        for number in 0..200 {
            path = path.index(number);
            text += &format!("[{number}]");
            assert_eq!(path.as_str(), text);
            assert_eq!(path, Path::new(&text));
        }
    }

    #[test]
    fn errors_print_as_upstream() {
        let path = Path::new("spec").child("replicas");
        assert_eq!(
            FieldError::invalid(&path, -1, "must be greater than or equal to 0").line(),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        assert_eq!(FieldError::required(&path, "").line(), "spec.replicas: Required value");
        assert_eq!(
            FieldError::not_supported(&path, "x", &["A", "B"]).to_string(),
            "Unsupported value: \"x\": supported values: \"A\", \"B\""
        );
        assert_eq!(FieldError::duplicate(&path, "a").to_string(), "Duplicate value: \"a\"");
        assert_eq!(FieldError::too_long(&path, 63).to_string(), "Too long: may not be more than 63 bytes");
    }
}

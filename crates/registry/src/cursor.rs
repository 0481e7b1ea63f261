//! A cursor over an object: a value and the path to it, so that rules read as sentences and errors name their field.

use ferry_meta::{FieldError, FieldErrors, Path, Quantity};
use serde_json::{Map, Value};

/// A place in an object. Absent fields are null, so that rules need not ask whether a parent exists.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    pub value: &'a Value,
    pub path: Path,
}

static NULL: Value = Value::Null;
static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

impl<'a> Cursor<'a> {
    pub fn root(value: &'a Value) -> Self {
        Self { value, path: Path::root() }
    }

    pub fn new(value: &'a Value, path: Path) -> Self {
        Self { value, path }
    }

    pub fn get(&self, key: &str) -> Cursor<'a> {
        Cursor { value: self.raw(key), path: self.path.child(key) }
    }

    /// As `get`, where upstream calls the field by another name in its errors.
    pub fn get_as(&self, key: &str, shown: &str) -> Cursor<'a> {
        Cursor { value: self.raw(key), path: self.path.child(shown) }
    }

    pub fn raw(&self, key: &str) -> &'a Value {
        self.value.get(key).unwrap_or(&NULL)
    }

    /// The path of a child.
    pub fn at(&self, key: &str) -> Path {
        self.path.child(key)
    }

    pub fn has(&self, key: &str) -> bool {
        !self.raw(key).is_null()
    }

    pub fn exists(&self) -> bool {
        !self.value.is_null()
    }

    pub fn text(&self, key: &str) -> &'a str {
        self.raw(key).as_str().unwrap_or_default()
    }

    /// This value as text.
    pub fn as_text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    pub fn int(&self, key: &str) -> Option<i64> {
        self.raw(key).as_i64()
    }

    /// An integer whose absence is zero.
    pub fn number(&self, key: &str) -> i64 {
        self.int(key).unwrap_or_default()
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        self.raw(key).as_bool()
    }

    pub fn is_true(&self, key: &str) -> bool {
        self.flag(key) == Some(true)
    }

    pub fn map(&self, key: &str) -> &'a Map<String, Value> {
        self.raw(key).as_object().unwrap_or_else(|| &EMPTY)
    }

    pub fn array(&self, key: &str) -> &'a [Value] {
        self.raw(key).as_array().map_or(&[], Vec::as_slice)
    }

    /// The items of a list with their paths.
    pub fn items(&self, key: &str) -> Vec<Cursor<'a>> {
        let list = self.at(key);
        self.array(key).iter().enumerate().map(|(index, value)| Cursor { value, path: list.index(index) }).collect()
    }

    pub fn texts(&self, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.array(key).iter().filter_map(Value::as_str)
    }

    /// The entries of a map with their paths.
    pub fn entries(&self, key: &str) -> Vec<(&'a str, Cursor<'a>)> {
        let map = self.at(key);
        self.map(key).iter().map(|(name, value)| (name.as_str(), Cursor { value, path: map.key(name) })).collect()
    }

    pub fn quantity(&self, key: &str) -> Option<Quantity> {
        self.raw(key).as_str()?.parse().ok()
    }

    pub fn as_quantity(&self) -> Option<Quantity> {
        self.value.as_str()?.parse().ok()
    }
}

/// Shorter words for adding errors.
pub trait Report {
    fn required(&mut self, path: Path, detail: &str);
    fn invalid(&mut self, path: Path, value: impl Into<Value>, detail: impl Into<String>);
    fn forbidden(&mut self, path: Path, detail: impl Into<String>);
    fn duplicate(&mut self, path: Path, value: impl Into<Value>);
    fn not_found(&mut self, path: Path, value: impl Into<Value>);
    fn unsupported(&mut self, path: Path, value: impl Into<Value>, supported: &[&str]);
    /// One error for each reason against a value.
    fn reasons(&mut self, path: Path, value: &str, reasons: Vec<String>);
    /// Required when empty, refused for the reasons `check` finds otherwise.
    fn named(&mut self, path: Path, value: &str, check: fn(&str) -> Vec<String>);
    /// Refused unless one of `supported`; an empty value is required.
    fn one_of(&mut self, path: Path, value: &str, supported: &[&str]);
    fn non_negative(&mut self, path: Path, value: i64);
    fn positive(&mut self, path: Path, value: i64);
    /// The new value must be the old one.
    fn immutable(&mut self, path: Path, new: &Value, old: &Value);
}

pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub const IMMUTABLE: &str = "field is immutable";

impl Report for FieldErrors {
    fn required(&mut self, path: Path, detail: &str) {
        self.push(FieldError::required(&path, detail));
    }

    fn invalid(&mut self, path: Path, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(FieldError::invalid(&path, value, detail));
    }

    fn forbidden(&mut self, path: Path, detail: impl Into<String>) {
        self.push(FieldError::forbidden(&path, detail));
    }

    fn duplicate(&mut self, path: Path, value: impl Into<Value>) {
        self.push(FieldError::duplicate(&path, value));
    }

    fn not_found(&mut self, path: Path, value: impl Into<Value>) {
        self.push(FieldError::not_found(&path, value));
    }

    fn unsupported(&mut self, path: Path, value: impl Into<Value>, supported: &[&str]) {
        self.push(FieldError::not_supported(&path, value, supported));
    }

    fn reasons(&mut self, path: Path, value: &str, reasons: Vec<String>) {
        self.extend(reasons.into_iter().map(|reason| FieldError::invalid(&path, value, reason)));
    }

    fn named(&mut self, path: Path, value: &str, check: fn(&str) -> Vec<String>) {
        if value.is_empty() { self.required(path, "") } else { self.reasons(path, value, check(value)) }
    }

    fn one_of(&mut self, path: Path, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else if !supported.contains(&value) {
            self.unsupported(path, value, supported);
        }
    }

    fn non_negative(&mut self, path: Path, value: i64) {
        if value < 0 {
            self.invalid(path, value, NOT_NEGATIVE);
        }
    }

    fn positive(&mut self, path: Path, value: i64) {
        if value <= 0 {
            self.invalid(path, value, "must be greater than zero");
        }
    }

    fn immutable(&mut self, path: Path, new: &Value, old: &Value) {
        if new != old {
            self.invalid(path, new.clone(), IMMUTABLE);
        }
    }
}

/// Sets a field where it is absent, null or (for texts) empty.
pub fn default_to(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let unset = match map.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    if unset {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a field where it is absent or null: for texts whose empty value is one, and refused.
pub fn default_absent(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a number where it is absent or zero, for fields whose zero means unset.
pub fn default_number(map: &mut Map<String, Value>, key: &str, value: i64) {
    if map.get(key).and_then(Value::as_i64).unwrap_or_default() == 0 {
        map.insert(key.to_owned(), value.into());
    }
}

/// The map under a key, if it is there.
pub fn map_mut<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(key)?.as_object_mut()
}

/// The maps of a list under a key.
pub fn maps_mut<'a>(map: &'a mut Map<String, Value>, key: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The map at a pointer, made with its parents where it is absent.
pub fn object_at<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let Some((last, parents)) = path.split_last() else {
        return ferry_meta::object::child_mut(object, "");
    };
    let mut value = object;
    for key in parents {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        value = &mut value[*key];
    }
    ferry_meta::object::child_mut(value, last)
}

//! Sets of field paths: what a manager owns, as `FieldsV1` writes it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use ferry_meta::bounds::DEEPEST;
use serde_json::{Map, Value};

/// Nesting of a set that is read from a client: that of the object, whose root has a level in it, and a level below each leaf.
const MAX_DEPTH: usize = DEEPEST + 2;

/// A value that identifies a list item, ordered as upstream orders: numbers, text, booleans, the rest.
#[derive(Clone, Debug)]
pub struct Scalar(pub Value);

impl Scalar {
    fn rank(&self) -> u8 {
        match self.0 {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)),
            },
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (a, b) if self.rank() == other.rank() => a.to_string().cmp(&b.to_string()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::String(text) => f.write_str(&crate::text::quote(text)),
            other => write!(f, "{other}"),
        }
    }
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    Field(String),
    /// An item of a list of type map, by its keys, which are sorted by name.
    Key(Vec<(String, Scalar)>),
    /// An item of a list of type set.
    Value(Scalar),
    Index(i64),
}

impl Element {
    pub fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// Reads `f:name`, `k:{…}`, `v:…` or `i:1`.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::field(rest)),
            "v" => Some(Self::Value(Scalar(serde_json::from_str(rest).ok()?))),
            "i" => Some(Self::Index(rest.parse().ok()?)),
            "k" => {
                let Value::Object(keys) = serde_json::from_str(rest).ok()? else { return None };
                Some(Self::Key(keys.into_iter().map(|(name, value)| (name, Scalar(value))).collect()))
            }
            _ => None,
        }
    }

    fn key_text(&self) -> String {
        match self {
            Self::Field(name) => {
                let mut text = String::with_capacity(2 + name.len());
                text.push_str("f:");
                text.push_str(name);
                text
            }
            // Keys are sorted, as a map has them.
            Self::Key(keys) => {
                let mut text = String::with_capacity(48);
                text.push_str("k:{");
                for (at, (name, value)) in keys.iter().enumerate() {
                    text.push_str(if at == 0 { "" } else { "," });
                    text.push_str(&Value::from(&**name).to_string());
                    text.push(':');
                    text.push_str(&value.0.to_string());
                }
                text.push('}');
                text
            }
            Self::Value(value) => format!("v:{}", value.0),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    pub members: BTreeSet<Element>,
    pub children: BTreeMap<Element, Set>,
}

impl Set {
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// The set of these dotted paths of plain fields: `metadata.name`.
    pub fn of_paths(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.split('.').map(Element::field).collect();
            set.insert(&path);
        }
        set
    }

    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Puts a subtree under an element, if there is anything in it.
    pub(super) fn attach(&mut self, element: &Element, subtree: Self) {
        if !subtree.is_empty() {
            self.children.insert(element.clone(), subtree);
        }
    }

    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.has(rest)),
        }
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.add(other.clone());
        out
    }

    /// Adds another set to this one.
    pub fn add(&mut self, other: Self) {
        if self.members.is_empty() {
            self.members = other.members;
        } else {
            self.members.extend(other.members);
        }
        for (element, theirs) in other.children {
            match self.children.get_mut(&element) {
                Some(ours) => ours.add(theirs),
                None => {
                    self.children.insert(element, theirs);
                }
            }
        }
    }

    /// Takes another set away from this one.
    pub fn subtract(&mut self, other: &Self) {
        for member in &other.members {
            self.members.remove(member);
        }
        for (element, theirs) in &other.children {
            if let Some(ours) = self.children.get_mut(element) {
                ours.subtract(theirs);
                if ours.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out =
            Self { members: self.members.intersection(&other.members).cloned().collect(), children: BTreeMap::new() };
        for (element, ours) in &self.children {
            if let Some(theirs) = other.children.get(element) {
                out.attach(element, ours.intersection(theirs));
            }
        }
        out
    }

    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.subtract(other);
        out
    }

    /// Without the paths of `other` and everything below them.
    #[must_use]
    pub fn without_subtrees(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.remove_subtrees(other);
        out
    }

    /// Takes the paths of `other` away, and everything below them.
    pub(super) fn remove_subtrees(&mut self, other: &Self) {
        for member in &other.members {
            self.members.remove(member);
            self.children.remove(member);
        }
        for (element, theirs) in &other.children {
            if let Some(ours) = self.children.get_mut(element) {
                ours.remove_subtrees(theirs);
                if ours.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    /// The texts of all paths, those of a level before the deeper ones: `.spec.containers[name="c"].image`. False ends it.
    pub fn visit(&self, see: &mut dyn FnMut(&str) -> bool) {
        fn walk(set: &Set, path: &mut String, see: &mut dyn FnMut(&str) -> bool) -> bool {
            let length = path.len();
            for member in &set.members {
                let _ = write!(path, "{member}");
                let go_on = see(path);
                path.truncate(length);
                if !go_on {
                    return false;
                }
            }
            for (element, child) in &set.children {
                let _ = write!(path, "{element}");
                let go_on = walk(child, path, see);
                path.truncate(length);
                if !go_on {
                    return false;
                }
            }
            true
        }
        walk(self, &mut String::new(), see);
    }

    /// How many paths there are.
    pub fn count(&self) -> usize {
        self.members.len() + self.children.values().map(Self::count).sum::<usize>()
    }

    /// `FieldsV1`.
    pub fn to_fields(&self) -> Value {
        let mut map = Map::new();
        for member in &self.members {
            if !self.children.contains_key(member) {
                map.insert(member.key_text(), Value::Object(Map::new()));
            }
        }
        for (element, child) in &self.children {
            let mut fields = child.to_fields();
            if let (true, Value::Object(fields)) = (self.members.contains(element), &mut fields) {
                fields.insert(".".to_owned(), Value::Object(Map::new()));
            }
            map.insert(element.key_text(), fields);
        }
        Value::Object(map)
    }

    /// Reads `FieldsV1`; None if it is malformed.
    pub fn from_fields(fields: &Value) -> Option<Self> {
        Self::read(fields, 0).map(|(set, _)| set)
    }

    /// The set below a node, and whether the node itself is a member.
    fn read(fields: &Value, depth: usize) -> Option<(Self, bool)> {
        let Value::Object(map) = fields else { return None };
        if depth > MAX_DEPTH {
            return None;
        }
        let mut set = Self::default();
        let mut itself = map.is_empty();
        for (key, inner) in map {
            if key == "." {
                itself = true;
                continue;
            }
            let element = Element::parse(key)?;
            let (child, is_member) = Self::read(inner, depth + 1)?;
            if is_member {
                set.members.insert(element.clone());
            }
            if !child.is_empty() {
                set.children.insert(element, child);
            }
        }
        Some((set, itself))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(fields: Value) -> Set {
        Set::from_fields(&fields).expect("a set")
    }

    #[test]
    fn sets_come_back_as_they_went() {
        let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {"v:\"x\"": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}, "i:3": {}}}});
        assert_eq!(set(fields.clone()).to_fields(), fields);
        assert_eq!(Set::from_fields(&json!({"nonsense": {}})), None);
        let mut paths = Vec::new();
        let set = set(fields);
        set.visit(&mut |path| {
            paths.push(path.to_owned());
            true
        });
        assert_eq!(set.count(), paths.len());
        assert!(paths.contains(&".spec.ports[port=80,protocol=\"TCP\"].name".to_owned()), "{paths:?}");
        assert!(paths.contains(&".metadata.finalizers[=\"x\"]".to_owned()));
    }

    #[test]
    fn operations_follow_the_tree() {
        let a = set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}}));
        let b = set(json!({"f:a": {"f:b": {}}, "f:e": {}}));
        assert_eq!(a.difference(&b).to_fields(), json!({"f:a": {".": {}, "f:c": {}}, "f:d": {}}));
        assert_eq!(a.intersection(&b).to_fields(), json!({"f:a": {"f:b": {}}}));
        assert_eq!(a.union(&b).to_fields(), json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}, "f:e": {}}));
        assert_eq!(a.without_subtrees(&set(json!({"f:a": {}}))).to_fields(), json!({"f:d": {}}));
    }
}

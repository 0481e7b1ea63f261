//! Lists and maps, and what their keys are.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Key, List, Map, Text, Value};
use crate::error::Error;
use crate::schema::Shape;

impl Key<'_> {
    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Number(_) => 1,
            Self::Text(_) => 2,
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(one), Self::Bool(two)) => one.cmp(two),
            (Self::Number(one), Self::Number(two)) => one.cmp(two),
            (Self::Text(one), Self::Text(two)) => (**one).cmp(&**two),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Json { items, .. } => items.len(),
            Self::Values(items) => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, index: usize) -> Result<Option<Value<'a>>, Error> {
        match self {
            Self::Json { items, of, .. } => items.get(index).map(|item| Value::typed(item, *of)).transpose(),
            Self::Values(items) => Ok(items.get(index).cloned()),
        }
    }

    pub fn to_vec(&self) -> Result<Vec<Value<'a>>, Error> {
        match self {
            Self::Json { items, of, .. } => items.iter().map(|item| Value::typed(item, *of)).collect(),
            Self::Values(items) => Ok((**items).clone()),
        }
    }
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Json { map, .. } => map.len(),
            Self::Values(entries) | Self::Open(entries) => entries.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn get_text(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        match self {
            Self::Json { map, decl: None } => Ok(map.get(name).map(Value::json)),
            Self::Json { map, decl: Some(decl) } => match &decl.shape {
                Shape::Object(object) => {
                    let Some(field) = object.fields.get(name) else { return Ok(None) };
                    let found = map.get(&field.name).filter(|value| !value.is_null());
                    found.map(|value| Value::typed(value, Some(&field.decl))).transpose()
                }
                _ => map.get(name).map(|value| Value::typed(value, decl.items())).transpose(),
            },
            Self::Values(entries) => {
                let key = Key::Text(Text::Shared(name.into()));
                Ok(entries.get(&key).map(|(_, value)| value.clone()))
            }
            Self::Open(entries) => {
                let found = entries.get(&Key::Text(Text::Shared(name.into()))).map(|(_, value)| value.clone());
                Ok(Some(found.unwrap_or_else(|| Value::Map(Map::Values(Arc::default())))))
            }
        }
    }

    /// Whether the key is there; an open map has a value for others too.
    pub(crate) fn contains(&self, key: &Value<'a>) -> Result<bool, Error> {
        match self {
            Self::Open(entries) => Ok(Key::of(key).is_some_and(|key| entries.contains_key(&key))),
            _ => Ok(self.get(key)?.is_some()),
        }
    }

    pub(crate) fn get(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, Error> {
        match (self, key) {
            (_, Value::String(name)) => self.get_text(name),
            (Self::Values(entries), _) => {
                Ok(Key::of(key).and_then(|key| entries.get(&key)).map(|(_, value)| value.clone()))
            }
            _ => Ok(None),
        }
    }

    pub(crate) fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Json { map, decl } => match decl.map(|decl| &decl.shape) {
                Some(Shape::Object(object)) => {
                    let there = object.fields.iter().filter(|(_, field)| map.contains_key(&field.name));
                    there.map(|(name, _)| Value::from(name.clone())).collect()
                }
                _ => map.keys().map(|key| Value::from(key.as_str())).collect(),
            },
            Self::Values(entries) | Self::Open(entries) => entries.values().map(|(key, _)| key.clone()).collect(),
        }
    }
}

impl<'a> Key<'a> {
    /// The key of a value; None for what no map has.
    pub(crate) fn of(value: &Value<'a>) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Number((*value).into()),
            Value::Uint(value) => Self::Number((*value).into()),
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 1.0e19 => Self::Number(*value as i128),
            Value::String(text) => Self::Text(text.clone()),
            _ => return None,
        })
    }
}

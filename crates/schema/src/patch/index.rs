//! Finding items of lists by what they are known by: lists of a client can be long.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// Lists up to this length are gone through, which is faster.
const SHORT: usize = 16;

/// What items of a list are known by: themselves, or their merge keys.
fn known<'a>(item: &'a Value, merge_key: &str) -> Option<&'a Value> {
    if merge_key.is_empty() { Some(item) } else { item.get(merge_key) }
}

/// The items of a list, to be asked for by what they are known by.
pub(super) enum Members<'a> {
    Few(&'a [Value], &'a str),
    Many(HashSet<&'a Value>),
}

impl<'a> Members<'a> {
    pub(super) fn new(list: &'a [Value], merge_key: &'a str) -> Self {
        if list.len() <= SHORT {
            return Self::Few(list, merge_key);
        }
        Self::Many(list.iter().filter_map(|item| known(item, merge_key)).collect())
    }

    pub(super) fn contains(&self, key: &Value) -> bool {
        match self {
            Self::Few(list, merge_key) => list.iter().any(|item| known(item, merge_key) == Some(key)),
            Self::Many(set) => set.contains(key),
        }
    }
}

/// The places of a list's items, of several with one key the first. Without a field items are known by themselves; those without
/// the field are all one.
pub(super) struct Places<'a> {
    list: &'a [Value],
    field: Option<&'a str>,
    many: HashMap<Option<&'a Value>, usize>,
}

impl<'a> Places<'a> {
    pub(super) fn new(list: &'a [Value], field: Option<&'a str>) -> Self {
        let mut places = Self { list, field, many: HashMap::new() };
        if list.len() > SHORT {
            for (at, item) in list.iter().enumerate() {
                places.many.entry(places.key(item)).or_insert(at);
            }
        }
        places
    }

    fn key<'i>(&self, item: &'i Value) -> Option<&'i Value> {
        self.field.map_or(Some(item), |field| item.get(field))
    }

    /// Where an item with the key of this one stands.
    pub(super) fn of(&self, item: &Value) -> Option<usize> {
        let key = self.key(item);
        if self.list.len() > SHORT {
            return self.many.get(&key).copied();
        }
        self.list.iter().position(|item| self.key(item) == key)
    }
}

/// The same for a list that grows.
#[derive(Default)]
pub(super) struct Growing {
    places: HashMap<Value, usize>,
    seen: usize,
}

impl Growing {
    /// Where the item stands that is known by `key`; `list` has only grown since the last call, and no item got another key.
    pub(super) fn find(&mut self, list: &[Value], merge_key: &str, key: &Value) -> Option<usize> {
        if list.len() <= SHORT {
            return list.iter().position(|item| known(item, merge_key) == Some(key));
        }
        for (at, item) in list.iter().enumerate().skip(self.seen) {
            if let Some(key) = known(item, merge_key) {
                self.places.entry(key.clone()).or_insert(at);
            }
        }
        self.seen = list.len();
        self.places.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn short_and_long_lists_are_alike() {
        for length in [3, 40] {
            let mut list: Vec<Value> = (0..length).map(|at| json!({"name": at, "first": true})).collect();
            list.insert(0, json!({"none": 1}));
            list.push(json!({"name": 1}));
            let (members, places, mut growing) =
                (Members::new(&list, "name"), Places::new(&list, Some("name")), Growing::default());
            for (key, at) in [(json!(0), Some(1)), (json!(1), Some(2)), (json!(-1), None), (json!({}), None)] {
                assert_eq!(members.contains(&key), at.is_some(), "{key}");
                assert_eq!(places.of(&json!({"name": key})), at, "{key}");
                assert_eq!(growing.find(&list, "name", &key), at, "{key}");
            }
            assert_eq!(places.of(&json!({})), Some(0));
            assert_eq!(Places::new(&list, None).of(&json!({"name": 1})), Some(list.len() - 1));
        }
    }
}

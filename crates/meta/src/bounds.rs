//! How large a value may be: the one place that says so.
//!
//! Whatever reads bytes of others or builds a value (bodies, patches, answers of webhooks, results of expressions) holds it to
//! these numbers before it is made. Everything that later walks, copies or drops a value may then recurse.

use serde_json::{Map, Value};

/// The largest body of a request, and of an answer of somebody the server asks.
pub const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// How deep values stand in each other at most: what stands at the root is at zero. No type is this deep; only free-form values
/// can be, and everything that reads the stored bytes must be able to.
pub const DEEPEST: usize = 100;

/// What one value may take in memory, by [`Extent::weight`]. No object that fits into the store comes near: the densest real ones
/// (definitions without descriptions, managed fields) take thirty times their bytes, of which there are 1.5 million at most.
pub const HEAVIEST: usize = 64 << 20;

/// What an item of a list takes, with the room that a growing list keeps.
pub const ITEM: usize = 48;
/// What a map takes that is not empty, besides its entries: its nodes have room for several.
pub const MAP: usize = 512;
/// What an entry of a map takes, in nodes that are half full.
pub const ENTRY: usize = 128;

/// What a value takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// How deep its deepest part stands; a scalar and an empty list have none.
    pub depth: usize,
    /// About how many bytes of memory it takes.
    pub weight: usize,
}

/// Why a value is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    #[error("exceeded max depth")]
    Depth,
    #[error("the object is too large: it would take more than {} MiB of memory", HEAVIEST >> 20)]
    Weight,
}

impl Extent {
    /// Of a value of any depth.
    pub fn of(value: &Value) -> Self {
        if let Value::String(text) = value {
            return Self { depth: 0, weight: text.len() };
        }
        if !value.is_array() && !value.is_object() {
            return Self::default();
        }
        Self::default().with(vec![(value, 0)])
    }

    pub fn of_map(map: &Map<String, Value>) -> Self {
        if map.is_empty() {
            return Self::default();
        }
        let weight = MAP + map.len() * ENTRY + map.keys().map(String::len).sum::<usize>();
        Self { depth: 1, weight }.with(map.values().map(|value| (value, 1)).collect())
    }

    fn with(self, mut open: Vec<(&Value, usize)>) -> Self {
        let mut extent = self;
        while let Some((value, depth)) = open.pop() {
            extent.depth = extent.depth.max(depth);
            match value {
                Value::String(text) => extent.weight += text.len(),
                Value::Array(items) => {
                    extent.weight += items.len() * ITEM;
                    open.extend(items.iter().map(|item| (item, depth + 1)));
                }
                Value::Object(map) if !map.is_empty() => {
                    extent.weight += MAP + map.len() * ENTRY + map.keys().map(String::len).sum::<usize>();
                    open.extend(map.values().map(|value| (value, depth + 1)));
                }
                _ => {}
            }
        }
        extent
    }

    pub fn check(self) -> Result<(), Excess> {
        if self.depth > DEEPEST {
            return Err(Excess::Depth);
        }
        if self.weight > HEAVIEST { Err(Excess::Weight) } else { Ok(()) }
    }
}

/// Drops a value of any depth.
pub fn discard(value: Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(map) => open.extend(map.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

/// The beginning of a text that is too long to be shown whole, cut between characters.
pub fn cut(text: &str, most: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}... ({} bytes in all)", &text[..end], text.len()).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn extents_count_depth_and_memory() {
        for (value, depth, weight) in [
            (json!(null), 0, 0),
            (json!("abc"), 0, 3),
            (json!([]), 0, 0),
            (json!({}), 0, 0),
            (json!([1]), 1, ITEM),
            (json!([[], {}]), 1, 2 * ITEM),
            (json!({"ab": "c"}), 1, MAP + ENTRY + 3),
            (json!({"a": [{"b": {}}]}), 3, 2 * (MAP + ENTRY + 1) + ITEM),
        ] {
            assert_eq!(Extent::of(&value), Extent { depth, weight }, "{value}");
            if let Value::Object(map) = &value {
                assert_eq!(Extent::of_map(map), Extent { depth, weight }, "{value}");
            }
        }
    }

    #[test]
    fn no_depth_is_too_much_to_be_measured_and_dropped() {
        let mut value = json!(1);
        for _ in 0..1_000_000 {
            value = Value::Array(vec![value]);
        }
        assert_eq!(Extent::of(&value).check(), Err(Excess::Depth));
        discard(value);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("aéb", 2), "a... (4 bytes in all)");
    }
}

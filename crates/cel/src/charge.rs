//! What calls cost when they are run, so that no expression runs for long.

use crate::value::Value;
use crate::work;

/// How the cost of a call follows from its arguments and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    One,
    Fixed(u64),
    /// A walk over the text of an argument.
    Text(usize),
    /// Two walks.
    TwiceText(usize),
    /// Two walks over the result.
    Result,
    /// A walk over all of a list.
    Traverse,
    /// The number of items of the second argument.
    Items,
    /// The shorter of two values.
    Shorter,
    /// Both texts together.
    Both,
    /// One text inside of another.
    Within,
    /// A pattern over a text.
    Regex,
    Selector,
    ContainsIp,
    ContainsCidr,
    Validate,
    /// Every item of one list against every item of another.
    Product,
    /// Every item of a list against every other.
    Square(usize),
    /// The number of items.
    Length,
}

pub(crate) fn walk(size: u64) -> u64 {
    size.div_ceil(10)
}

pub(crate) fn regex(text: u64, pattern: u64) -> u64 {
    walk(text + 1).saturating_mul(pattern.div_ceil(4))
}

impl Charge {
    pub fn of(function: &str, overloads: &[&str]) -> Self {
        match function {
            "check" => Self::Fixed(350_000),
            "fieldSelector" | "labelSelector" => Self::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Self::Traverse,
            "url"
            | "isURL"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver"
            | "strings.quote"
            | "format"
            | "charAt"
            | "duration"
            | "timestamp"
            | "bytes" => Self::Text(0),
            "ip" if overloads == ["cidr_ip"] => Self::One,
            "ip" => Self::Text(0),
            "replace" | "split" | "ip.isCanonical" => Self::TwiceText(0),
            "join" => Self::Result,
            "find" | "findAll" | "matches" => Self::Regex,
            "containsIP" => Self::ContainsIp,
            "containsCIDR" => Self::ContainsCidr,
            "validate" => Self::Validate,
            "startsWith" | "endsWith" => Self::Text(1),
            "contains" => Self::Within,
            "@in" => Self::Items,
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => Self::Shorter,
            "_+_" => Self::Both,
            "sets.contains" | "sets.intersects" | "sets.equivalent" => Self::Product,
            "distinct" | "sort" => Self::Square(0),
            "@sortByAssociatedKeys" => Self::Square(1),
            "flatten" | "slice" | "reverse" | "lists.range" => Self::Length,
            _ => Self::One,
        }
    }

    /// The cost; `result` is not known yet where the call is only about to be made.
    pub fn cost(self, arguments: &[Value<'_>], result: Option<&Value<'_>>) -> u64 {
        let size = |index: usize| arguments.get(index).map_or(1, Value::size);
        match self {
            Self::One => 1,
            Self::Fixed(cost) => cost,
            Self::Text(index) => walk(size(index)),
            Self::TwiceText(index) => walk(size(index) * 2),
            Self::Result => walk(result.map_or(1, Value::size) * 2),
            Self::Traverse => arguments.first().map_or(1, traverse).max(1),
            Self::Items => match arguments.get(1) {
                Some(Value::List(list)) => list.len() as u64,
                _ => 1,
            },
            Self::Shorter => walk(size(0).min(size(1))),
            Self::Both => match arguments.first() {
                Some(Value::String(_) | Value::Bytes(_)) => walk(size(0) + size(1)),
                _ => 1,
            },
            Self::Within => walk(size(0)).saturating_mul(walk(size(1))),
            Self::Regex => regex(size(0), size(1)),
            Self::Selector => {
                let length = size(1);
                10 + walk(length) + length.div_ceil(2) * 50
            }
            Self::ContainsIp => match arguments.get(1) {
                Some(Value::String(_)) => walk(size(0) * 2) + walk(size(1)),
                _ => walk(size(0) * 2),
            },
            Self::ContainsCidr => {
                let base = walk(size(0) * 2) + walk(size(0)) + 1;
                if matches!(arguments.get(1), Some(Value::String(_))) { base + walk(size(1)) } else { base }
            }
            Self::Validate => regex(size(1), 128),
            Self::Product => size(0).saturating_mul(size(1)).saturating_add(1),
            Self::Square(index) => size(index).saturating_mul(size(index)).saturating_mul(2).saturating_add(11),
            Self::Length => 11 + result.map_or_else(|| size(0), |result| size(0).max(result.size())).max(1),
        }
    }
}

fn traverse(value: &Value<'_>) -> u64 {
    if !work::step(1) {
        return u64::from(u32::MAX);
    }
    match value {
        Value::String(text) => text.len() as u64 / 10,
        Value::Bytes(bytes) => bytes.len() as u64 / 10,
        Value::List(list) => {
            let items = (0..list.len()).filter_map(|index| list.get(index).ok().flatten());
            items.fold(0, |sum: u64, item| sum.saturating_add(traverse(&item)))
        }
        Value::Map(map) => {
            let keys = map.keys();
            let entries = keys.iter();
            entries.fold(0, |sum: u64, key| {
                let value = map.get(key).ok().flatten().map_or(1, |value| traverse(&value));
                sum.saturating_add(traverse(key)).saturating_add(value)
            })
        }
        _ => 1,
    }
}

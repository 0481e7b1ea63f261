//! Structural schemas: what a CustomResourceDefinition says of its objects.
//!
//! | question | where |
//! |---|---|
//! | what the schema says | [`Schema::parse`] |
//! | which fields stay, which get a value | [`prune`](Schema::prune), [`fill_defaults`](Schema::fill_defaults) |
//! | whether values are allowed, in upstream's words | [`validate`] |
//! | the same types for patches and apply | [`custom_type`] |
//! | from a body to an object | `read` |

mod fill;
mod formats;
mod lists;
mod parse;
mod read;
#[cfg(test)]
mod tests;
mod trail;
mod types;
pub mod validate;

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use crate::catalogue::ListType;

pub use formats::is_known as is_known_format;
pub(crate) use read::{decode_custom, normalize_custom};
pub use types::custom_type;

/// One place of a structural schema.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// `string`, `object`, …; empty where none is asked for.
    pub kind: Box<str>,
    pub format: Box<str>,
    pub nullable: bool,
    pub default: Option<Value>,
    pub properties: BTreeMap<String, Schema>,
    pub additional: Additional,
    pub items: Option<Box<Schema>>,
    pub preserve_unknown: bool,
    pub embedded: bool,
    pub int_or_string: bool,
    pub list_type: ListType,
    pub list_keys: Vec<String>,
    /// A map that is owned and replaced as a whole.
    pub atomic_map: bool,
    pub limits: Limits,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
    /// Whether it or anything below has rules in CEL.
    pub has_rules: bool,
}

/// What keys beyond the named ones may hold.
#[derive(Clone, Debug, Default)]
pub enum Additional {
    #[default]
    None,
    Anything,
    Of(Box<Schema>),
}

/// What a value may be beyond its type.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    pub one_of_values: Option<Vec<Value>>,
    /// The texts among them, where there are many.
    pub one_of_texts: HashSet<String>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<Pattern>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub required: Vec<String>,
}

/// A regular expression; one that cannot be read matches nothing.
#[derive(Clone, Debug)]
pub struct Pattern {
    pub text: Box<str>,
    pub expression: Option<regex::Regex>,
}

/// Fields that every resource has, whatever its schema says.
pub(crate) fn is_resource_field(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

impl Schema {
    /// The schema of a key of an object.
    pub(crate) fn at(&self, key: &str) -> Option<&Self> {
        match (self.properties.get(key), &self.additional) {
            (Some(schema), _) => Some(schema),
            (None, Additional::Of(schema)) => Some(schema),
            _ => None,
        }
    }
}

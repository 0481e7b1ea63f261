//! The schema engine: one type catalogue drives decoding, validation of fields, defaulting, patches, server-side apply,
//! encoding and OpenAPI, for built-in kinds and custom resources alike.
//!
//! Pure functions over `serde_json::Value`; must not depend on an async runtime or on any Ferry crate but `meta`.

pub mod catalogue;
pub mod decode;
pub mod encode;
pub mod go_time;
pub mod managed;
pub mod openapi;
pub mod patch;
pub mod proto;
pub mod quantity;
mod text;
pub mod yaml;
mod zero;

pub use catalogue::{Catalogue, Field, Item, ListType, Shape, Type, TypeDef, builtin};
pub use decode::{DecodeError, Decoded, Format, Validation, decode, decode_value, normalize};
pub use encode::{encode_json, encode_json_pretty};

//! The schema engine: one type catalogue drives decoding, validation of fields, defaulting, patches, server-side apply,
//! encoding and OpenAPI, for built-in kinds and custom resources alike.
//!
//! Pure functions over `serde_json::Value`; must not depend on an async runtime or on any Ferry crate but `meta`.

//! OpenAPI documents of the served kinds.

pub mod built_in;

//! The API server: the pipeline every request passes, the verbs, the watch cache, discovery.

pub mod cache;

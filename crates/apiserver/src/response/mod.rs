//! What a handler returns, and the bytes that a client gets: plain, as Tables, or the metadata alone.

pub(crate) mod answer;
pub(crate) mod list_body;
pub(crate) mod render;
pub(crate) mod scale_table;

//! Objects as the store keeps them, and back.

pub(crate) mod codec;
pub(crate) mod json_splice;
pub(crate) mod live;
pub(crate) mod objects;
pub(crate) mod stored_values;

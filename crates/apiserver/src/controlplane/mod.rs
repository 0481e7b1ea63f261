//! The objects that the server keeps of its own accord: what every cluster starts with, its lease, its endpoint.

pub(crate) mod bootstrap;
pub(crate) mod endpoint_reconciler;
pub(crate) mod identity;

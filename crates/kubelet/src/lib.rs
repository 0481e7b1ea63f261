//! The node agent: runs the pods that are bound to its node, over any container runtime that speaks CRI.

pub mod backoff;
mod plan;
mod pod;
mod quantity;
mod runtime;
mod status;

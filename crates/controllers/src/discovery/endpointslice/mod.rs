//! EndpointSlice: where the pods of a Service are, in slices of a hundred.

mod plan;
mod reconcile;

pub(crate) use reconcile::start;

//! EndpointSlice: where the pods of a Service are, in slices of a hundred.

mod hints;
mod plan;
mod reconcile;
mod written;

pub(super) use plan::{MANAGER_LABEL, SERVICE_LABEL};
pub(crate) use reconcile::start;

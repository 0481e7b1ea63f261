//! Endpoints: the older form of EndpointSlice, one object per Service.

mod plan;
mod reconcile;

pub(crate) use reconcile::start;

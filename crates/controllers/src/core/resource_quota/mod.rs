//! ResourceQuota: how much of each limit a namespace has used.
//!
//! Admission reserves before an object is stored; this loop adds up what there is, so that what was reserved in vain or
//! given back is free again.

mod plan;
mod reconcile;

pub(crate) use reconcile::start;

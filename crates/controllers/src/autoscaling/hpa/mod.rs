//! HorizontalPodAutoscaler v2: as many replicas as metrics ask for, within limits and as fast as its behaviour allows.
//!
//! `replicas.rs` computes what one metric asks for, `limits.rs` what behaviour makes of it; both are pure.

mod conditions;
mod limits;
mod mapping;
mod measure;
mod reconcile;
mod replicas;
mod source;

pub(crate) use reconcile::start;

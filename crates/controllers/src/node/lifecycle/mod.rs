//! Node lifecycle: nodes that fall silent become Unknown, conditions become taints, their pods are marked.

mod plan;
mod reconcile;
mod zones;

pub(crate) use reconcile::start;

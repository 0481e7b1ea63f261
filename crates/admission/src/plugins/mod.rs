//! The built-in plug-ins, one file each.

mod default_toleration_seconds;
mod namespace_lifecycle;
mod node_restriction;
mod priority;
mod service_account;
mod taint_nodes;

pub(crate) use default_toleration_seconds::DefaultTolerationSeconds;
pub(crate) use namespace_lifecycle::NamespaceLifecycle;
pub(crate) use node_restriction::NodeRestriction;
pub(crate) use priority::Priority;
pub(crate) use service_account::ServiceAccount;
pub(crate) use taint_nodes::TaintNodesByCondition;

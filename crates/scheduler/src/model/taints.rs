//! Taints that keep pods away from nodes.

use ferry_semantics::taints::untolerated;
use k8s_openapi::api::core::v1::{Taint, Toleration};

pub use ferry_semantics::taints::{NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, UNSCHEDULABLE};

/// Whether some taint keeps the pod away for good.
pub fn is_repelled(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    untolerated(taints, tolerations, &[NO_SCHEDULE, NO_EXECUTE]).is_some()
}

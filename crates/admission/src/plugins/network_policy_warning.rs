//! Says of NetworkPolicies that nobody enforces them, where that is so: who writes one believes to be protected by it.

use ferry_meta::ApiError;

use crate::{Operation, Plugin, Request};

const WARNING: &str =
    "the pod network of this cluster does not enforce NetworkPolicies: the policy is stored and has no effect";

pub(crate) struct NetworkPolicyWarning;

#[async_trait::async_trait]
impl Plugin for NetworkPolicyWarning {
    fn name(&self) -> &'static str {
        "NetworkPolicyWarning"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if request.is("networking.k8s.io", "networkpolicies") {
            request.warnings.push(WARNING.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Case;

    #[tokio::test]
    async fn policies_that_nobody_enforces_say_so() {
        let policy = || json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}}});
        let warned = async |case: Case| case.validate(&NetworkPolicyWarning).await.map(|warnings| warnings.len());
        assert_eq!(warned(Case::create("networking.k8s.io", "networkpolicies", "a", policy())).await, Ok(1));
        assert_eq!(warned(Case::update("networking.k8s.io", "networkpolicies", "a", policy(), policy())).await, Ok(1));
        assert_eq!(warned(Case::delete("networking.k8s.io", "networkpolicies", "a", "p")).await, Ok(0));
        assert_eq!(warned(Case::create("networking.k8s.io", "ingresses", "a", policy())).await, Ok(0));
    }
}

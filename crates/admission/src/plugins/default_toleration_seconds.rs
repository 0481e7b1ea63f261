//! Pods stay on a node that is not ready or unreachable for five minutes, unless they say otherwise.

use ferry_meta::ApiError;
use ferry_meta::object::{child_mut, text};
use serde_json::json;

use crate::pod::list_mut;
use crate::{Operation, Plugin, Request};

const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

pub(crate) struct DefaultTolerationSeconds;

#[async_trait::async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.is("", "pods") {
            return Ok(());
        }
        let Some(pod) = request.object.as_deref_mut() else { return Ok(()) };
        let tolerations = list_mut(child_mut(pod, "spec"), "tolerations");
        for taint in TAINTS {
            let tolerated = tolerations.iter().any(|toleration| {
                let key = text(toleration, "/key");
                (key.is_empty() || key == taint) && matches!(text(toleration, "/effect"), "" | "NoExecute")
            });
            if !tolerated {
                tolerations.push(
                    json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}),
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Case;
    use serde_json::Value;

    #[tokio::test]
    async fn tolerations_are_added_unless_given() {
        let count = async |tolerations: Value| {
            let case = Case::create("", "pods", "a", json!({"spec": {"tolerations": tolerations}}));
            let pod = case.mutate(&DefaultTolerationSeconds).await.expect("admitted");
            ferry_meta::object::items(&pod, "/spec/tolerations").len()
        };
        assert_eq!(count(json!(null)).await, 2);
        assert_eq!(count(json!([{"operator": "Exists"}])).await, 1);
        assert_eq!(count(json!([{"operator": "Exists", "effect": "NoSchedule"}])).await, 3);
        assert_eq!(count(json!([{"key": TAINTS[0], "operator": "Exists", "effect": "NoExecute"}])).await, 2);
    }
}

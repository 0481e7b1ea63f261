//! A new node is not ready until its conditions say so: it starts with the taint.

use ferry_meta::ApiError;
use ferry_meta::object::{child_mut, text};
use serde_json::json;

use crate::pod::list_mut;
use crate::{Operation, Plugin, Request};

pub(crate) struct TaintNodesByCondition;

#[async_trait::async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.is("", "nodes") {
            return Ok(());
        }
        let Some(node) = request.object.as_deref_mut() else { return Ok(()) };
        let taints = list_mut(child_mut(node, "spec"), "taints");
        let (key, effect) = ("node.kubernetes.io/not-ready", "NoSchedule");
        if !taints.iter().any(|taint| text(taint, "/key") == key && text(taint, "/effect") == effect) {
            taints.push(json!({"key": key, "effect": effect}));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Case;

    #[tokio::test]
    async fn a_new_node_is_tainted_once() {
        let mut node = json!({"metadata": {"name": "n"}});
        for _ in 0..2 {
            node = Case::create("", "nodes", "", node).mutate(&TaintNodesByCondition).await.expect("admitted");
            assert_eq!(
                node["spec"]["taints"],
                json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
            );
        }
    }
}

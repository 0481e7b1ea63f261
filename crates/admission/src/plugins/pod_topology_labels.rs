//! Pods carry the zone and region of their node, so that they can be read inside.

use std::sync::Arc;

use ferry_meta::object::{labels, metadata_mut, text};
use ferry_meta::{ApiError, ObjectReader};
use serde_json::json;

use crate::resources::NODES;
use crate::{Operation, Plugin, Request};

const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

pub(crate) struct PodTopologyLabels {
    reader: Arc<dyn ObjectReader>,
}

impl PodTopologyLabels {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader }
    }
}

#[async_trait::async_trait]
impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    /// The labels of a Binding are copied to the pod when it is bound.
    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.concerns("", "pods") {
            return Ok(());
        }
        let Some(object) = request.object.as_deref_mut() else { return Ok(()) };
        let node = match request.subresource {
            "" => text(object, "/spec/nodeName"),
            "binding" => text(object, "/target/name"),
            _ => return Ok(()),
        };
        let Some(node) = self.reader.get(&NODES, "", node).filter(|_| !node.is_empty()) else { return Ok(()) };
        for label in LABELS {
            if let Some(value) = labels(&node).get(label) {
                let own = metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
                if !own.is_object() {
                    *own = json!({});
                }
                own[label] = value.clone();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Objects};

    #[tokio::test]
    async fn a_binding_takes_the_labels_of_its_node() {
        let objects = Objects::default();
        objects.put("", "nodes", json!({"metadata": {"name": "n", "labels": {LABELS[1]: "z", "other": "x"}}}));
        let plugin = PodTopologyLabels::new(Arc::new(objects));
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
        let binding = Case::create("", "pods", "a", binding).at("binding").mutate(&plugin).await.expect("admitted");
        assert_eq!(binding["metadata"]["labels"], json!({LABELS[1]: "z"}));
    }
}

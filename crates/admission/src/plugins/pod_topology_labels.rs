//! Pods carry the zone and region of their node, so that they can be read inside.

use std::sync::Arc;

use ferry_meta::object::{labels, metadata_mut, text};
use ferry_meta::{ApiError, ObjectReader};
use serde_json::json;

use crate::chain::NodeLabels;
use crate::resources::NODES;
use crate::{Operation, Plugin, Request};

const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

pub(crate) struct PodTopologyLabels {
    label: NodeLabels,
}

impl PodTopologyLabels {
    /// Every pod that is placed comes by here, and a node is large: `labels` need not read all of it.
    pub(crate) fn new(reader: Arc<dyn ObjectReader>, node_labels: Option<NodeLabels>) -> Self {
        let read = move |node: &str, label: &str| {
            Some(labels(&*reader.get(&NODES, "", node)?).get(label)?.as_str()?.to_owned())
        };
        Self { label: node_labels.unwrap_or_else(|| Arc::new(read)) }
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
            "" => text(object, "/spec/nodeName").to_owned(),
            "binding" => text(object, "/target/name").to_owned(),
            _ => return Ok(()),
        };
        if node.is_empty() {
            return Ok(());
        }
        for label in LABELS {
            if let Some(value) = (self.label)(&node, label) {
                let own = metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
                if !own.is_object() {
                    *own = json!({});
                }
                own[label] = value.into();
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
        let plugin = PodTopologyLabels::new(Arc::new(objects), None);
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
        let binding = Case::create("", "pods", "a", binding).at("binding").mutate(&plugin).await.expect("admitted");
        assert_eq!(binding["metadata"]["labels"], json!({LABELS[1]: "z"}));
    }
}

//! Pods that are to come to a node once others have made room there.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::PodInfo;

#[derive(Debug, Default)]
pub struct Nominations {
    by_node: HashMap<String, Vec<Arc<PodInfo>>>,
    node_of: HashMap<Arc<str>, String>,
}

impl Nominations {
    pub fn is_empty(&self) -> bool {
        self.node_of.is_empty()
    }

    pub fn on(&self, node: &str) -> &[Arc<PodInfo>] {
        self.by_node.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.node_of.get(uid).map(String::as_str)
    }

    pub fn set(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove(&pod.uid);
        self.node_of.insert(pod.uid.clone(), node.to_owned());
        self.by_node.entry(node.to_owned()).or_default().push(pod);
    }

    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| &*pod.uid != uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }
}

//! Machines that an administrator took out of the cluster: certificates that were issued to them before are refused.
//!
//! A certificate cannot be taken back, and a node's is good for a year. Who is out is written in a ConfigMap, so that every
//! server knows it; a machine that joins again under the same name has a newer certificate.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_meta::ObjectReader;
use parking_lot::Mutex;

use crate::resources::CONFIG_MAPS;

/// Where they are written: a key per node, and the time of its removal.
pub const REMOVED_NODES: (&str, &str) = ("kube-system", "ferry-removed-nodes");

/// What a node's certificates are called before the node's name: its kubelet's, its proxy's and its gateway's.
const PREFIXES: [&str; 3] = ["system:node:", "ferry:node-proxy:", "ferry:node-gateway:"];

/// The signer's certificates begin so many seconds before they are made: clocks differ.
const BACKDATE: i64 = 300;

/// When each node was removed, in seconds.
type Times = Arc<HashMap<String, i64>>;

pub struct RemovedNodes {
    reader: Arc<dyn ObjectReader>,
    /// The version of the ConfigMaps that it was read from, and what it said.
    known: Mutex<(Option<u64>, Times)>,
}

impl RemovedNodes {
    pub fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader, known: Mutex::default() }
    }

    /// Whether a certificate with this common name, good from this second on, is one of a machine that was taken out later.
    pub(crate) fn refuses(&self, common_name: &str, not_before: i64) -> bool {
        let Some(node) = PREFIXES.iter().find_map(|prefix| common_name.strip_prefix(prefix)) else { return false };
        self.times().get(node).is_some_and(|removed| not_before.saturating_add(BACKDATE) <= *removed)
    }

    fn times(&self) -> Times {
        // Before the object is read: what changes meanwhile is read again.
        let version = self.reader.version(&CONFIG_MAPS);
        let mut known = self.known.lock();
        if known.0 != Some(version) {
            let map = self.reader.get(&CONFIG_MAPS, REMOVED_NODES.0, REMOVED_NODES.1);
            let data = map.as_ref().and_then(|map| map.get("data")?.as_object());
            let times = data
                .into_iter()
                .flatten()
                .filter_map(|(node, time)| Some((node.clone(), ferry_meta::time::parse(time.as_str()?)?.as_second())));
            *known = (Some(version), Arc::new(times.collect()));
        }
        known.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Objects;
    use serde_json::json;

    #[test]
    fn what_was_issued_before_the_removal_is_refused() {
        let objects = Arc::new(Objects::default());
        let removed = RemovedNodes::new(objects.clone());
        let second = |text: &str| ferry_meta::time::parse(text).unwrap().as_second();
        let (old, new) = (second("2026-01-01T11:54:00Z"), second("2026-01-01T11:56:00Z"));
        assert!(!removed.refuses("system:node:a", old), "nobody was removed");
        let put = |data| {
            let metadata = json!({"namespace": REMOVED_NODES.0, "name": REMOVED_NODES.1});
            objects.put("", "configmaps", json!({"metadata": metadata, "data": data}));
        };
        put(json!({"a": "2026-01-01T12:00:00Z", "b": "never"}));
        for (name, not_before, expected) in [
            ("system:node:a", old, true),
            ("ferry:node-proxy:a", old, true),
            ("ferry:node-gateway:a", old, true),
            ("system:node:a", new, false),
            ("system:node:ab", old, false),
            ("system:node:b", old, false),
            ("a", old, false),
            ("kubernetes-admin", old, false),
        ] {
            assert_eq!(removed.refuses(name, not_before), expected, "{name} from {not_before}");
        }
        put(json!({}));
        assert!(!removed.refuses("system:node:a", old), "it was taken back");
    }
}

//! `metrics.k8s.io`, built in: what nodes and containers use now, read from the kubelets' `/metrics/resource`.
//!
//! [`scrape`] asks the kubelets, [`page`] reads what they answer, [`usage`] makes rates of two looks, [`answer`] is the
//! handler. Nothing is stored: every server keeps the figures of the last minute for itself. When somebody else serves the
//! group by an APIService, this one steps aside.

mod answer;
mod page;
mod scrape;
mod usage;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferry_registry::{Resource, ResourceTable};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) use answer::handle;
pub(crate) use scrape::run;

use crate::aggregation::Remotes;
use usage::Record;

pub(crate) const GROUP: &str = "metrics.k8s.io";

/// Figures older than this are not told: the kubelet does not answer any more.
const FRESH: std::time::Duration = std::time::Duration::from_secs(60);

pub(crate) struct ResourceMetrics {
    rows: Vec<Arc<Resource>>,
    aside: AtomicBool,
    nodes: Mutex<HashMap<String, Scraped>>,
}

/// What is known of one node.
#[derive(Default)]
struct Scraped {
    record: Arc<Record>,
    /// When it answered last.
    answered: Option<Instant>,
    /// When it is asked next.
    due: Option<Instant>,
    failures: u32,
}

impl ResourceMetrics {
    pub(crate) fn new() -> Self {
        Self {
            rows: ResourceTable::resource_metrics().rows().to_vec(),
            aside: AtomicBool::new(false),
            nodes: Mutex::default(),
        }
    }

    /// What it serves now: nothing while somebody else does.
    pub(crate) fn rows(&self) -> &[Arc<Resource>] {
        if self.is_aside() { &[] } else { &self.rows }
    }

    fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Relaxed)
    }

    /// Gives way to another server of the group, and comes back when there is none. True where that is a change.
    pub(crate) fn give_way(&self, remotes: &Remotes) -> bool {
        let other = remotes.iter().any(|remote| remote.group == GROUP);
        if other {
            self.nodes.lock().clear();
        }
        self.aside.swap(other, Ordering::Relaxed) != other
    }

    /// The figures of a node, where it told them not long ago.
    fn of_node(&self, name: &str) -> Option<Arc<Record>> {
        let nodes = self.nodes.lock();
        let known = nodes.get(name)?;
        known.answered.filter(|at| at.elapsed() < FRESH).map(|_| known.record.clone())
    }
}

/// Whoever may view a namespace may see what its pods use, as with metrics-server's own role. It has another name, so that
/// an installation of metrics-server finds no role of somebody else in its way.
pub(crate) fn reader_role() -> Value {
    let label = |role: &str| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), Value::from("true"));
    let labels: serde_json::Map<String, Value> = ["admin", "edit", "view"].into_iter().map(label).collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "ferry:resource-metrics-reader", "labels": labels},
        "rules": [{"apiGroups": [GROUP], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}],
    })
}

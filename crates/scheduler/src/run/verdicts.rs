//! The last verdicts on pods that found no node, for whoever asks why.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::framework::Diagnosis;
use crate::model::PodInfo;

/// Pods beyond this number push out the oldest, and so do verdicts on nodes beyond the other: some 20 MB.
const MOST: usize = 1000;
const MOST_NODES: usize = 200_000;

#[derive(Clone, Default)]
pub struct Verdicts {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    by_name: HashMap<String, Arc<Diagnosis>>,
    order: VecDeque<String>,
    nodes: usize,
}

impl Verdicts {
    pub fn of(&self, namespace: &str, name: &str) -> Option<Arc<Diagnosis>> {
        self.kept.lock().by_name.get(&format!("{namespace}/{name}")).cloned()
    }

    pub(super) fn remember(&self, pod: &PodInfo, diagnosis: Diagnosis) {
        let name = pod.full_name();
        let mut kept = self.kept.lock();
        kept.nodes += diagnosis.nodes.len();
        match kept.by_name.insert(name.clone(), Arc::new(diagnosis)) {
            None => kept.order.push_back(name),
            Some(before) => kept.nodes -= before.nodes.len(),
        }
        while (kept.order.len() > MOST || kept.nodes > MOST_NODES) && kept.order.len() > 1 {
            let Some(oldest) = kept.order.pop_front() else { break };
            kept.take(&oldest);
        }
    }

    pub(super) fn forget(&self, pod: &PodInfo) {
        let mut kept = self.kept.lock();
        if kept.by_name.is_empty() {
            return;
        }
        let name = pod.full_name();
        if kept.take(&name) {
            kept.order.retain(|other| *other != name);
        }
    }
}

impl Kept {
    fn take(&mut self, name: &str) -> bool {
        let gone = self.by_name.remove(name);
        self.nodes -= gone.as_ref().map_or(0, |diagnosis| diagnosis.nodes.len());
        gone.is_some()
    }
}

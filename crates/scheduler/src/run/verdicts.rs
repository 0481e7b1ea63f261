//! The last verdicts on pods that found no node, for whoever asks why.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::framework::Diagnosis;
use crate::model::PodInfo;

/// Pods beyond this number push out the oldest.
const MOST: usize = 1000;

#[derive(Clone, Default)]
pub struct Verdicts {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    by_name: HashMap<String, Arc<Diagnosis>>,
    order: VecDeque<String>,
}

impl Verdicts {
    pub fn of(&self, namespace: &str, name: &str) -> Option<Arc<Diagnosis>> {
        self.kept.lock().by_name.get(&format!("{namespace}/{name}")).cloned()
    }

    pub(super) fn remember(&self, pod: &PodInfo, diagnosis: Diagnosis) {
        let name = pod.full_name();
        let mut kept = self.kept.lock();
        if kept.by_name.insert(name.clone(), Arc::new(diagnosis)).is_none() {
            kept.order.push_back(name);
            if kept.order.len() > MOST
                && let Some(oldest) = kept.order.pop_front()
            {
                kept.by_name.remove(&oldest);
            }
        }
    }

    pub(super) fn forget(&self, pod: &PodInfo) {
        let name = pod.full_name();
        let mut kept = self.kept.lock();
        if kept.by_name.remove(&name).is_some() {
            kept.order.retain(|other| *other != name);
        }
    }
}

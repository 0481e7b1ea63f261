//! When what a Service's endpoints tell came about: the annotation from which it is measured how long a change takes to
//! reach every node.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferry_client::ObjectKey;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use parking_lot::Mutex;

use super::pod;

pub(crate) const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

#[derive(Default)]
struct Known {
    service: Option<Timestamp>,
    /// By name.
    pods: HashMap<String, Timestamp>,
}

/// What was seen of each Service the last time.
#[derive(Default)]
pub(crate) struct TriggerTimes {
    known: Mutex<HashMap<ObjectKey, Known>>,
}

impl TriggerTimes {
    /// The earliest of the times that are new since the last call for this Service; its creation at the first call.
    pub(crate) fn next(&self, key: &ObjectKey, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let made = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let mut now = Known { service: made, pods: HashMap::new() };
        for pod in pods {
            let ready = pod::condition(pod, "Ready").and_then(|condition| condition.last_transition_time.as_ref());
            if let Some(at) = ready {
                now.pods.insert(pod.name_any(), at.0);
            }
        }
        let mut known = self.known.lock();
        let Some(before) = known.get(key) else {
            known.insert(key.clone(), now);
            return made;
        };
        let of_pods = now.pods.iter().filter(|(name, at)| before.pods.get(*name).is_none_or(|before| *at > before));
        let of_service = now.service.filter(|made| before.service.is_none_or(|before| *made > before));
        let earliest = of_pods.map(|(_, at)| *at).chain(of_service).min();
        known.insert(key.clone(), now);
        earliest
    }

    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.known.lock().remove(key);
    }
}

/// Says so on what is about to be written; a change that neither a pod nor the Service brought about has no time.
pub(crate) fn annotate(annotations: &mut Option<BTreeMap<String, String>>, at: Option<Timestamp>) {
    match at {
        Some(at) => {
            annotations.get_or_insert_default().insert(ANNOTATION.into(), at.to_string());
        }
        None => {
            if let Some(annotations) = annotations {
                annotations.remove(ANNOTATION);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_earliest_of_what_is_new_counts() {
        let service: Service =
            serde_json::from_value(json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" } }))
                .expect("a service");
        let pod = |name: &str, second: u32| -> Arc<Pod> {
            let at = format!("2026-01-01T00:01:{second:02}Z");
            let condition = json!({ "type": "Ready", "status": "True", "lastTransitionTime": at });
            let pod = json!({ "metadata": { "name": name }, "status": { "conditions": [condition] } });
            Arc::new(serde_json::from_value(pod).expect("a pod"))
        };
        let (times, key) = (TriggerTimes::default(), ObjectKey::new("a", "web"));
        let check = |pods: &[Arc<Pod>], expected: Option<&str>| {
            let mut annotations = Some(BTreeMap::from([(ANNOTATION.to_owned(), "old".to_owned())]));
            annotate(&mut annotations, times.next(&key, &service, pods));
            assert_eq!(annotations.as_ref().and_then(|all| all.get(ANNOTATION)).map(String::as_str), expected);
        };
        check(&[pod("a", 5)], Some("2026-01-01T00:00:00Z"));
        check(&[pod("a", 5)], None);
        check(&[pod("a", 9), pod("b", 7)], Some("2026-01-01T00:01:07Z"));
        check(&[pod("a", 9)], None);
        check(&[pod("a", 9), pod("b", 7)], Some("2026-01-01T00:01:07Z"));
        times.forget(&key);
        check(&[pod("a", 9)], Some("2026-01-01T00:00:00Z"));
    }
}

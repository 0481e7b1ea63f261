//! How often probes passed and failed, for `/metrics/probes`.

use std::collections::HashMap;

use ferry_metrics::{Kind, Page};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use super::action::Outcome;
use crate::pod;

/// Container, probe and result.
type Key = (String, &'static str, &'static str);

struct OfPod {
    namespace: String,
    name: String,
    counts: HashMap<Key, u64>,
}

/// The counts of all pods of the node, by uid.
#[derive(Default)]
pub(crate) struct Counts(Mutex<HashMap<String, OfPod>>);

impl Counts {
    pub(super) fn add(&self, of: &Pod, container: &str, kind: &'static str, outcome: &Outcome) {
        let result = match outcome {
            Outcome::Success | Outcome::Warning(_) => "successful",
            Outcome::Failure { .. } => "failed",
            Outcome::Error(_) => "unknown",
        };
        let mut all = self.0.lock();
        let entry = all.entry(pod::uid(of).to_owned()).or_insert_with(|| OfPod {
            namespace: pod::namespace(of).to_owned(),
            name: pod::name(of).to_owned(),
            counts: HashMap::new(),
        });
        *entry.counts.entry((container.to_owned(), kind, result)).or_default() += 1;
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// In the format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut lines = Vec::new();
        for (uid, OfPod { namespace, name, counts }) in self.0.lock().iter() {
            for ((container, kind, result), count) in counts {
                let labels = ferry_metrics::labels([
                    ("container", container.as_str()),
                    ("namespace", namespace.as_str()),
                    ("pod", name.as_str()),
                    ("pod_uid", uid.as_str()),
                    ("probe_type", *kind),
                    ("result", *result),
                ]);
                lines.push((labels, *count));
            }
        }
        lines.sort();
        let mut page = Page::new();
        let help = "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.";
        let mut family = page.family("prober_probe_total", Kind::Counter, help);
        for (labels, count) in lines {
            family.sample(&labels, count);
        }
        page.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_until_the_pod_is_gone() {
        let of: Pod =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}}))
                .expect("a pod");
        let counts = Counts::default();
        counts.add(&of, "main", "Readiness", &Outcome::Success);
        counts.add(&of, "main", "Readiness", &Outcome::Success);
        counts.add(&of, "main", "Liveness", &Outcome::Error("x".into()));
        let line = "prober_probe_total{container=\"main\",namespace=\"n\",pod=\"p\",pod_uid=\"u\",probe_type=";
        let text = counts.text();
        assert!(text.contains(&format!("{line}\"Readiness\",result=\"successful\"}} 2\n")), "{text}");
        assert!(text.contains(&format!("{line}\"Liveness\",result=\"unknown\"}} 1\n")), "{text}");
        counts.forget("u");
        assert!(!counts.text().contains("{"));
    }
}

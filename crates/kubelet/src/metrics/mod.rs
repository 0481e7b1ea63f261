//! What the kubelet counts, under the names of upstream's kubelet.

mod families;
mod gauges;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ferry_metrics::{Kind, Page, labels};
use parking_lot::Mutex;

pub(crate) use families::{Counter, Histogram, image_size};
pub(crate) use gauges::Gauges;

/// How many values lay in each bucket, and all of them together.
#[derive(Debug, Default)]
struct Values {
    buckets: Vec<u64>,
    sum: f64,
    count: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By their labels.
    counts: Mutex<BTreeMap<(Counter, String), u64>>,
    values: Mutex<BTreeMap<(Histogram, String), Values>>,
    last_relist: Mutex<Option<Instant>>,
}

/// What a container is called that has this role.
pub(crate) fn container_type(role: crate::pod::Role) -> &'static str {
    match role {
        crate::pod::Role::Init | crate::pod::Role::Sidecar => "init_container",
        crate::pod::Role::Regular => "container",
        crate::pod::Role::Ephemeral => "ephemeral_container",
    }
}

impl Metrics {
    pub(crate) fn count(&self, what: Counter, with: &[(&str, &str)]) {
        *self.counts.lock().entry((what, labels(with.iter().copied()))).or_default() += 1;
    }

    pub(crate) fn observe(&self, what: Histogram, with: &[(&str, &str)], value: f64) {
        let bounds = what.bounds();
        let mut all = self.values.lock();
        let values = all.entry((what, labels(with.iter().copied()))).or_default();
        values.buckets.resize(bounds.len(), 0);
        if let Some(place) = bounds.iter().position(|bound| value <= *bound) {
            values.buckets[place] += 1;
        }
        values.sum += value;
        values.count += 1;
    }

    pub(crate) fn took(&self, what: Histogram, with: &[(&str, &str)], time: Duration) {
        self.observe(what, with, time.as_secs_f64());
    }

    /// A call of the runtime, by the name that upstream has for it.
    pub(crate) async fn of_runtime<T, E>(
        &self,
        operation: &str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let with = [("operation_type", operation)];
        self.count(Counter::RuntimeOperations, &with);
        let since = Instant::now();
        let result = call.await;
        self.took(Histogram::RuntimeOperations, &with, since.elapsed());
        if result.is_err() {
            self.count(Counter::RuntimeErrors, &with);
        }
        result
    }

    /// All pods of the runtime were looked at, beginning at `since`.
    pub(crate) fn relisted(&self, since: Instant) {
        self.took(Histogram::Relist, &[], since.elapsed());
        if let Some(before) = self.last_relist.lock().replace(since) {
            self.took(Histogram::RelistInterval, &[], since.duration_since(before));
        }
    }

    /// A pod was refused. Names of resources are the cluster's, and there may be many.
    pub(crate) fn refused(&self, reason: &str) {
        const KNOWN: [&str; 16] = [
            "AppArmor",
            "PodOSSelectorNodeLabelDoesNotMatch",
            "PodOSNotSupported",
            "SupplementalGroupsPolicyNotSupported",
            "UnexpectedAdmissionError",
            "OutOfcpu",
            "OutOfmemory",
            "OutOfephemeral-storage",
            "OutOfpods",
            "PodLevelResourcesNotSupported",
            "PodFeatureUnsupported",
            "Evicted",
            "SysctlForbidden",
            "TopologyAffinityError",
            "NodeShutdown",
            "VolumeAttachmentLimitExceeded",
        ];
        let shown = match reason {
            known if KNOWN.contains(&known) => known,
            extended if extended.starts_with("OutOf") => "OutOfExtendedResources",
            _ => "Other",
        };
        self.count(Counter::AdmissionRejections, &[("reason", shown)]);
    }

    /// In the format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut page = Page::new();
        let counts = self.counts.lock();
        for what in Counter::ALL {
            let of = counts.range((what, String::new())..).take_while(|((known, _), _)| *known == what);
            let samples: Vec<(&str, u64)> = of.map(|((_, with), count)| (with.as_str(), *count)).collect();
            if samples.is_empty() && what.has_labels() {
                continue;
            }
            let (name, help) = what.about();
            let mut family = page.family(name, Kind::Counter, help);
            if samples.is_empty() {
                family.sample("", 0);
            }
            for (with, count) in samples {
                family.sample(with, count);
            }
        }
        drop(counts);
        let values = self.values.lock();
        for what in Histogram::ALL {
            let of: Vec<_> =
                values.range((what, String::new())..).take_while(|((known, _), _)| *known == what).collect();
            if of.is_empty() {
                continue;
            }
            let (name, help) = what.about();
            let mut family = page.family(name, Kind::Histogram, help);
            for ((_, with), values) in of {
                let buckets = what.bounds().iter().zip(values.buckets.iter().copied());
                family.histogram(with, buckets, values.sum, values.count);
            }
        }
        page.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.text();
        for line in lines {
            assert!(text.lines().any(|seen| seen == *line), "{line} in {text}");
        }
    }

    #[tokio::test]
    async fn calls_of_the_runtime_are_counted_by_their_names() {
        let metrics = Metrics::default();
        let ok: Result<u8, ()> = metrics.of_runtime("status", async { Ok(1) }).await;
        let failed: Result<(), u8> = metrics.of_runtime("pull_image", async { Err(2) }).await;
        assert_eq!((ok, failed), (Ok(1), Err(2)));
        has(
            &metrics,
            &[
                "kubelet_runtime_operations_total{operation_type=\"status\"} 1",
                "kubelet_runtime_operations_total{operation_type=\"pull_image\"} 1",
                "kubelet_runtime_operations_errors_total{operation_type=\"pull_image\"} 1",
                "kubelet_runtime_operations_duration_seconds_count{operation_type=\"status\"} 1",
                "# TYPE kubelet_runtime_operations_duration_seconds histogram",
                // What has no labels is there before anything has happened.
                "kubelet_started_pods_total 0",
            ],
        );
        assert!(!metrics.text().contains("kubelet_started_containers_total"));
    }

    #[test]
    fn values_are_put_into_upstreams_buckets() {
        let metrics = Metrics::default();
        for seconds in [0.4, 0.5, 3.5, 4000.0] {
            metrics.observe(Histogram::PodStart, &[], seconds);
        }
        has(
            &metrics,
            &[
                "kubelet_pod_start_duration_seconds_bucket{le=\"0.5\"} 2",
                "kubelet_pod_start_duration_seconds_bucket{le=\"3\"} 2",
                "kubelet_pod_start_duration_seconds_bucket{le=\"4\"} 3",
                "kubelet_pod_start_duration_seconds_bucket{le=\"3600\"} 3",
                "kubelet_pod_start_duration_seconds_bucket{le=\"+Inf\"} 4",
                "kubelet_pod_start_duration_seconds_sum 4004.4",
            ],
        );
    }

    #[test]
    fn reasons_of_refusals_are_few() {
        let metrics = Metrics::default();
        for reason in ["OutOfcpu", "OutOfexample.com/gpu", "OutOfexample.com/fpga", "NodeAffinity"] {
            metrics.refused(reason);
        }
        has(
            &metrics,
            &[
                "kubelet_admission_rejections_total{reason=\"OutOfcpu\"} 1",
                "kubelet_admission_rejections_total{reason=\"OutOfExtendedResources\"} 2",
                "kubelet_admission_rejections_total{reason=\"Other\"} 1",
            ],
        );
    }

    #[test]
    fn looks_at_the_runtime_have_a_distance() {
        let metrics = Metrics::default();
        metrics.relisted(Instant::now());
        metrics.relisted(Instant::now());
        has(
            &metrics,
            &["kubelet_pleg_relist_duration_seconds_count 2", "kubelet_pleg_relist_interval_seconds_count 1"],
        );
    }
}

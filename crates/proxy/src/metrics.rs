//! The proxy's figures, under upstream's names, in Prometheus' text format.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferry_metrics::{Kind, Page, labels};

/// Upstream's bounds: from a millisecond, each twice the last.
const BOUNDS: usize = 15;

#[derive(Default)]
struct Histogram {
    buckets: [u64; BOUNDS],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn record(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        if let Some(bucket) = self.buckets.iter_mut().zip(bounds()).find(|(_, bound)| seconds <= *bound) {
            *bucket.0 += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    fn print(&self, page: &mut Page, name: &str, help: &str) {
        let buckets = bounds().zip(self.buckets);
        page.family(&format!("kubeproxy_{name}"), Kind::Histogram, help).histogram("", buckets, self.sum, self.count);
    }
}

fn bounds() -> impl Iterator<Item = f64> {
    (0..BOUNDS).map(|power| f64::from(1u32 << power) / 1000.0)
}

#[derive(Default)]
pub(crate) struct Metrics {
    all: Histogram,
    whole: Histogram,
    partial: Histogram,
    failures: u64,
    last: f64,
    last_queued: f64,
    services: u64,
    endpoints: u64,
    asked: BTreeMap<(String, u16), u64>,
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Metrics {
    pub(crate) fn synced(&mut self, took: Duration, whole: bool, worked: bool) {
        self.all.record(took);
        let kind = if whole { &mut self.whole } else { &mut self.partial };
        kind.record(took);
        if worked {
            self.last = now();
        } else {
            self.failures += 1;
        }
    }

    pub(crate) fn changed(&mut self, services: u64, endpoints: u64) {
        self.services += services;
        self.endpoints += endpoints;
        self.last_queued = now();
    }

    /// `/healthz` or `/livez`, and how it was answered.
    pub(crate) fn asked(&mut self, path: &str, code: u16) {
        *self.asked.entry((path.trim_start_matches('/').to_owned(), code)).or_default() += 1;
    }

    pub(crate) fn text(&self) -> String {
        let mut page = Page::new();
        for (name, help, histogram) in [
            ("sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds", &self.all),
            (
                "sync_full_proxy_rules_duration_seconds",
                "SyncProxyRules latency in seconds for full resyncs",
                &self.whole,
            ),
            (
                "sync_partial_proxy_rules_duration_seconds",
                "SyncProxyRules latency in seconds for partial resyncs",
                &self.partial,
            ),
        ] {
            histogram.print(&mut page, name, help);
        }
        for (name, help, value) in [
            ("last_timestamp_seconds", "The last time proxy rules were successfully synced", self.last),
            ("last_queued_timestamp_seconds", "The last time a sync of proxy rules was queued", self.last_queued),
        ] {
            page.family(&format!("kubeproxy_sync_proxy_rules_{name}"), Kind::Gauge, help).sample("", value);
        }
        for (name, help, value) in [
            ("service_changes_total", "Cumulative proxy rules Service changes", self.services),
            ("endpoint_changes_total", "Cumulative proxy rules Endpoint changes", self.endpoints),
            ("nftables_sync_failures_total", "Cumulative proxy nftables sync failures", self.failures),
        ] {
            page.family(&format!("kubeproxy_sync_proxy_rules_{name}"), Kind::Counter, help).sample("", value);
        }
        for path in ["healthz", "livez"] {
            let name = format!("kubeproxy_proxy_{path}_total");
            let mut family = page.family(&name, Kind::Counter, "How often it was asked, by the code of the answer");
            for ((_, code), count) in self.asked.iter().filter(|((asked, _), _)| asked == path) {
                family.sample(&labels([("code", code.to_string().as_str())]), count);
            }
        }
        page.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_upstreams_names() {
        let mut metrics = Metrics::default();
        metrics.synced(Duration::from_millis(3), false, true);
        metrics.synced(Duration::from_secs(100), true, false);
        metrics.changed(2, 5);
        metrics.asked("/healthz", 200);
        metrics.asked("/healthz", 503);
        metrics.asked("/healthz", 200);
        let text = metrics.text();
        for line in [
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"0.002\"} 0",
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"0.004\"} 1",
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"16.384\"} 1",
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"+Inf\"} 2",
            "kubeproxy_sync_proxy_rules_duration_seconds_count 2",
            "kubeproxy_sync_full_proxy_rules_duration_seconds_count 1",
            "kubeproxy_sync_partial_proxy_rules_duration_seconds_count 1",
            "kubeproxy_sync_proxy_rules_service_changes_total 2",
            "kubeproxy_sync_proxy_rules_endpoint_changes_total 5",
            "kubeproxy_sync_proxy_rules_nftables_sync_failures_total 1",
            "kubeproxy_proxy_healthz_total{code=\"200\"} 2",
            "kubeproxy_proxy_healthz_total{code=\"503\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in {text}");
        }
    }
}

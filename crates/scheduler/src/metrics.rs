//! What the scheduler counts and times, under upstream's names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use ferry_metrics::{Kind, Page};
use parking_lot::RwLock;

/// Times in buckets that double from `first`.
pub struct Histogram {
    bounds: Vec<f64>,
    counts: Vec<AtomicU64>,
    /// In millionths, so that it can be an atomic number.
    sum: AtomicU64,
}

impl Histogram {
    fn exponential(first: f64, factor: f64, count: i32) -> Self {
        let bounds: Vec<f64> = (0..count).map(|power| first * factor.powi(power)).collect();
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    pub fn observe(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }

    pub fn observe_duration(&self, duration: Duration) {
        self.observe(duration.as_secs_f64());
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            bounds: self.bounds.clone(),
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }
}

/// A histogram as it stood.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    pub sum: f64,
}

impl Snapshot {
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |at: usize| before.counts.get(at).copied().unwrap_or_default();
        let counts = self.counts.iter().enumerate().map(|(at, count)| count.saturating_sub(earlier(at))).collect();
        Self { bounds: self.bounds.clone(), counts, sum: self.sum - before.sum }
    }

    pub fn mean(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum / self.count() as f64 }
    }

    /// As Prometheus estimates it: even within a bucket.
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = share * self.count() as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (at, count) in self.counts.iter().enumerate() {
            let Some(upper) = self.bounds.get(at).copied() else { return lower };
            let count = *count as f64;
            if below + count >= wanted && count > 0.0 {
                return lower + (upper - lower) * (wanted - below) / count;
            }
            below += count;
            lower = upper;
        }
        lower
    }
}

#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub fn set(&self, value: usize) {
        self.0.store(i64::try_from(value).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

/// One metric by its labels, which come as they are printed: `profile="a",result="b"`.
struct Family<T> {
    members: RwLock<BTreeMap<String, Arc<T>>>,
    make: fn() -> T,
}

impl<T> Family<T> {
    fn new(make: fn() -> T) -> Self {
        Self { members: RwLock::new(BTreeMap::new()), make }
    }

    fn of(&self, labels: &str) -> Arc<T> {
        if let Some(known) = self.members.read().get(labels) {
            return known.clone();
        }
        self.members.write().entry(labels.to_owned()).or_insert_with(|| Arc::new((self.make)())).clone()
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Scheduled,
    Unschedulable,
    Error,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

pub struct Metrics {
    attempts: Family<Counter>,
    attempt_duration: Family<Histogram>,
    algorithm_duration: Histogram,
    sli_duration: Family<Histogram>,
    pod_attempts: Histogram,
    point_duration: Family<Histogram>,
    pending: Family<Gauge>,
    incoming: Family<Counter>,
    victims: Histogram,
    preemptions: Counter,
    unschedulable: Family<Gauge>,
    cache_size: Family<Gauge>,
    in_flight: Family<Gauge>,
    permit_wait: Family<Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            attempts: Family::new(Counter::default),
            attempt_duration: Family::new(|| Histogram::exponential(0.001, 2.0, 15)),
            algorithm_duration: Histogram::exponential(0.001, 2.0, 15),
            sli_duration: Family::new(|| Histogram::exponential(0.01, 2.0, 20)),
            pod_attempts: Histogram::exponential(1.0, 2.0, 5),
            point_duration: Family::new(|| Histogram::exponential(0.0001, 2.0, 12)),
            pending: Family::new(Gauge::default),
            incoming: Family::new(Counter::default),
            victims: Histogram::exponential(1.0, 2.0, 7),
            preemptions: Counter::default(),
            unschedulable: Family::new(Gauge::default),
            cache_size: Family::new(Gauge::default),
            in_flight: Family::new(Gauge::default),
            permit_wait: Family::new(|| Histogram::exponential(0.001, 2.0, 15)),
        }
    }
}

impl Metrics {
    pub fn attempt(&self, profile: &str, outcome: Outcome, duration: Duration) {
        let labels = format!("profile=\"{profile}\",result=\"{}\"", outcome.text());
        self.attempts.of(&labels).add(1);
        self.attempt_duration.of(&labels).observe_duration(duration);
    }

    pub fn algorithm(&self, duration: Duration) {
        self.algorithm_duration.observe_duration(duration);
    }

    /// A pod was bound after so many attempts and so long.
    pub fn bound(&self, attempts: u32, waited: Duration) {
        self.pod_attempts.observe(attempts.into());
        let attempts = if attempts >= 16 { "16+".to_owned() } else { attempts.to_string() };
        self.sli_duration.of(&format!("attempts=\"{attempts}\"")).observe_duration(waited);
    }

    pub fn point(&self, point: &str, profile: &str, success: bool, duration: Duration) {
        let status = if success { "Success" } else { "Unschedulable" };
        let labels = format!("extension_point=\"{point}\",profile=\"{profile}\",status=\"{status}\"");
        self.point_duration.of(&labels).observe_duration(duration);
    }

    pub fn pending(&self, queue: &str, count: usize) {
        self.pending.of(&format!("queue=\"{queue}\"")).set(count);
    }

    pub fn incoming(&self, queue: &str, event: &str, count: u64) {
        self.incoming.of(&format!("event=\"{event}\",queue=\"{queue}\"")).add(count);
    }

    pub fn tried_to_preempt(&self) {
        self.preemptions.add(1);
    }

    pub fn preempted(&self, victims: usize) {
        self.victims.observe(victims as f64);
    }

    pub fn unschedulable(&self, plugin: &str, profile: &str, count: usize) {
        self.unschedulable.of(&format!("plugin=\"{plugin}\",profile=\"{profile}\"")).set(count);
    }

    pub fn cache_size(&self, kind: &str, count: usize) {
        self.cache_size.of(&format!("type=\"{kind}\"")).set(count);
    }

    pub fn binding(&self, count: usize) {
        self.in_flight.of("operation=\"binding\"").set(count);
    }

    pub fn permit_wait(&self, allowed: bool, duration: Duration) {
        let result = if allowed { "Success" } else { "Unschedulable" };
        self.permit_wait.of(&format!("result=\"{result}\"")).observe_duration(duration);
    }

    /// Times of decisions so far, without the binding.
    pub fn decisions(&self) -> Snapshot {
        self.algorithm_duration.snapshot()
    }

    /// All of them in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut page = Figures(Page::new());
        page.counters("scheduler_schedule_attempts_total", "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.", &self.attempts);
        page.histograms(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            &self.attempt_duration,
        );
        page.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds",
            &self.algorithm_duration,
        );
        page.histograms("scheduler_pod_scheduling_sli_duration_seconds", "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.", &self.sli_duration);
        page.histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            &self.pod_attempts,
        );
        page.histograms(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            &self.point_duration,
        );
        page.gauges("scheduler_pending_pods", "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated.", &self.pending);
        page.counters(
            "scheduler_queue_incoming_pods_total",
            "Number of pods added to scheduling queues by event and queue type.",
            &self.incoming,
        );
        page.histogram("scheduler_preemption_victims", "Number of selected preemption victims", &self.victims);
        let help = "Total preemption attempts in the cluster till now";
        let preemptions = self.preemptions.0.load(Ordering::Relaxed);
        page.family("scheduler_preemption_attempts_total", help, Kind::Counter).sample("", preemptions);
        page.gauges("scheduler_unschedulable_pods", "The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.", &self.unschedulable);
        page.gauges(
            "scheduler_cache_size",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
            &self.cache_size,
        );
        page.gauges(
            "scheduler_goroutines",
            "Number of running goroutines split by the work they do such as binding.",
            &self.in_flight,
        );
        page.histograms("scheduler_permit_wait_duration_seconds", "Duration of waiting on permit.", &self.permit_wait);
        page.0.into_text()
    }
}

/// Upstream says of each metric how far it can be relied on.
fn stability(name: &str) -> &'static str {
    match name {
        "scheduler_scheduling_algorithm_duration_seconds"
        | "scheduler_goroutines"
        | "scheduler_pod_scheduling_sli_duration_seconds"
        | "scheduler_permit_wait_duration_seconds"
        | "scheduler_unschedulable_pods" => "BETA",
        "scheduler_cache_size" => "ALPHA",
        _ => "STABLE",
    }
}

/// The page, by the kinds of figures there are here.
struct Figures(Page);

impl Figures {
    fn family<'a>(&'a mut self, name: &'a str, help: &str, kind: Kind) -> ferry_metrics::Family<'a> {
        self.0.family(name, kind, &format!("[{}] {help}", stability(name)))
    }

    fn counters(&mut self, name: &str, help: &str, family: &Family<Counter>) {
        let mut page = self.family(name, help, Kind::Counter);
        for (labels, counter) in family.members.read().iter() {
            page.sample(labels, counter.0.load(Ordering::Relaxed));
        }
    }

    fn gauges(&mut self, name: &str, help: &str, family: &Family<Gauge>) {
        let mut page = self.family(name, help, Kind::Gauge);
        for (labels, gauge) in family.members.read().iter() {
            page.sample(labels, gauge.0.load(Ordering::Relaxed));
        }
    }

    fn histograms(&mut self, name: &str, help: &str, family: &Family<Histogram>) {
        let mut page = self.family(name, help, Kind::Histogram);
        for (labels, histogram) in family.members.read().iter() {
            buckets(&mut page, labels, &histogram.snapshot());
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        buckets(&mut self.family(name, help, Kind::Histogram), "", &histogram.snapshot());
    }
}

fn buckets(page: &mut ferry_metrics::Family<'_>, labels: &str, snapshot: &Snapshot) {
    let bounded = snapshot.bounds.iter().zip(snapshot.counts.iter().copied());
    page.histogram(labels, bounded, snapshot.sum, snapshot.count());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_known_names() {
        let metrics = Metrics::default();
        metrics.attempt("default-scheduler", Outcome::Scheduled, Duration::from_millis(3));
        metrics.pending("active", 7);
        let page = metrics.render();
        for line in [
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_bucket{profile=\"default-scheduler\",result=\"scheduled\",le=\"0.002\"} 0",
            "scheduler_scheduling_attempt_duration_seconds_bucket{profile=\"default-scheduler\",result=\"scheduled\",le=\"0.004\"} 1",
            "scheduler_pending_pods{queue=\"active\"} 7",
        ] {
            assert!(page.contains(line), "{line} in\n{page}");
        }
    }

    #[test]
    fn quantiles_are_estimated_within_their_bucket() {
        let histogram = Histogram::exponential(1.0, 2.0, 4);
        for value in [0.5, 0.5, 3.0, 3.0] {
            histogram.observe(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.quantile(0.5), 1.0);
        assert_eq!(snapshot.quantile(0.75), 3.0);
        assert_eq!(snapshot.mean(), 1.75);
    }
}

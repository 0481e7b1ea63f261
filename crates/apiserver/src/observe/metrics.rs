//! Counters and histograms under upstream's names.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use ferry_metrics::{Kind, NativeHistogram, Page, Scrape, labels};
use ferry_registry::Resource;
use parking_lot::RwLock;

use crate::request::context::{RequestContext, Stage};
use crate::request::verb::Verb;

const BUCKETS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0];
/// More series than this are not kept: names come from paths, and clients choose those.
const SERIES: usize = 8192;

#[derive(Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS.len()],
    native: NativeHistogram,
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(index) = BUCKETS.iter().position(|b| seconds <= *b) {
            self.buckets[index].fetch_add(1, Ordering::Relaxed);
        }
        self.native.record(seconds);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn write(&self, family: &mut ferry_metrics::Family<'_>, labels: &str) {
        let buckets = BUCKETS.iter().zip(self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)));
        let seconds = Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64();
        family.histogram(labels, buckets, seconds, self.count.load(Ordering::Relaxed)).native(labels, &self.native);
    }

    fn reset(&self) {
        for counter in self.buckets.iter().chain([&self.count, &self.micros]) {
            counter.store(0, Ordering::Relaxed);
        }
        self.native.reset();
    }
}

/// Where the text of another component of this process comes from.
type Source = Box<dyn Fn() -> String + Send + Sync>;

type Family<T> = RwLock<BTreeMap<String, Arc<T>>>;

const VERBS: [&str; 9] = ["POST", "PUT", "LIST", "WATCH", "GET", "PATCH", "DELETE", "DELETECOLLECTION", "other"];
const STAGES: [Stage; Stage::ALL.len()] = Stage::ALL;
const OPERATIONS: [&str; 5] = ["create", "update", "delete", "get", "txn"];

#[derive(Default)]
struct StoreTimes {
    times: Histogram,
    errors: AtomicU64,
}

type Places = RwLock<BTreeMap<Box<str>, Arc<StoreTimes>>>;

#[derive(Default)]
pub(crate) struct Metrics {
    requests: Family<AtomicU64>,
    durations: Family<Histogram>,
    /// By verb and stage: every request counts in several, so that no text is made to find them.
    stages: [[Histogram; STAGES.len()]; VERBS.len()],
    watch_events: Family<AtomicU64>,
    watches: Family<AtomicI64>,
    /// By operation and place in the store.
    store: [Places; OPERATIONS.len()],
    mutating: Arc<AtomicI64>,
    reading: Arc<AtomicI64>,
    others: RwLock<Vec<Source>>,
}

/// Counts down when a request or a watch ends, however it ends.
pub(crate) struct OpenWatch(Arc<AtomicI64>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn series<T: Default>(family: &Family<T>, labels: &str) -> Arc<T> {
    if let Some(found) = family.read().get(labels) {
        return found.clone();
    }
    let mut family = family.write();
    if family.len() >= SERIES && !family.contains_key(labels) {
        return Arc::default();
    }
    family.entry(labels.to_owned()).or_default().clone()
}

fn kind_labels(row: &Resource) -> String {
    labels([("group", &*row.gvk.group), ("resource", &*row.plural), ("version", &*row.gvk.version)])
}

impl Metrics {
    pub(crate) fn in_flight(&self, context: &RequestContext) -> OpenWatch {
        let reads = matches!(context.info.verb, Verb::Get | Verb::List | Verb::Watch);
        let gauge = if reads { &self.reading } else { &self.mutating };
        gauge.fetch_add(1, Ordering::Relaxed);
        OpenWatch(gauge.clone())
    }

    pub(crate) fn open_watch(&self, row: &Resource) -> OpenWatch {
        let labels = kind_labels(row);
        let labels = format!("component=\"apiserver\",{labels},scope=\"\",subresource=\"\",verb=\"WATCH\"");
        let gauge = series(&self.watches, &labels);
        gauge.fetch_add(1, Ordering::Relaxed);
        OpenWatch(gauge)
    }

    pub(crate) fn watch_events(&self, row: &Resource, sent: u64) {
        series(&self.watch_events, &kind_labels(row)).fetch_add(sent, Ordering::Relaxed);
    }

    /// An operation of the store on the objects under a prefix.
    pub(crate) fn stored(&self, operation: &str, key: &str, took: Duration, failed: bool) {
        // `/registry/pods/default/a`: prefixes are the table's, so that their number is known.
        let resource = key.strip_prefix("/registry/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let Some(index) = OPERATIONS.iter().position(|known| *known == operation) else { return };
        let places = &self.store[index];
        let found = places.read().get(resource).cloned();
        let place = found.unwrap_or_else(|| places.write().entry(resource.into()).or_default().clone());
        if failed {
            place.errors.fetch_add(1, Ordering::Relaxed);
        }
        place.times.record(took);
    }

    pub(crate) fn finished(&self, context: &RequestContext, code: u16) {
        let info = &context.info;
        // Only rows make labels, so that made-up paths make no series.
        let (group, version, resource) =
            if context.row.is_some() { (&*info.group, &*info.version, &*info.resource) } else { ("", "", "") };
        let scope = match (info.path_name().is_empty(), info.namespace.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) if info.is_resource => "cluster",
            (true, true) => "",
        };
        let subresource = if context.row.is_some() { info.subresource.as_str() } else { "" };
        let index = match info.verb {
            Verb::Create => 0,
            Verb::Update => 1,
            Verb::List => 2,
            Verb::Watch => 3,
            Verb::Get => 4,
            Verb::Patch => 5,
            Verb::Delete => 6,
            Verb::DeleteCollection => 7,
            Verb::Proxy | Verb::Connect | Verb::Other(_) => 8,
        };
        let verb = VERBS[index];
        let dry_run = if context.query.text("dryRun") == "All" { "All" } else { "" };
        let mut labels = String::with_capacity(256);
        let _ = write!(labels, "code=\"{code}\",");
        let uncoded = labels.len();
        for part in [
            "dry_run=\"",
            dry_run,
            "\",component=\"apiserver\",group=\"",
            group,
            "\",resource=\"",
            resource,
            "\",scope=\"",
            scope,
            "\",subresource=\"",
            subresource,
            "\",verb=\"",
            verb,
            "\",version=\"",
            version,
            "\"",
        ] {
            labels.push_str(part);
        }
        series(&self.requests, &labels).fetch_add(1, Ordering::Relaxed);
        series(&self.durations, &labels[uncoded..]).record(context.stages.started.elapsed());
        for (stage, took) in context.stages.durations() {
            if let Some(at) = STAGES.iter().position(|known| *known == stage) {
                self.stages[index][at].record(took);
            }
        }
    }

    pub(crate) fn add(&self, source: impl Fn() -> String + Send + Sync + 'static) {
        self.others.write().push(Box::new(source));
    }

    /// Counts of what was begin anew; what is open now stays counted.
    pub(crate) fn reset(&self) {
        self.requests.write().clear();
        self.durations.write().clear();
        self.watch_events.write().clear();
        self.stages.iter().flatten().for_each(Histogram::reset);
        for places in &self.store {
            places.write().clear();
        }
    }

    pub(crate) fn page(&self, scrape: &Scrape) -> Page {
        let mut page = scrape.page();
        let mut requests =
            page.family("apiserver_request_total", Kind::Counter, "Requests by verb, resource and code.");
        for (labels, value) in &*self.requests.read() {
            requests.sample(labels, value.load(Ordering::Relaxed));
        }
        let help = "Time to answer, by verb and resource.";
        let mut durations = page.family("apiserver_request_duration_seconds", Kind::Histogram, help);
        for (labels, histogram) in &*self.durations.read() {
            histogram.write(&mut durations, labels);
        }
        let help = "Time of each stage of a request.";
        let mut of_stages = page.family("ferry_request_stage_duration_seconds", Kind::Histogram, help);
        for (verb, stages) in VERBS.iter().zip(&self.stages) {
            for (stage, histogram) in STAGES.iter().zip(stages).filter(|(_, h)| h.count.load(Ordering::Relaxed) > 0) {
                histogram.write(&mut of_stages, &labels([("stage", stage.name()), ("verb", *verb)]));
            }
        }
        self.write_store(&mut page);
        let mut events = page.family("apiserver_watch_events_total", Kind::Counter, "Events sent to watchers.");
        for (labels, value) in &*self.watch_events.read() {
            events.sample(labels, value.load(Ordering::Relaxed));
        }
        let mut watches = page.family("apiserver_longrunning_requests", Kind::Gauge, "Open watches.");
        for (labels, value) in &*self.watches.read() {
            watches.sample(labels, value.load(Ordering::Relaxed));
        }
        let help = "Requests being answered.";
        let mut in_flight = page.family("apiserver_current_inflight_requests", Kind::Gauge, help);
        for (kind, gauge) in [("mutating", &self.mutating), ("readOnly", &self.reading)] {
            in_flight.sample(&labels([("request_kind", kind)]), gauge.load(Ordering::Relaxed));
        }
        for source in &*self.others.read() {
            page.append(&source());
        }
        page
    }

    fn write_store(&self, page: &mut Page) {
        let mut places: Vec<(String, Arc<StoreTimes>)> = Vec::new();
        for (operation, of) in OPERATIONS.iter().zip(&self.store) {
            let of_place = |place: &str| labels([("group", ""), ("operation", *operation), ("resource", place)]);
            places.extend(of.read().iter().map(|(resource, place)| (of_place(resource), place.clone())));
        }
        let help = "Time of the store's operations, whatever the store.";
        let mut times = page.family("etcd_request_duration_seconds", Kind::Histogram, help);
        for (labels, place) in &places {
            place.times.write(&mut times, labels);
        }
        let mut counts = page.family("etcd_requests_total", Kind::Counter, "Operations of the store.");
        for (labels, place) in &places {
            counts.sample(labels, place.times.count.load(Ordering::Relaxed));
        }
        let mut errors =
            page.family("etcd_request_errors_total", Kind::Counter, "Operations of the store that failed.");
        for (labels, place) in &places {
            errors.sample(labels, place.errors.load(Ordering::Relaxed));
        }
    }
}

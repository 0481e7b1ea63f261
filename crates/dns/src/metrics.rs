//! What the server counts, under CoreDNS's names.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferry_metrics::{Kind, Page, labels};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use parking_lot::Mutex;

use crate::settings::Settings;

/// Types that are counted by name. All others are `other`, as CoreDNS counts them.
const TYPES: [(RecordType, &str); 11] = [
    (RecordType::A, "A"),
    (RecordType::AAAA, "AAAA"),
    (RecordType::ANY, "ANY"),
    (RecordType::CNAME, "CNAME"),
    (RecordType::HTTPS, "HTTPS"),
    (RecordType::MX, "MX"),
    (RecordType::NS, "NS"),
    (RecordType::PTR, "PTR"),
    (RecordType::SOA, "SOA"),
    (RecordType::SRV, "SRV"),
    (RecordType::TXT, "TXT"),
];
const CODES: [&str; 6] = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
const TIMES: usize = 16;
const SIZES: [usize; 14] = [0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16_000, 32_000, 48_000, 64_000];
/// Upstreams that are told apart.
const MOST_UPSTREAMS: usize = 64;
const SERVER: &str = "dns://:53";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

impl Transport {
    const ALL: [(Self, &'static str); 2] = [(Self::Udp, "udp"), (Self::Tcp, "tcp")];
}

#[derive(Debug)]
struct Histogram<const N: usize> {
    buckets: [AtomicU64; N],
    count: AtomicU64,
    /// In microseconds, or in bytes.
    sum: AtomicU64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), count: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> Histogram<N> {
    fn record(&self, bucket: usize, value: u64) {
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    fn values(&self) -> impl Iterator<Item = u64> {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed))
    }
}

type Times = Histogram<TIMES>;

impl Times {
    fn time(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // The first bound is 250 µs, each next one twice the last.
        let bucket = micros.div_ceil(250).max(1).next_power_of_two().trailing_zeros();
        self.record(bucket as usize, micros);
    }

    fn print(&self, family: &mut ferry_metrics::Family<'_>, labels: &str) {
        let bounds = (0..TIMES).map(|power| 0.00025 * f64::from(1u32 << power));
        let sum = self.sum.load(Ordering::Relaxed) as f64 / 1e6;
        family.histogram(labels, bounds.zip(self.values()), sum, self.count.load(Ordering::Relaxed));
    }
}

/// Of one zone of the Corefile.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// By transport, family and type.
    requests: [[[AtomicU64; TYPES.len() + 1]; 2]; 2],
    responses: [AtomicU64; CODES.len() + 1],
    durations: Times,
    request_sizes: [Histogram<{ SIZES.len() }>; 2],
    response_sizes: [Histogram<{ SIZES.len() }>; 2],
}

/// One question and its answer, as they are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) transport: Transport,
    pub(crate) client: IpAddr,
    pub(crate) kind: RecordType,
    pub(crate) asked: usize,
    pub(crate) answered: usize,
    pub(crate) code: ResponseCode,
}

impl Counters {
    pub(crate) fn count(&self, exchange: &Exchange, took: Duration) {
        let transport = exchange.transport as usize;
        let kind = TYPES.iter().position(|(kind, _)| *kind == exchange.kind).unwrap_or(TYPES.len());
        self.requests[transport][usize::from(exchange.client.is_ipv6())][kind].fetch_add(1, Ordering::Relaxed);
        let code = usize::from(exchange.code.low()).min(CODES.len());
        self.responses[code].fetch_add(1, Ordering::Relaxed);
        self.durations.time(took);
        let size = |bytes: usize| SIZES.iter().position(|bound| bytes <= *bound).unwrap_or(SIZES.len());
        self.request_sizes[transport].record(size(exchange.asked), exchange.asked as u64);
        self.response_sizes[transport].record(size(exchange.answered), exchange.answered as u64);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    zones: Mutex<BTreeMap<String, Arc<Counters>>>,
    upstreams: Mutex<BTreeMap<(SocketAddr, &'static str), Arc<Times>>>,
    broken: Mutex<BTreeMap<SocketAddr, u64>>,
    rejected: AtomicU64,
    dropped: AtomicU64,
    reloads_failed: AtomicU64,
}

fn code_name(code: ResponseCode) -> &'static str {
    CODES.get(usize::from(code.low())).copied().unwrap_or("other")
}

impl Metrics {
    pub(crate) fn of_zone(&self, zone: &str) -> Arc<Counters> {
        self.zones.lock().entry(zone.to_owned()).or_default().clone()
    }

    pub(crate) fn exchanged(&self, upstream: SocketAddr, code: ResponseCode, took: Duration) {
        let mut upstreams = self.upstreams.lock();
        let key = (upstream, code_name(code));
        if upstreams.len() < MOST_UPSTREAMS || upstreams.contains_key(&key) {
            upstreams.entry(key).or_default().time(took);
        }
    }

    pub(crate) fn broken(&self, upstream: SocketAddr) {
        let mut broken = self.broken.lock();
        if broken.len() < MOST_UPSTREAMS || broken.contains_key(&upstream) {
            *broken.entry(upstream).or_default() += 1;
        }
    }

    pub(crate) fn rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// A datagram that was not answered since too much was under way.
    pub(crate) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reload_failed(&self) {
        self.reloads_failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn text(&self, settings: &Settings) -> String {
        let mut page = Page::new();
        let version = env!("CARGO_PKG_VERSION");
        page.family("coredns_build_info", Kind::Gauge, "What answers.")
            .sample(&labels([("version", version), ("server", "ferry")]), 1);
        self.questions(&mut page);
        self.upstream(&mut page);
        caches(&mut page, settings);
        let hosts = settings.blocks().iter().filter_map(|block| Some(block.hosts.as_ref()?.entries()));
        page.family("coredns_hosts_entries", Kind::Gauge, "Entries of hosts.").sample("", hosts.sum::<usize>());
        page.family("coredns_reload_failed_total", Kind::Counter, "Corefiles that could not be read.")
            .sample("", self.reloads_failed.load(Ordering::Relaxed));
        page.family("ferry_dns_corefile_complaints", Kind::Gauge, "Lines of the Corefile that are not known.")
            .sample("", settings.complaints.len());
        page.family("ferry_dns_dropped_total", Kind::Counter, "Questions that there was no room for.")
            .sample("", self.dropped.load(Ordering::Relaxed));
        let mut family = page.family("coredns_plugin_enabled", Kind::Gauge, "The plug-ins of each zone.");
        for block in settings.blocks() {
            for plugin in &block.plugins {
                let zone = block.zone.to_ascii();
                family.sample(&labels([("server", SERVER), ("zone", &zone), ("view", ""), ("name", plugin)]), 1);
            }
        }
        page.into_text()
    }

    fn questions(&self, page: &mut Page) {
        let zones = self.zones.lock();
        let of = |zone: &str| labels([("server", SERVER), ("zone", zone), ("view", "")]);
        let mut family = page.family("coredns_dns_requests_total", Kind::Counter, "Questions.");
        for (zone, counters) in zones.iter() {
            for (transport, proto) in Transport::ALL {
                for (number, family_name) in ["1", "2"].iter().enumerate() {
                    let counts = &counters.requests[transport as usize][number];
                    let names = TYPES.iter().map(|(_, name)| *name).chain(["other"]);
                    for (count, name) in counts.iter().zip(names) {
                        let count = count.load(Ordering::Relaxed);
                        if count > 0 {
                            let more = labels([("proto", proto), ("family", family_name), ("type", name)]);
                            family.sample(&format!("{},{more}", of(zone)), count);
                        }
                    }
                }
            }
        }
        let mut family = page.family("coredns_dns_responses_total", Kind::Counter, "Answers.");
        for (zone, counters) in zones.iter() {
            for (count, code) in counters.responses.iter().zip(CODES.into_iter().chain(["other"])) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    family.sample(&format!("{},{}", of(zone), labels([("rcode", code), ("plugin", "")])), count);
                }
            }
        }
        let mut family =
            page.family("coredns_dns_request_duration_seconds", Kind::Histogram, "From question to answer.");
        for (zone, counters) in zones.iter() {
            counters.durations.print(&mut family, &of(zone));
        }
        for (name, help, response) in [
            ("coredns_dns_request_size_bytes", "Questions.", false),
            ("coredns_dns_response_size_bytes", "Answers.", true),
        ] {
            let mut family = page.family(name, Kind::Histogram, help);
            for (zone, counters) in zones.iter() {
                for (transport, proto) in Transport::ALL {
                    let sizes = if response { &counters.response_sizes } else { &counters.request_sizes };
                    let sizes = &sizes[transport as usize];
                    let (sum, count) = (sizes.sum.load(Ordering::Relaxed), sizes.count.load(Ordering::Relaxed));
                    let labels = format!("{},{}", of(zone), labels([("proto", proto)]));
                    family.histogram(&labels, SIZES.into_iter().zip(sizes.values()), sum, count);
                }
            }
        }
    }

    fn upstream(&self, page: &mut Page) {
        let mut family =
            page.family("coredns_proxy_request_duration_seconds", Kind::Histogram, "Exchanges with upstreams.");
        for ((upstream, code), times) in self.upstreams.lock().iter() {
            let to = upstream.to_string();
            times.print(&mut family, &labels([("proxy_name", "forward"), ("to", &to), ("rcode", code)]));
        }
        let mut family =
            page.family("coredns_proxy_healthcheck_failures_total", Kind::Counter, "Upstreams that did not answer.");
        for (upstream, count) in self.broken.lock().iter() {
            family.sample(&labels([("proxy_name", "forward"), ("to", &upstream.to_string())]), count);
        }
        page.family("coredns_forward_max_concurrent_rejects_total", Kind::Counter, "Questions beyond a share.")
            .sample("", self.rejected.load(Ordering::Relaxed));
    }
}

fn caches(page: &mut Page, settings: &Settings) {
    let of_cache = |block: &crate::settings::Block| {
        let cache = block.cache.as_ref()?;
        Some((labels([("server", SERVER), ("zones", &cache.zones()), ("view", "")]), cache.figures()))
    };
    let all: Vec<_> = settings.blocks().iter().filter_map(of_cache).collect();
    let mut family = page.family("coredns_cache_entries", Kind::Gauge, "Answers that are kept.");
    for (labels, figures) in &all {
        family.sample(&format!("{labels},type=\"success\""), figures.successes);
        family.sample(&format!("{labels},type=\"denial\""), figures.denials);
    }
    for (name, help, of) in [
        ("coredns_cache_hits_total", "Questions answered from the cache.", 0),
        ("coredns_cache_evictions_total", "Answers that had to go.", 1),
    ] {
        let mut family = page.family(name, Kind::Counter, help);
        for (labels, figures) in &all {
            let values = if of == 0 { figures.hits } else { figures.evictions };
            family.sample(&format!("{labels},type=\"success\""), values[0]);
            family.sample(&format!("{labels},type=\"denial\""), values[1]);
        }
    }
    type Value = fn(&crate::plugins::cache::Figures) -> u64;
    let plain: [(&str, &str, Value); 4] = [
        ("coredns_cache_requests_total", "Questions to the cache.", |figures| figures.requests),
        ("coredns_cache_misses_total", "Questions that it could not answer.", |figures| figures.misses),
        ("coredns_cache_prefetch_total", "Answers asked for before their end.", |figures| figures.prefetched),
        ("coredns_cache_served_stale_total", "Answers told after their end.", |figures| figures.served_stale),
    ];
    for (name, help, value) in plain {
        let mut family = page.family(name, Kind::Counter, help);
        for (labels, figures) in &all {
            family.sample(labels, value(figures));
        }
    }
}

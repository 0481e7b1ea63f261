//! What is counted: requests by route, backend and code, and how long they took.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferry_connections::plain::{self, Answering};
use ferry_metrics::{Kind, Page, labels};
use parking_lot::RwLock;

const BOUNDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0];
/// Routes come and go: more than these are counted together.
const MOST: usize = 10_000;

#[derive(Clone, Debug, Default)]
struct Key {
    gateway: Box<str>,
    route: Box<str>,
    backend: Box<str>,
    code: u16,
}

/// A key that may be borrowed: most requests find theirs, and none is made for those.
trait Parts {
    fn parts(&self) -> (&str, &str, &str, u16);
}

impl Parts for Key {
    fn parts(&self) -> (&str, &str, &str, u16) {
        (&self.gateway, &self.route, &self.backend, self.code)
    }
}

impl Parts for (&str, &str, &str, u16) {
    fn parts(&self) -> (&str, &str, &str, u16) {
        *self
    }
}

impl PartialEq for dyn Parts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Parts + '_ {}

impl Hash for dyn Parts + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl<'a> Borrow<dyn Parts + 'a> for Key {
    fn borrow(&self) -> &(dyn Parts + 'a) {
        self
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

#[derive(Default)]
struct Series {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

#[derive(Default)]
pub struct Metrics {
    requests: RwLock<HashMap<Key, Arc<Series>>>,
    streams: AtomicU64,
    retries: AtomicU64,
    connect_failures: AtomicU64,
}

impl Metrics {
    pub fn request(&self, gateway: &str, route: &str, backend: &str, code: u16, time: Duration) {
        let parts = (gateway, route, backend, code);
        let known = self.requests.read().get(&parts as &dyn Parts).cloned();
        let series = known.unwrap_or_else(|| {
            let mut all = self.requests.write();
            let key = Key { gateway: gateway.into(), route: route.into(), backend: backend.into(), code };
            let key = if all.len() < MOST { key } else { Key { route: "other".into(), ..Key::default() } };
            all.entry(key).or_default().clone()
        });
        series.count.fetch_add(1, Ordering::Relaxed);
        series.micros.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let seconds = time.as_secs_f64();
        if let Some((bucket, _)) = series.buckets.iter().zip(BOUNDS).find(|(_, bound)| seconds <= *bound) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn stream(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    pub fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub fn connect_failure(&self) {
        self.connect_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets routes that are no more.
    pub fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.requests.write().retain(|key, _| is_known(&key.route));
    }

    pub fn text(&self) -> String {
        let mut text = Page::new();
        let all: Vec<_> = self.requests.read().iter().map(|(key, series)| (key.clone(), series.clone())).collect();
        let name = "ferry_gateway_request_duration_seconds";
        let mut family = text.family(name, Kind::Histogram, "Time from a request's head to the end of its answer.");
        for (key, series) in all {
            let code = key.code.to_string();
            let pairs =
                [("gateway", &*key.gateway), ("route", &*key.route), ("backend", &*key.backend), ("code", &*code)];
            let buckets =
                BOUNDS.iter().zip(&series.buckets).map(|(bound, count)| (*bound, count.load(Ordering::Relaxed)));
            let count = series.count.load(Ordering::Relaxed);
            let seconds = Duration::from_micros(series.micros.load(Ordering::Relaxed)).as_secs_f64();
            family.histogram(&labels(pairs), buckets, seconds, count);
        }
        for (name, help, value) in [
            ("ferry_gateway_streams_total", "Streams of TCPRoutes, TLSRoutes and UDPRoutes.", &self.streams),
            ("ferry_gateway_retries_total", "Requests that were sent again.", &self.retries),
            ("ferry_gateway_connect_failures_total", "Endpoints that could not be reached.", &self.connect_failures),
        ] {
            text.family(name, Kind::Counter, help).sample("", value.load(Ordering::Relaxed));
        }
        text.into_text()
    }
}

/// Serves `/metrics` until the gateway stops.
pub fn serve_metrics(address: std::net::SocketAddr, shared: &Arc<super::Shared>) {
    let (group, shared) = (shared.tasks.clone(), shared.clone());
    group.spawn_until_stopped("gateway metrics", async move {
        let listener = match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!("the gateway's metrics are not served at {address}: {error}");
                return;
            }
        };
        let told = shared.clone();
        let handler: Answering = Arc::new(move |_| http::Response::new(told.metrics.text().into()));
        plain::answer(listener, handler, shared.tasks.clone()).await;
    });
}

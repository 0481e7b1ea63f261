//! What the proxy tells over HTTP: `/healthz` and `/livez` for load balancers in front of the node, a port for each Service
//! with `healthCheckNodePort`, and `/metrics`. Paths, answers and codes are upstream's.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferry_connections::plain::{self, Answering};
use ferry_tasks::Tasks;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::table::Owner;

/// Rules that cannot be written for longer than this make the node unfit for traffic.
const PATIENCE: Duration = Duration::from_secs(60);
const BIND_AGAIN: Duration = Duration::from_secs(5);

/// The port at which a Service's endpoints on this node are asked for, and how many are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) port: u16,
    pub(crate) local: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Health(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// Since when what the kernel should have cannot be written to it.
    failing: Option<Instant>,
    updated: Option<Timestamp>,
    leaving: bool,
    checks: BTreeMap<Owner, Check>,
    metrics: Metrics,
}

impl Known {
    fn is_healthy(&self) -> bool {
        self.updated.is_some() && self.failing.is_none_or(|since| since.elapsed() < PATIENCE)
    }
}

type Answer = Response<Full<Bytes>>;

fn answer(code: StatusCode, kind: &'static str, text: String) -> Answer {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// At all addresses of both families, or of the one that the kernel has.
async fn bind(port: u16) -> std::io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        other => other,
    }
}

fn code(fine: bool) -> StatusCode {
    if fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

impl Health {
    /// The rules were written, or not, in this time.
    pub(crate) fn synced(&self, took: Duration, whole: bool, worked: bool) {
        let mut known = self.0.lock();
        known.metrics.synced(took, whole, worked);
        if worked {
            known.failing = None;
            known.updated = Some(Timestamp::now());
        } else {
            known.failing.get_or_insert_with(Instant::now);
        }
    }

    pub(crate) fn changed(&self, services: u64, endpoints: u64) {
        self.0.lock().metrics.changed(services, endpoints);
    }

    /// The node is about to go: load balancers should not send anything new.
    pub(crate) fn leaving(&self, leaving: bool) {
        self.0.lock().leaving = leaving;
    }

    pub(crate) fn checks(&self, checks: BTreeMap<Owner, Check>) {
        self.0.lock().checks = checks;
    }

    fn healthz(&self, path: &str) -> Answer {
        let mut known = self.0.lock();
        let (healthy, eligible) = (known.is_healthy(), !known.leaving);
        let fine = match path {
            "/healthz" => healthy && eligible,
            "/livez" => healthy,
            _ => return answer(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n".into()),
        };
        let code = code(fine);
        known.metrics.asked(path, code.as_u16());
        let updated = known.updated.map(|time| time.to_string()).unwrap_or_default();
        let now = Timestamp::now().to_string();
        let mut text = json!({ "lastUpdated": updated, "currentTime": now });
        if path == "/healthz" {
            text["nodeEligible"] = json!(eligible);
        }
        answer(code, "application/json", text.to_string())
    }

    fn check(&self, owner: &str) -> Answer {
        let known = self.0.lock();
        let local = known.checks.get(owner).map_or(0, |check| check.local);
        let healthy = known.is_healthy();
        let (namespace, name) = owner.split_once('/').unwrap_or_default();
        let text = json!({
            "service": { "namespace": namespace, "name": name }, "localEndpoints": local, "serviceProxyHealthy": healthy,
        });
        let mut answer = answer(code(local > 0 && healthy), "application/json", text.to_string());
        answer.headers_mut().insert("x-load-balancing-endpoint-weight", HeaderValue::from(local));
        answer
    }

    fn metrics(&self, path: &str) -> Answer {
        match path {
            "/metrics" => {
                answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.0.lock().metrics.text())
            }
            "/healthz" => answer(StatusCode::OK, "text/plain; charset=utf-8", "ok".into()),
            "/proxyMode" => answer(StatusCode::OK, "text/plain; charset=utf-8", "nftables".into()),
            _ => answer(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n".into()),
        }
    }

    /// Serves `/healthz` and `/metrics`. A port that is taken is waited for: nothing else depends on it.
    pub(crate) fn serve(&self, healthz: Option<SocketAddr>, metrics: Option<SocketAddr>, tasks: &Tasks) {
        let this = self.clone();
        let of_health: Answering = Arc::new(move |path| this.healthz(path));
        let this = self.clone();
        let of_metrics: Answering = Arc::new(move |path| this.metrics(path));
        for (address, handler) in [(healthz, of_health), (metrics, of_metrics)] {
            let Some(address) = address else { continue };
            let group = tasks.clone();
            tasks.spawn_until_stopped("health of the proxy", async move {
                let mut told = false;
                let listener = loop {
                    match TcpListener::bind(address).await {
                        Ok(listener) => break listener,
                        Err(error) if told => tracing::debug!("{address}: {error}"),
                        Err(error) => {
                            tracing::warn!("the proxy's health is not served at {address} yet: {error}");
                            told = true;
                        }
                    }
                    tokio::time::sleep(BIND_AGAIN).await;
                };
                plain::answer(listener, handler, group).await;
            });
        }
    }
}

/// The servers of `healthCheckNodePort`s.
#[derive(Default)]
pub(crate) struct Servers {
    running: BTreeMap<Owner, (u16, JoinHandle<()>)>,
}

/// A proxy that starts anew binds the ports again.
impl Drop for Servers {
    fn drop(&mut self) {
        self.running.values().for_each(|(_, server)| server.abort());
    }
}

impl Servers {
    /// Starts and stops servers, so that there is one for each; returns those whose port could not be had.
    pub(crate) async fn follow(
        &mut self,
        checks: &BTreeMap<Owner, Check>,
        health: &Health,
        tasks: &Tasks,
    ) -> Vec<(Owner, String)> {
        self.running.retain(|owner, (port, server)| {
            let stays = checks.get(owner).is_some_and(|check| check.port == *port);
            if !stays {
                server.abort();
            }
            stays
        });
        let mut failed = Vec::new();
        for (owner, check) in checks {
            if self.running.contains_key(owner) {
                continue;
            }
            match bind(check.port).await {
                Ok(listener) => {
                    let (health, own) = (health.clone(), owner.clone());
                    let handler: Answering = Arc::new(move |_| health.check(&own));
                    let server = tasks
                        .spawn_until_stopped("health of a Service", plain::answer(listener, handler, tasks.clone()));
                    self.running.insert(owner.clone(), (check.port, server));
                }
                Err(error) => {
                    failed.push((owner.clone(), format!("node port {} for health checks: {error}", check.port)))
                }
            }
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use ferry_testkit::free_port;

    use super::*;

    async fn get(port: u16, path: &str) -> String {
        let path = path.to_owned();
        let ask = move || {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok::<_, std::io::Error>(text)
        };
        tokio::task::spawn_blocking(ask).await.expect("asked").unwrap_or_else(|error| error.to_string())
    }

    fn check(answer: &str, code: u16, parts: &[&str]) {
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{code}: {answer}");
        for part in parts {
            assert!(answer.contains(part), "{part} in {answer}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_balancers_are_told_who_can_serve() {
        let (tasks, health, mut servers) = (Tasks::new("test"), Health::default(), Servers::default());
        let port = free_port();
        let owner = Owner::from("web/front");
        let with = |port, local| BTreeMap::from([(owner.clone(), Check { port, local })]);
        let mut follow = async |checks: BTreeMap<Owner, Check>| {
            health.checks(checks.clone());
            servers.follow(&checks, &health, &tasks).await
        };
        assert!(follow(with(port, 2)).await.is_empty());
        check(&get(port, "/").await, 503, &["\"serviceProxyHealthy\":false", "\"localEndpoints\":2"]);
        health.synced(Duration::from_millis(1), true, true);
        let parts = ["\"namespace\":\"web\"", "\"name\":\"front\"", "x-load-balancing-endpoint-weight: 2"];
        check(&get(port, "/healthz").await, 200, &parts);
        follow(with(port, 0)).await;
        check(&get(port, "/").await, 503, &["\"localEndpoints\":0", "\"serviceProxyHealthy\":true"]);
        // Another port, one that is taken, and none.
        let other = free_port();
        follow(with(other, 1)).await;
        check(&get(other, "/").await, 200, &[]);
        let taken = std::net::TcpListener::bind("0.0.0.0:0").expect("a port");
        let number = taken.local_addr().expect("its address").port();
        let failed = follow(with(number, 1)).await;
        assert!(
            failed.len() == 1 && failed[0].1.contains(&format!("node port {number} for health checks")),
            "{failed:?}"
        );
        drop(taken);
        assert!(follow(with(number, 1)).await.is_empty(), "once it is free");
        follow(BTreeMap::new()).await;
        let gone = || async { get(number, "/").await.contains("refused") };
        for _ in 0..100 {
            if gone().await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(gone().await);
        assert!(tasks.stop(Duration::from_secs(10)).await);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_that_goes_is_alive_and_not_eligible() {
        let (tasks, health) = (Tasks::new("test"), Health::default());
        let (port, figures) = (free_port(), free_port());
        let at = |port| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        health.serve(at(port), at(figures), &tasks);
        for _ in 0..100 {
            if get(port, "/livez").await.starts_with("HTTP") && get(figures, "/healthz").await.starts_with("HTTP") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        check(&get(port, "/healthz").await, 503, &["\"lastUpdated\":\"\""]);
        health.synced(Duration::from_millis(1), true, true);
        check(&get(port, "/healthz").await, 200, &["\"nodeEligible\":true", "application/json", "nosniff"]);
        health.leaving(true);
        check(&get(port, "/healthz").await, 503, &["\"nodeEligible\":false"]);
        check(&get(port, "/livez").await, 200, &[]);
        check(&get(port, "/other").await, 404, &[]);
        // One failure may pass; it is not the node's end at once.
        health.synced(Duration::from_millis(1), true, false);
        check(&get(port, "/livez").await, 200, &[]);
        let text = get(figures, "/metrics").await;
        check(
            &text,
            200,
            &["kubeproxy_sync_proxy_rules_duration_seconds_count 2", "kubeproxy_proxy_livez_total{code=\"200\"}"],
        );
        check(&get(figures, "/proxyMode").await, 200, &["nftables"]);
        assert!(tasks.stop(Duration::from_secs(10)).await);
    }
}

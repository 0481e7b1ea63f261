//! `ferry trace URL`: one request, sent for real, with every hop that it takes and how long each took.
//!
//! The gateway tells the way of a request to whoever sends a token whose digest is in an annotation of the GatewayClass: who
//! may write there may know. The annotation is there for as long as the request takes.

mod send;

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferry_client::{Api, write};
use http::Uri;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::ListParams;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::{GROUP, Gateway, GatewayClass};
use crate::{CLASS, CONTROLLER};

/// What carries the token to the gateway, and the way back.
pub const HEADER: &str = "x-ferry-trace";
/// Annotations of this prefix have digests of tokens.
pub const PREFIX: &str = "trace.gateway.ferry.dev/";

/// The gateway learns of a token in a moment. Somebody else never does.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0} is no address of the form http://host/path")]
    Url(String),
    #[error("{0} has no address, and no Gateway of this cluster has one")]
    NoAddress(String),
    #[error("the token cannot be written to GatewayClass {CLASS}")]
    Token(#[source] Box<kube::Error>),
    #[error("{address}: {step}")]
    Unreached { address: SocketAddr, step: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
}

/// The gateway's part of the way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Way {
    pub gateway: String,
    pub listener: String,
    pub route: String,
    pub rule: String,
    pub backend: String,
    pub endpoint: Option<SocketAddr>,
    pub attempts: u32,
    pub reused: bool,
    /// All in microseconds.
    pub matching: u64,
    pub connecting: u64,
    pub waiting: u64,
    pub total: u64,
}

/// All that came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Traced {
    pub url: String,
    pub address: Option<SocketAddr>,
    /// Where the address is from.
    pub found_by: String,
    pub status: u16,
    pub bytes: u64,
    pub tls: Option<String>,
    /// All in microseconds.
    pub resolving: u64,
    pub connecting: u64,
    pub handshake: Option<u64>,
    /// From the request to the head of the answer, and to its end.
    pub head: u64,
    pub total: u64,
    /// None: whoever answered is no gateway of this cluster.
    pub way: Option<Way>,
    /// `namespace/name` of the pod, and its node.
    pub pod: Option<String>,
    pub node: Option<String>,
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Sends a request and finds out its way. `address` instead of what the name stands for.
pub async fn trace(client: &Client, url: &str, address: Option<SocketAddr>) -> Result<Traced, Error> {
    let uri: Uri = url.parse().map_err(|_| Error::Url(url.to_owned()))?;
    let (Some(scheme), Some(host)) = (uri.scheme_str().filter(|one| ["http", "https"].contains(one)), uri.host())
    else {
        return Err(Error::Url(url.to_owned()));
    };
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    let mut traced = Traced { url: url.to_owned(), ..Traced::default() };
    let began = tokio::time::Instant::now();
    let (address, found_by) = match address {
        Some(address) => (address, "--address".to_owned()),
        None => find(client, host, port).await?,
    };
    (traced.address, traced.found_by) = (Some(address), found_by);
    traced.resolving = micros(began.elapsed());
    let token = format!("{:032x}", rand::random::<u128>());
    let name = format!("{PREFIX}{:08x}", rand::random::<u32>());
    annotate(client, &name, Some(&hex(&Sha256::digest(token.as_bytes()))))
        .await
        .map_err(|e| Error::Token(Box::new(e)))?;
    let outcome = ask(&uri, address, &token, &mut traced).await;
    // Whatever came of it: the token is good for nothing from now on.
    let removed = annotate(client, &name, None).await;
    outcome?;
    removed.map_err(|error| Error::Token(Box::new(error)))?;
    if let Some(way) = &traced.way
        && let Some(endpoint) = way.endpoint
    {
        (traced.pod, traced.node) = pod(client, &way.backend, endpoint.ip()).await;
    }
    Ok(traced)
}

async fn ask(uri: &Uri, address: SocketAddr, token: &str, traced: &mut Traced) -> Result<(), Error> {
    for _ in 0..TRIES {
        tokio::time::sleep(PAUSE).await;
        send::send(uri, address, token, traced).await?;
        if traced.way.is_some() {
            break;
        }
    }
    Ok(())
}

/// What the name stands for, else the first address of a Gateway.
async fn find(client: &Client, host: &str, port: u16) -> Result<(SocketAddr, String), Error> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok((SocketAddr::new(address, port), "the URL".to_owned()));
    }
    if let Ok(mut found) = tokio::net::lookup_host((bare, port)).await
        && let Some(address) = found.next()
    {
        return Ok((address, "its name".to_owned()));
    }
    let classes: Api<GatewayClass> = Api::all(client.clone());
    let classes = classes.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let ours = classes.iter().filter(|class| class.spec.controller_name == CONTROLLER);
    let ours: Vec<_> = ours.filter_map(|class| class.metadata.name.as_deref()).collect();
    let gateways: Api<Gateway> = Api::all(client.clone());
    let gateways = gateways.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let found = gateways.iter().filter(|one| ours.contains(&&*one.spec.gateway_class_name)).find_map(|gateway| {
        let wanted = gateway.spec.listeners.iter().any(|listener| listener.port == port);
        let address = gateway.status["addresses"][0]["value"].as_str()?.parse().ok().filter(|_| wanted)?;
        let name = gateway.metadata.name.as_deref().unwrap_or_default();
        Some((SocketAddr::new(address, port), format!("Gateway {name}, for the name does not resolve")))
    });
    found.ok_or_else(|| Error::NoAddress(host.to_owned()))
}

async fn annotate(client: &Client, name: &str, digest: Option<&str>) -> Result<(), kube::Error> {
    let patch = json!({ "metadata": { "annotations": { name: digest } } });
    let body = serde_json::to_vec(&patch).map_err(kube::Error::SerdeError)?;
    let request = http::Request::patch(format!("/apis/{GROUP}/v1/gatewayclasses/{CLASS}"))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(body);
    write::send(client, request.map_err(kube::Error::HttpError)?).await
}

/// The pod behind an endpoint of `namespace/service:port`, and its node.
async fn pod(client: &Client, backend: &str, address: IpAddr) -> (Option<String>, Option<String>) {
    let Some((namespace, service)) = backend.split_once('/') else { return (None, None) };
    let service = service.rsplit_once(':').map_or(service, |(service, _)| service);
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let wanted = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let slices = slices.list(&wanted).await.map(|list| list.items).unwrap_or_default();
    let text = address.to_string();
    let found =
        slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).find(|one| one.addresses.contains(&text));
    let pod = found.and_then(|one| one.target_ref.as_ref()).filter(|target| target.kind.as_deref() == Some("Pod"));
    let pod = pod.map(|pod| format!("{namespace}/{}", pod.name.as_deref().unwrap_or_default()));
    (pod, found.and_then(|one| one.node_name.clone()))
}

impl Traced {
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// A line for each hop, with its time where it has one.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let address = self.address.map(|address| address.to_string()).unwrap_or_default();
        let _ = writeln!(text, "GET {}: {} in {}\n", self.url, self.status, time(self.total));
        let mut line = |what: &str, said: &str, took: Option<u64>| {
            let took = took.map(time).unwrap_or_default();
            let _ = writeln!(text, "{}", format!("{what:<12}{said:<60}{took:>10}").trim_end());
        };
        line("address", &format!("{address} (by {})", self.found_by), Some(self.resolving));
        line("connection", &address, Some(self.connecting));
        if let Some(tls) = &self.tls {
            line("TLS", tls, self.handshake);
        }
        let Some(way) = &self.way else {
            line("answer", "not from a gateway of this cluster", Some(self.head));
            return text;
        };
        let gateway =
            if way.gateway == "ingress" { "the Ingresses".to_owned() } else { format!("Gateway {}", way.gateway) };
        line("listener", &format!("{gateway}, listener {}", or(&way.listener, "none")), None);
        match way.route.as_str() {
            "" => line("route", "none takes this request", Some(way.matching)),
            route => line("route", &format!("{route}, rule {}", way.rule), Some(way.matching)),
        }
        if !way.backend.is_empty() {
            line("backend", &format!("Service {}", way.backend), None);
        }
        if let Some(endpoint) = way.endpoint {
            let pod = self.pod.as_deref().map_or("endpoint".to_owned(), |pod| format!("pod {pod}"));
            let node = self.node.as_deref().map(|node| format!(" on {node}")).unwrap_or_default();
            let tries = if way.attempts > 1 { format!(", attempt {}", way.attempts) } else { String::new() };
            line("pod", &format!("{pod} at {endpoint}{node}{tries}"), None);
            let kind = if way.reused { "one that was there" } else { "a new one" };
            line("", &format!("connection: {kind}"), Some(way.connecting));
            line("", "answer", Some(way.waiting.saturating_sub(way.connecting)));
        }
        line("answer", &format!("{}, {} bytes", self.status, self.bytes), Some(self.head));
        text
    }
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

fn time(micros: u64) -> String {
    let micros = Duration::from_micros(micros);
    format!("{:.2} ms", micros.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hop_has_a_line() {
        let way = Way {
            gateway: "default/web".into(),
            listener: "https".into(),
            route: "HTTPRoute default/shop".into(),
            rule: "0".into(),
            backend: "default/shop:80".into(),
            endpoint: "10.0.0.7:8080".parse().ok(),
            attempts: 2,
            reused: false,
            matching: 20,
            connecting: 100,
            waiting: 1100,
            total: 1200,
        };
        let traced = Traced {
            url: "https://shop.com/".into(),
            address: "192.0.2.1:443".parse().ok(),
            found_by: "its name".into(),
            status: 200,
            bytes: 5,
            tls: Some("TLSv1_3".into()),
            handshake: Some(900),
            total: 2500,
            way: Some(way),
            pod: Some("default/shop-1".into()),
            node: Some("n1".into()),
            ..Traced::default()
        };
        let text = traced.text();
        for want in [
            "GET https://shop.com/: 200 in 2.50 ms",
            "192.0.2.1:443 (by its name)",
            "TLSv1_3",
            "Gateway default/web, listener https",
            "HTTPRoute default/shop, rule 0",
            "Service default/shop:80",
            "pod default/shop-1 at 10.0.0.7:8080 on n1, attempt 2",
            "connection: a new one",
            "1.00 ms",
        ] {
            assert!(text.contains(want), "{want} is not in\n{text}");
        }
        let other = Traced { way: None, ..traced };
        assert!(other.text().contains("not from a gateway"));
    }
}

//! `ferry trace URL`: one request, sent for real, with every hop that it takes and how long each took.
//!
//! The gateway tells the way of a request to whoever sends a token whose digest is in an annotation of the GatewayClass: who
//! may write there may know. The annotation is there for as long as the request takes. `find` says where the request goes,
//! `send` sends it, `verdict` says at which hop it ended (pure), `render` shows it.

mod find;
mod render;
mod send;
mod stop;
mod verdict;

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferry_client::{Api, write};
use http::Uri;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::ListParams;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::CLASS;
use crate::api::{GROUP, GatewayClass};

pub use stop::{Hop, Stop};
pub use verdict::{Asked, Failure};

/// What carries the token to the gateway, and the way back.
pub const HEADER: &str = "x-ferry-trace";
/// Annotations of this prefix have digests of tokens.
pub const PREFIX: &str = "trace.gateway.ferry.dev/";

/// The gateway learns of a token in a moment. Somebody else never does.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// A server that takes connections and answers nothing is asked no longer than this whether it knows the token.
const MOST_ASKED: Duration = Duration::from_secs(10);
/// What somebody who was interrupted left behind.
const LEFT_SECONDS: i64 = 3600;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is no address of the form http://host/path")]
    Url(String),
    #[error("GatewayClass {CLASS} cannot be read: is there a gateway of Ferry in this cluster?")]
    Class(#[source] Box<kube::Error>),
    #[error(
        "the token cannot be written to GatewayClass {CLASS}; that needs the right to patch gatewayclasses.{GROUP}"
    )]
    Token(#[source] Box<kube::Error>),
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
    /// Why the gateway answered itself.
    pub stop: Option<Stop>,
    /// What the endpoint that could not be reached met.
    pub because: String,
    /// What there is instead of a route for it.
    pub near: Vec<String>,
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
    /// Not all of the answer was read: it is long, or does not end.
    pub cut: bool,
    /// Where a redirect leads.
    pub location: String,
    pub tls: Option<String>,
    /// What is worth knowing, though the request was answered.
    pub notes: Vec<String>,
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
    /// The hop at which it ended without an answer, and why.
    pub failed: Option<Failure>,
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

/// A URL that can be asked for: `http` or `https`, with a host, without a password.
pub(crate) struct Target {
    uri: Uri,
    /// Without the brackets of an address.
    host: String,
    port: u16,
    is_secure: bool,
}

impl Target {
    pub(crate) fn read(url: &str) -> Result<Self, Error> {
        let wrong = || Error::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        // A port that is no number is left out by the parser.
        let has_port = authority.as_str().len() > authority.host().len();
        if host.is_empty() || authority.as_str().contains('@') || has_port && authority.port_u16().is_none() {
            return Err(wrong());
        }
        let port = authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        Ok(Self { host, port, is_secure, uri })
    }
}

/// An address as `--address` has it; without a port it is that of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    address: IpAddr,
    port: Option<u16>,
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse() {
            return Ok(Self { address, port: None });
        }
        let place: SocketAddr =
            text.parse().map_err(|_| format!("{text:?} is no address as 192.0.2.1 or 192.0.2.1:8080"))?;
        Ok(Self { address: place.ip(), port: Some(place.port()) })
    }
}

/// Sends a request and finds out its way. `place` instead of what the name stands for.
pub async fn trace(client: &Client, url: &str, place: Option<Place>) -> Result<Traced, Error> {
    let target = Target::read(url)?;
    let mut traced = Traced { url: url.to_owned(), ..Traced::default() };
    let began = tokio::time::Instant::now();
    let found = match place {
        Some(place) => Ok((SocketAddr::new(place.address, place.port.unwrap_or(target.port)), "--address".to_owned())),
        None => find::find(client, &target).await,
    };
    traced.resolving = micros(began.elapsed());
    let address = match found {
        Ok((address, found_by)) => {
            (traced.address, traced.found_by) = (Some(address), found_by);
            address
        }
        Err(why) => {
            traced.failed = Some(Failure::new(Hop::Address, why));
            return Ok(traced);
        }
    };
    let token = format!("{:032x}", rand::random::<u128>());
    let made = write::now().0.as_second();
    let name = format!("{PREFIX}{made}-{:08x}", rand::random::<u32>());
    let digest = hex(&Sha256::digest(token.as_bytes()));
    let mut annotations = left(client, made).await?;
    annotations.insert(name.clone(), digest.into());
    annotate(client, annotations).await.map_err(|error| Error::Token(Box::new(error)))?;
    ask(&target, address, &token, &mut traced).await;
    // Whatever came of it: the token is good for nothing from now on.
    let removed = annotate(client, [(name, serde_json::Value::Null)].into_iter().collect()).await;
    removed.map_err(|error| Error::Token(Box::new(error)))?;
    if traced.way.is_none() {
        let there = find::served_at(client, address).await;
        if let Some(failure) = &mut traced.failed {
            failure.details.extend(there);
        }
    }
    if let Some(way) = &traced.way
        && let Some(endpoint) = way.endpoint
    {
        (traced.pod, traced.node) = pod(client, &way.backend, endpoint.ip()).await;
    }
    Ok(traced)
}

/// Sends the request once: until the token is known over there, only that is asked for.
pub(crate) async fn ask(target: &Target, address: SocketAddr, token: &str, traced: &mut Traced) {
    let sent = async {
        until_known(MOST_ASKED, || send::is_known(target, address, token)).await?;
        send::send(target, address, token, traced).await
    };
    traced.failed = match sent.await {
        Err(failure) => Some(failure),
        Ok(()) => verdict::of(traced),
    };
}

/// Asks until the token is known, or it seems that it never will be: the request itself then tells more.
async fn until_known<A>(most: Duration, asked: impl Fn() -> A) -> Result<(), Failure>
where
    A: Future<Output = Result<bool, Failure>>,
{
    let known = async {
        for _ in 0..TRIES {
            if asked().await? {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    };
    tokio::time::timeout(most, known).await.unwrap_or(Ok(()))
}

/// Annotations of traces that were interrupted, each with nothing in its place.
async fn left(client: &Client, now: i64) -> Result<serde_json::Map<String, serde_json::Value>, Error> {
    let classes: Api<GatewayClass> = Api::all(client.clone());
    let class = classes.get(CLASS).await.map_err(|error| Error::Class(Box::new(error)))?;
    let names = class.metadata.annotations.unwrap_or_default().into_keys();
    Ok(names.filter(|name| is_left(name, now)).map(|name| (name, serde_json::Value::Null)).collect())
}

fn is_left(annotation: &str, now: i64) -> bool {
    let Some(rest) = annotation.strip_prefix(PREFIX) else { return false };
    let made = rest.split('-').next().and_then(|made| made.parse::<i64>().ok());
    made.is_some_and(|made| now.saturating_sub(made) > LEFT_SECONDS)
}

async fn annotate(client: &Client, annotations: serde_json::Map<String, serde_json::Value>) -> Result<(), kube::Error> {
    let patch = json!({ "metadata": { "annotations": annotations } });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused() {
        for (url, want) in [
            ("http://shop.example/cart?a=b", Some(("shop.example", 80, false))),
            ("https://shop.example", Some(("shop.example", 443, true))),
            ("https://shop.example:8443/", Some(("shop.example", 8443, true))),
            ("http://[::1]:8080/x", Some(("::1", 8080, false))),
            ("http://user:secret@shop.example/", None),
            ("http://shop.example:port/", None),
            ("http://shop.example:99999/", None),
            ("ftp://shop.example/", None),
            ("shop.example/cart", None),
            ("http:///cart", None),
            ("http://", None),
            ("http://a b/", None),
            ("", None),
        ] {
            let read = Target::read(url).ok();
            let seen = read.as_ref().map(|one| (one.host.as_str(), one.port, one.is_secure));
            assert_eq!(seen, want, "{url}");
        }
    }

    #[test]
    fn addresses_may_have_a_port() {
        let place = |text: &str| text.parse::<Place>().ok().map(|place| (place.address.to_string(), place.port));
        assert_eq!(place("192.0.2.1"), Some(("192.0.2.1".into(), None)));
        assert_eq!(place("192.0.2.1:8080"), Some(("192.0.2.1".into(), Some(8080))));
        assert_eq!(place("[::1]:8080"), Some(("::1".into(), Some(8080))));
        assert_eq!(place("::1"), Some(("::1".into(), None)));
        for wrong in ["shop.example", "192.0.2.1:", "192.0.2.1:x", ""] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }

    /// Each of the questions had half a minute to be answered in.
    #[tokio::test]
    async fn a_server_that_says_nothing_is_not_asked_again_and_again() {
        let asked = until_known(Duration::from_millis(10), std::future::pending);
        let ended = tokio::time::timeout(Duration::from_secs(60), asked).await.expect("it gives up");
        assert_eq!(ended, Ok(()));
    }

    #[test]
    fn what_was_left_behind_is_told_from_what_is_in_use() {
        let name = |made: i64| format!("{PREFIX}{made}-0a");
        assert!(is_left(&name(1000), 5000));
        assert!(!is_left(&name(4000), 5000));
        assert!(!is_left("other/1000-0a", 5000));
        assert!(!is_left(&format!("{PREFIX}x"), 5000));
    }
}

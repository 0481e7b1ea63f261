//! The routing table: immutable, one for each port of each Gateway, made by `resolve` and read by `serve`.

mod backend;
mod by_host;
mod filter;
mod hostname;
mod hosts;
mod http;
mod matching;
mod ranges;
mod users;

use std::sync::{Arc, OnceLock};

use ipnet::IpNet;

use by_host::ByHost;

pub use backend::{Backend, BackendTls, Broken, Protocol, Split, Target, Weighted};
pub use filter::{Cors, Filters, HeaderEdit, Mirror, PathRewrite, Redirect, Rewrite};
pub use hostname::{Depth, Hostname, Specificity, specificity};
pub use hosts::{HttpRoutes, Rules, Taken, rules};
pub use http::{Affinity, BasicAuth, Carrier, Entry, Extras, Owner, RateLimit, Retry, Rule};
pub use matching::{Expression, Head, Matcher, PathMatcher, Text, TooMuch};
pub use ranges::Ranges;
pub use users::Users;

/// What is spoken at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    Http,
    /// HTTPS and TLS, told apart by the name that a client asks for.
    Tls,
    Tcp,
    Udp,
}

impl Transport {
    pub fn is_datagram(self) -> bool {
        self == Self::Udp
    }
}

/// Everything that is served at one port of one Gateway.
#[derive(Clone, Debug)]
pub struct PortTable {
    /// `namespace/name`, or `ingress`.
    pub gateway: Arc<str>,
    pub port: u16,
    pub transport: Transport,
    pub listeners: Vec<Arc<Listener>>,
    /// Who begins each connection with a header of the PROXY protocol; nobody else does.
    pub proxies: Arc<[IpNet]>,
    /// What is tried when no route of the Gateway has an answer: the Ingresses, at the address that they share.
    pub fallback: Option<Arc<PortTable>>,
    by_host: OnceLock<ByHost>,
}

#[derive(Debug)]
pub struct Listener {
    pub name: Arc<str>,
    pub hostname: Option<Hostname>,
    pub tls: TlsMode,
    pub http: Arc<HttpRoutes>,
    /// By the names that clients ask for; without a name for TCP and UDP.
    pub streams: Streams,
}

/// The routes of streams in their order.
pub type Streams = Arc<Vec<Arc<StreamRoute>>>;

#[derive(Clone, Debug)]
pub enum TlsMode {
    None,
    /// HTTP inside.
    Terminate(Arc<rustls::ServerConfig>),
    /// Anything inside.
    Stream(Arc<rustls::ServerConfig>),
    Passthrough,
}

/// Where a stream of bytes or datagrams goes.
#[derive(Debug)]
pub struct StreamRoute {
    pub hostname: Option<Hostname>,
    pub route: Arc<str>,
    pub split: Arc<Split>,
    pub order: StreamOrder,
}

/// Who goes first: how precisely the route itself names the host, the kind of the route, its age and name, the host's place
/// in it.
pub type StreamOrder = (std::cmp::Reverse<Specificity>, &'static str, (i64, Arc<str>), usize);

/// So many listeners are looked at one after the other.
const FEW_LISTENERS: usize = 8;

impl PortTable {
    pub fn new(
        gateway: Arc<str>,
        port: u16,
        transport: Transport,
        listeners: Vec<Arc<Listener>>,
        proxies: Arc<[IpNet]>,
    ) -> Self {
        Self { gateway, port, transport, listeners, proxies, fallback: None, by_host: OnceLock::new() }
    }

    pub fn with_fallback(&self, fallback: Arc<Self>) -> Self {
        Self { fallback: Some(fallback), ..self.clone() }
    }

    /// The listener for a host: the one that says it most precisely.
    pub fn listener(&self, host: &str) -> Option<&Arc<Listener>> {
        if self.listeners.len() > FEW_LISTENERS {
            let by_host = self.by_host.get_or_init(|| ByHost::new(&self.listeners));
            return by_host.find(host).and_then(|place| self.listeners.get(place));
        }
        let fitting = |listener: &&Arc<Listener>| listener.hostname.as_ref().is_none_or(|name| name.matches(host));
        let mut best: Option<&Arc<Listener>> = None;
        for listener in self.listeners.iter().filter(fitting) {
            let known = best.map(|best| specificity(best.hostname.as_ref()));
            if known.is_none_or(|known| specificity(listener.hostname.as_ref()) > known) {
                best = Some(listener);
            }
        }
        best
    }
}

impl Listener {
    /// The route for a name that a client asks for by SNI; the most precise first.
    pub fn stream(&self, name: Option<&str>) -> Option<&StreamRoute> {
        self.streams.iter().map(|route| &**route).find(|route| match (&route.hostname, name) {
            (None, _) => true,
            (Some(hostname), Some(name)) => hostname.matches(name),
            (Some(_), None) => false,
        })
    }
}

//! The gateway: traffic from outside, by the Gateway API and by Ingresses.
//!
//! `resolve` is pure: from objects it makes immutable tables (`table`), one for each port of each Gateway, and the statuses
//! that say what came of every object. `sync` hands it what the informers (`sources`) say has changed, and it makes anew only
//! what that can affect. The tables go to `serve`, which swaps them without touching a socket or a connection; the statuses
//! that differ are written (`statuses`). `serve` speaks
//! HTTP/1.1 and HTTP/2, ends or passes on TLS, and carries TCP and UDP, straight to the endpoints of Services.
//!
//! Every machine of a cluster does all of this for itself. One of them leads ([`Role`]): it gives Gateways their addresses, writes
//! the statuses, and hands keys (`keys`) to those that may not read Secrets. The others follow the statuses.
//!
//! Must not depend on any server-side crate.

pub mod api;
pub mod convert;
pub mod crd;
mod definitions;
mod keys;
mod resolve;
mod serve;
mod sources;
mod statuses;
mod sync;
mod table;
#[cfg(test)]
mod testing;
pub mod trace;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ferry_client::{Informers, Recorder};
use ferry_tasks::Tasks;
use kube::Client;
use tokio::sync::watch;

/// What GatewayClasses of this controller name.
pub const CONTROLLER: &str = "ferry.dev/gateway-controller";
/// What IngressClasses of this controller name.
pub const INGRESS_CONTROLLER: &str = "ferry.dev/ingress-controller";
/// The GatewayClass and the IngressClass that are there from the start.
pub const CLASS: &str = "ferry";

/// In the words of the Gateway API's conformance suite; ordered.
pub const SUPPORTED_FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "GRPCRouteRequestHeaderModifier",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayRouteHostnameIntersectionPrecedence",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetry",
    "HTTPRouteRetryBackendTimeout",
    "HTTPRouteRetryCodes",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

#[derive(Clone, Debug)]
pub struct Config {
    /// The machine's own addresses that may be listened on. Ingresses have the first.
    pub addresses: Vec<IpAddr>,
    /// Where `/metrics` is served.
    pub metrics_bind_address: Option<SocketAddr>,
    /// A file that gets a line of JSON for each request.
    pub access_log: Option<PathBuf>,
}

/// Where the copies of keys are that joined nodes serve with.
pub const KEYS_NAMESPACE: &str = keys::NAMESPACE;
/// The annotation of a Node with what the gateway there tells.
pub const SERVES: &str = resolve::SERVES;

/// Where the keys of listeners come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Secrets themselves, of all namespaces.
    All,
    /// The copies that whoever leads makes of what is in use.
    Handed,
}

/// What this process is among those that serve the Gateways of a cluster.
pub struct Role {
    /// Whether it is the one that gives Gateways their addresses and writes statuses, from now on.
    pub leads: watch::Receiver<bool>,
    pub keys: Keys,
    /// Whether there may be other machines that serve.
    pub has_company: bool,
    /// Gets what the others have to know of this one: the value of the annotation [`SERVES`].
    pub report: watch::Sender<Option<String>>,
}

impl Role {
    /// Nobody else serves, and nobody else writes statuses.
    pub fn alone() -> Self {
        let (leads, report) = (watch::channel(true).1, watch::channel(None).0);
        Self { leads, keys: Keys::All, has_company: false, report }
    }
}

/// Follows the cluster until `tasks` stops. `client` is the gateway's own identity; `shared` are informers of Services,
/// EndpointSlices, Namespaces and Nodes, which others may hold as well.
pub fn start(config: Config, client: Client, shared: &Informers, role: Role, recorder: Recorder, tasks: &Tasks) {
    let tasks = tasks.child("gateway");
    let (group, shared) = (tasks.clone(), shared.clone());
    tasks.spawn_critical_once("gateway", async move {
        sync::run(config, client, &shared, role, recorder, &group).await;
    });
}

#[cfg(test)]
mod tests {
    #[test]
    fn features_are_in_order() {
        assert!(super::SUPPORTED_FEATURES.is_sorted());
    }
}

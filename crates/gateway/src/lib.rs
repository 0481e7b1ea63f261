//! The gateway: traffic from outside, by the Gateway API and by Ingresses.
//!
//! `resolve` is pure: from objects it makes immutable tables (`table`), one for each port of each Gateway, and the statuses
//! that say what came of every object. `sync` hands it what the informers (`sources`) say has changed, and it makes anew only
//! what that can affect. The tables go to `serve`, which swaps them without touching a socket or a connection; the statuses
//! that differ are written (`statuses`). `serve` speaks
//! HTTP/1.1 and HTTP/2, ends or passes on TLS, and carries TCP and UDP, straight to the endpoints of Services.
//!
//! Must not depend on any server-side crate.

pub mod api;
pub mod convert;
pub mod crd;
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

/// Follows the cluster until `tasks` stops. `client` is the gateway's own identity; `shared` are informers of Services,
/// EndpointSlices and Namespaces, which others may hold as well.
pub fn start(config: Config, client: Client, shared: &Informers, recorder: Recorder, tasks: &Tasks) {
    let tasks = tasks.child("gateway");
    let (group, shared) = (tasks.clone(), shared.clone());
    tasks.spawn_critical_once("gateway", async move {
        sync::run(config, client, &shared, recorder, &group).await;
    });
}

#[cfg(test)]
mod tests {
    #[test]
    fn features_are_in_order() {
        assert!(super::SUPPORTED_FEATURES.is_sorted());
    }
}

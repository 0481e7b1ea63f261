//! Where the way of a request ends before a backend has answered it, and what its client is told.

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// Why the gateway answered a request itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    TwoHosts,
    NoHost,
    BadHost,
    BadPath,
    /// No listener of the port is for this host.
    NoListener,
    /// The connection's name chose another listener than the host does.
    OtherListener,
    NoRoute,
    /// Nobody knows whether a route has it.
    TooMuchWork,
    /// It came through here again and again.
    Loop,
    SourceRange,
    RateLimit,
    Password,
    Busy,
    BodyTooLong,
    BodyMissing,
    RouteFilter,
    BackendFilter,
    Rewrite,
    Location,
    RequestTimeout,
    NoBackend,
    NoWeight,
    Reference,
    NoEndpoints,
    Verification,
    Unreached,
    NoAnswer,
    BackendTimeout,
    Switched,
    /// One that a newer gateway knows.
    #[serde(other)]
    Other,
}

/// The hops of a request, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hop {
    Address,
    Connection,
    Tls,
    Listener,
    Route,
    Rule,
    Backend,
    Pod,
    Answer,
}

impl Hop {
    pub fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Connection => "connection",
            Self::Tls => "TLS",
            Self::Listener => "listener",
            Self::Route => "route",
            Self::Rule => "rule",
            Self::Backend => "backend",
            Self::Pod => "pod",
            Self::Answer => "answer",
        }
    }
}

impl Stop {
    pub fn status(self) -> StatusCode {
        match self {
            Self::TwoHosts
            | Self::NoHost
            | Self::BadHost
            | Self::BadPath
            | Self::BodyMissing
            | Self::Rewrite
            | Self::Location => StatusCode::BAD_REQUEST,
            Self::NoListener | Self::NoRoute => StatusCode::NOT_FOUND,
            Self::OtherListener => StatusCode::MISDIRECTED_REQUEST,
            Self::SourceRange => StatusCode::FORBIDDEN,
            Self::RateLimit => StatusCode::TOO_MANY_REQUESTS,
            Self::Password => StatusCode::UNAUTHORIZED,
            Self::BodyTooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestTimeout | Self::BackendTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::NoEndpoints | Self::TooMuchWork | Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::Verification | Self::Unreached | Self::NoAnswer | Self::Switched => StatusCode::BAD_GATEWAY,
            Self::RouteFilter
            | Self::BackendFilter
            | Self::NoBackend
            | Self::NoWeight
            | Self::Reference
            | Self::Other => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What the client reads. Strangers are not told whether it is the listener or the route that is missing.
    pub fn text(self) -> &'static str {
        match self {
            Self::TwoHosts => "a request has one host",
            Self::NoHost => "a request has a host",
            Self::BadHost => "the host is neither a name nor an address",
            Self::BadPath => "the path has characters that it must not have",
            Self::NoListener | Self::NoRoute => "no route has this",
            Self::OtherListener => "this connection is for another host",
            Self::TooMuchWork => "it takes too much work to find the route for this",
            Self::Loop => "the request has come through this gateway before",
            Self::SourceRange => "this address is not let in",
            Self::RateLimit => "too many requests",
            Self::Password => "a password is needed",
            Self::Busy => "too many passwords are being verified",
            Self::BodyTooLong => "the body is too long",
            Self::BodyMissing => "the body did not come",
            Self::RouteFilter => "a filter of the route cannot be carried out",
            Self::BackendFilter => "a filter of the backend cannot be carried out",
            Self::Rewrite => "the path cannot be rewritten",
            Self::Location => "the address cannot be redirected",
            Self::RequestTimeout => "the request took too long",
            Self::NoBackend => "the route has no backend",
            Self::NoWeight => "no backend of the route has any weight",
            Self::Reference => "the backend of the route does not exist or is not permitted",
            Self::NoEndpoints => "the backend has no endpoints",
            Self::Verification => "the backend cannot be verified",
            Self::Unreached => "the backend cannot be reached",
            Self::NoAnswer => "the backend did not answer",
            Self::BackendTimeout => "the backend took too long",
            Self::Switched => "the backend switched protocols without being asked",
            Self::Other => "the gateway did not pass it on",
        }
    }

    /// The hop at which it happens.
    pub fn hop(self) -> Hop {
        match self {
            Self::TwoHosts | Self::NoHost | Self::BadHost | Self::BadPath | Self::NoListener | Self::OtherListener => {
                Hop::Listener
            }
            Self::NoRoute | Self::TooMuchWork | Self::Loop => Hop::Route,
            Self::SourceRange
            | Self::RateLimit
            | Self::Password
            | Self::Busy
            | Self::BodyTooLong
            | Self::BodyMissing
            | Self::RouteFilter
            | Self::Rewrite
            | Self::Location
            | Self::RequestTimeout
            | Self::NoBackend
            | Self::NoWeight
            | Self::Other => Hop::Rule,
            Self::BackendFilter | Self::Reference | Self::NoEndpoints | Self::Verification => Hop::Backend,
            Self::Unreached | Self::NoAnswer | Self::BackendTimeout | Self::Switched => Hop::Pod,
        }
    }

    /// What whoever traces it is told.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NoListener => "no listener of this port is for this host",
            Self::OtherListener => "the name of the TLS connection chose another listener than the host does",
            Self::NoRoute => "no route of the listener takes this request",
            Self::SourceRange => "the route lets only certain addresses in, and this one is none of them",
            Self::RateLimit => "the route is asked too often from this address",
            Self::Password => "the route wants a password",
            Self::Busy => "too many passwords of the route's namespace are being verified already",
            Self::TooMuchWork => {
                "the routes for this host have more regular expressions and other matches than are tried"
            }
            Self::Loop => "a backend of the route leads back to this gateway",
            Self::RequestTimeout => "the whole request took longer than the rule's timeout",
            Self::NoBackend => "the rule has no backend",
            Self::NoWeight => "all backends of the rule have weight 0",
            Self::Reference => "the Service of the rule does not exist, has no such port, or is not permitted",
            Self::NoEndpoints => "the Service of the rule has no ready endpoint",
            Self::Verification => "what a BackendTLSPolicy knows the backend by cannot be used",
            Self::Unreached => "no connection to the endpoint could be made",
            Self::NoAnswer => "the endpoint closed the connection without an answer",
            Self::BackendTimeout => "the endpoint took longer than the rule's timeout",
            other => other.text(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_of_newer_gateways_can_be_read() {
        let read = |text: &str| serde_json::from_str::<Stop>(text).ok();
        assert_eq!(read("\"no-endpoints\""), Some(Stop::NoEndpoints));
        assert_eq!(read("\"something-new\""), Some(Stop::Other));
        assert_eq!(serde_json::to_string(&Stop::NoRoute).ok().as_deref(), Some("\"no-route\""));
    }
}

//! At which hop a request ended without the answer of a backend, and what to ask next.

use serde::Serialize;

use super::{Hop, Stop, Traced};
use crate::api::GROUP;

/// The hop that failed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub hop: Hop,
    pub why: String,
    pub details: Vec<String>,
}

impl Failure {
    pub(super) fn new(hop: Hop, why: impl Into<String>) -> Self {
        Self { hop, why: why.into(), details: Vec::new() }
    }
}

/// What came of a request that was answered by somebody.
pub(super) fn of(traced: &Traced) -> Option<Failure> {
    let Some(way) = &traced.way else {
        return Some(Failure::new(Hop::Listener, "whoever answers there is no gateway of this cluster"));
    };
    if let Some(stop) = way.stop {
        let mut failure = Failure::new(stop.hop(), stop.sentence());
        failure.details.extend(Some(way.because.clone()).filter(|why| !why.is_empty()));
        failure.details.extend(way.near.iter().cloned());
        return Some(failure);
    }
    (way.endpoint.is_some() && traced.status >= 500)
        .then(|| Failure::new(Hop::Pod, format!("the pod itself answers with {}", traced.status)))
}

/// An object that `ferry why` can be asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// As commands take it, with its group: others have kinds of the same names.
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

impl Asked {
    /// `HTTPRoute namespace/name`
    fn read(kind: &str, both: &str) -> Option<Self> {
        let (namespace, name) = both.split_once('/')?;
        let kind = match kind {
            "Pod" => "pod".to_owned(),
            "Ingress" => "ingress.networking.k8s.io".to_owned(),
            other => format!("{}.{GROUP}", other.to_lowercase()),
        };
        Some(Self { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl Traced {
    /// The object whose state says more about the hop that failed.
    pub fn asked(&self) -> Option<Asked> {
        let (failed, way) = (self.failed.as_ref()?, self.way.as_ref()?);
        let gateway = || Asked::read("Gateway", &way.gateway);
        let route = || way.route.split_once(' ').and_then(|(kind, both)| Asked::read(kind, both));
        match failed.hop {
            Hop::Address | Hop::Connection | Hop::Tls | Hop::Answer => None,
            Hop::Listener | Hop::Route => gateway(),
            // What the route itself wants is as somebody wrote it.
            Hop::Rule => {
                route().filter(|_| matches!(way.stop, Some(Stop::NoBackend | Stop::NoWeight | Stop::RouteFilter)))
            }
            Hop::Backend => route(),
            Hop::Pod => self.pod.as_deref().and_then(|pod| Asked::read("Pod", pod)).or_else(route),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Way;
    use super::*;

    #[test]
    fn the_hop_that_failed_is_named_with_what_to_ask_next() {
        let way =
            |stop: Option<Stop>| Way { gateway: "n/g".into(), route: "HTTPRoute n/r".into(), stop, ..Way::default() };
        let reached = |stop| Way { endpoint: "10.0.0.1:80".parse().ok(), ..way(stop) };
        let no_route = Way { route: String::new(), ..way(Some(Stop::NoRoute)) };
        let of_ingress = Way { gateway: "ingress".into(), route: String::new(), ..way(Some(Stop::NoRoute)) };
        for (way, status, want, asked) in [
            (reached(None), 200, None, None),
            (reached(None), 404, None, None),
            (reached(None), 503, Some(Hop::Pod), Some("pod n/p")),
            // A redirect has no backend.
            (way(None), 301, None, None),
            (way(Some(Stop::NoEndpoints)), 503, Some(Hop::Backend), Some("httproute n/r")),
            (way(Some(Stop::RateLimit)), 429, Some(Hop::Rule), None),
            (way(Some(Stop::NoWeight)), 500, Some(Hop::Rule), Some("httproute n/r")),
            (reached(Some(Stop::Unreached)), 502, Some(Hop::Pod), Some("pod n/p")),
            (no_route, 404, Some(Hop::Route), Some("gateway n/g")),
            (of_ingress, 404, Some(Hop::Route), None),
        ] {
            let mut traced = Traced { way: Some(way), status, pod: Some("n/p".into()), ..Traced::default() };
            traced.failed = of(&traced);
            assert_eq!(traced.failed.as_ref().map(|failed| failed.hop), want, "{traced:?}");
            let seen = traced.asked().map(|asked| {
                let kind = asked.kind.trim_end_matches(".gateway.networking.k8s.io");
                format!("{kind} {}/{}", asked.namespace, asked.name)
            });
            assert_eq!(seen.as_deref(), asked, "{traced:?}");
        }
        let other = Traced { status: 200, ..Traced::default() };
        assert_eq!(of(&other).map(|failed| failed.hop), Some(Hop::Listener));
    }
}

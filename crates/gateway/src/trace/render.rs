//! A traced request for people.

use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;

use super::{Hop, Traced, Way};

impl Traced {
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// A line for each hop, with its time where it has one. The last is the one that failed.
    pub fn text(&self) -> String {
        let mut text = match self.status {
            0 => format!("GET {}: no answer\n\n", self.url),
            status => format!("GET {}: {status} after {}\n\n", self.url, time(self.total)),
        };
        for (hop, said, took) in self.hops() {
            let took = took.map(time).unwrap_or_default();
            let _ = writeln!(text, "{}", format!("{took:>12}  {hop:<11} {said}").trim_end());
        }
        if let Some(failed) = &self.failed {
            let _ = writeln!(text, "{:>12}  {:<11} {}", "stuck", failed.hop.name(), failed.why);
            for detail in &failed.details {
                let _ = writeln!(text, "{:>26}{detail}", "");
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "{:>12}  {note}", "note");
        }
        text
    }

    fn hops(&self) -> Vec<(&'static str, String, Option<u64>)> {
        let failed = self.failed.as_ref().map(|failed| failed.hop);
        let reached = |hop: Hop| failed.is_none_or(|failed| hop < failed);
        let mut hops = Vec::new();
        if let Some(address) = self.address {
            hops.push(("address", format!("{address}, by {}", self.found_by), Some(self.resolving)));
        }
        if self.address.is_some() && reached(Hop::Connection) {
            hops.push(("connection", "made".to_owned(), Some(self.connecting)));
        }
        if let Some(tls) = &self.tls {
            hops.push(("TLS", tls.clone(), self.handshake));
        }
        if let Some(way) = &self.way {
            self.hops_of_gateway(way, &mut hops);
        }
        if self.status > 0 {
            let more = if self.cut { ", and more that was not read" } else { "" };
            let to = if self.location.is_empty() { String::new() } else { format!(", to {}", self.location) };
            hops.push(("answer", format!("{}{to}, {} bytes{more}", self.status, self.bytes), Some(self.head)));
        }
        hops
    }

    fn hops_of_gateway(&self, way: &Way, hops: &mut Vec<(&'static str, String, Option<u64>)>) {
        let gateway = match way.gateway.as_str() {
            "ingress" => "the Ingresses".to_owned(),
            gateway => format!("Gateway {gateway}"),
        };
        match way.listener.as_str() {
            "" => hops.push(("gateway", gateway, None)),
            listener => hops.push(("listener", format!("{listener} of {gateway}"), None)),
        }
        if way.route.is_empty() {
            return;
        }
        hops.push(("route", way.route.clone(), Some(way.matching)));
        hops.push(("rule", way.rule.clone(), None));
        if !way.backend.is_empty() {
            hops.push(("backend", format!("Service {}", way.backend), None));
        }
        let Some(endpoint) = way.endpoint else { return };
        let pod = self.pod.as_deref().map_or("an endpoint".to_owned(), str::to_owned);
        let node = self.node.as_deref().map(|node| format!(" on {node}")).unwrap_or_default();
        let tries = if way.attempts > 1 { format!(", attempt {}", way.attempts) } else { String::new() };
        hops.push(("pod", format!("{pod} at {endpoint}{node}{tries}"), None));
        if way.stop.is_none() {
            let kind = if way.reused { "that was there" } else { "that is new" };
            hops.push(("", format!("by a connection {kind}"), Some(way.connecting)));
            hops.push(("", "until it answers".to_owned(), Some(way.waiting.saturating_sub(way.connecting))));
        }
    }
}

fn time(micros: u64) -> String {
    let micros = Duration::from_micros(micros);
    format!("{:.2} ms", micros.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::super::{Failure, Stop};
    use super::*;

    fn answered() -> Traced {
        let way = Way {
            gateway: "default/web".into(),
            listener: "https".into(),
            route: "HTTPRoute default/shop".into(),
            rule: "0".into(),
            backend: "default/shop:80".into(),
            endpoint: "10.0.0.7:8080".parse().ok(),
            attempts: 2,
            matching: 20,
            connecting: 100,
            waiting: 1100,
            total: 1200,
            ..Way::default()
        };
        Traced {
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
        }
    }

    #[test]
    fn every_hop_has_a_line() {
        let text = answered().text();
        for want in [
            "GET https://shop.com/: 200 after 2.50 ms",
            "192.0.2.1:443, by its name",
            "TLSv1_3",
            "listener    https of Gateway default/web",
            "0.02 ms  route       HTTPRoute default/shop",
            "rule        0",
            "backend     Service default/shop:80",
            "pod         default/shop-1 at 10.0.0.7:8080 on n1, attempt 2",
            "by a connection that is new",
            "1.00 ms",
            "answer      200, 5 bytes",
        ] {
            assert!(text.contains(want), "{want} is not in\n{text}");
        }
        assert!(!text.contains("stuck"), "{text}");
    }

    #[test]
    fn the_hop_that_failed_is_the_last() {
        let mut traced = answered();
        let failed = Failure { details: vec!["a detail".into()], ..Failure::new(Hop::Route, "no route") };
        traced.failed = Some(failed);
        let way = Way { stop: Some(Stop::NoRoute), gateway: "default/web".into(), ..Way::default() };
        traced.way = Some(way);
        let text = traced.text();
        assert!(text.contains("stuck  route       no route\n"), "{text}");
        assert!(text.ends_with("                          a detail\n"), "{text}");
        assert!(text.contains("gateway     Gateway default/web") && !text.contains("pod  "), "{text}");
        let failed = Some(Failure::new(Hop::Connection, "connection refused"));
        let refused = Traced { failed, status: 0, tls: None, way: None, ..answered() };
        let text = refused.text();
        assert!(text.starts_with("GET https://shop.com/: no answer\n"), "{text}");
        assert!(text.contains("address     192.0.2.1:443") && !text.contains("made"), "{text}");
        assert!(text.ends_with("stuck  connection  connection refused\n"), "{text}");
    }
}

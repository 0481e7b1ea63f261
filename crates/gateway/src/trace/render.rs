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
mod tests;

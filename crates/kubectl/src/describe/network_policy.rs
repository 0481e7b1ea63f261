//! Network policies: who may talk to the pods, and whom they may talk to.

use serde_json::Value;

use super::parts::{go_time, head, list, marks, selector, text};
use crate::print::go_value::show;

pub fn network_policy(object: &Value) -> String {
    let spec = &object["spec"];
    let mut out = head(object, true);
    out.push_str(&format!("Created on:\t{}\n", go_time(text(&object["metadata"], "creationTimestamp"))));
    out.push_str(&marks(object));
    out.push_str("Spec:\n  PodSelector: ");
    match selector(&spec["podSelector"]) {
        all if all == "<none>" => {
            out.push_str("    <none> (Allowing the specific traffic to all pods in this namespace)\n");
        }
        some => out.push_str(&format!("    {some}\n")),
    }
    let types: Vec<&str> = list(&spec["policyTypes"]).iter().filter_map(Value::as_str).collect();
    for direction in [&INGRESS, &EGRESS] {
        if types.contains(&direction.kind) {
            out.push_str(&format!("  Allowing {} traffic:\n", direction.name));
            out.push_str(&rules(direction, list(&spec[direction.name])));
        } else {
            out.push_str(&format!("  Not affecting {} traffic\n", direction.name));
        }
    }
    let types = types.join(", ");
    out.push_str(&format!("  Policy Types: {}\n", if types.is_empty() { "<none>" } else { &types }));
    out
}

struct Direction {
    kind: &'static str,
    name: &'static str,
    peers: &'static str,
    title: &'static str,
    unrestricted: &'static str,
}

const INGRESS: Direction =
    Direction { kind: "Ingress", name: "ingress", peers: "from", title: "From", unrestricted: "source" };
const EGRESS: Direction =
    Direction { kind: "Egress", name: "egress", peers: "to", title: "To", unrestricted: "destination" };

fn rules(direction: &Direction, rules: &[Value]) -> String {
    if rules.is_empty() {
        return format!("    <none> (Selected pods are isolated for {} connectivity)\n", direction.name);
    }
    let one = |rule: &Value| {
        let mut out = ports(list(&rule["ports"]));
        let peers = list(&rule[direction.peers]);
        let title = direction.title;
        if peers.is_empty() {
            out.push_str(&format!("    {title}: <any> (traffic not restricted by {})\n", direction.unrestricted));
        }
        for peer in peers {
            out.push_str(&format!("    {title}:\n"));
            for (name, field) in [("NamespaceSelector", "namespaceSelector"), ("PodSelector", "podSelector")] {
                if peer[field].is_object() {
                    out.push_str(&format!("      {name}: {}\n", selector(&peer[field])));
                }
            }
            let block = &peer["ipBlock"];
            if block.is_object() && peer["podSelector"].is_null() && peer["namespaceSelector"].is_null() {
                let except: Vec<&str> = list(&block["except"]).iter().filter_map(Value::as_str).collect();
                let cidr = text(block, "cidr");
                out.push_str(&format!("      IPBlock:\n        CIDR: {cidr}\n        Except: {}\n", except.join(", ")));
            }
        }
        out
    };
    rules.iter().map(one).collect::<Vec<_>>().join("    ----------\n")
}

fn ports(ports: &[Value]) -> String {
    if ports.is_empty() {
        return "    To Port: <any> (traffic allowed to all ports)\n".into();
    }
    let one = |port: &Value| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let number = show(&port["port"]);
        match port["endPort"].as_i64() {
            Some(end) => format!("    To Port Range: {number}-{end}/{protocol}\n"),
            None => format!("    To Port: {number}/{protocol}\n"),
        }
    };
    ports.iter().map(one).collect()
}

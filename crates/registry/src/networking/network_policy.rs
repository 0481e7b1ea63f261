//! NetworkPolicies.

use ferry_meta::{FieldErrors, names};
use ferry_semantics::cidr;
use serde_json::{Value, json};

use crate::check;
use crate::core::warnings;
use crate::cursor::{Cursor, Report, default_absent, maps_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct NetworkPolicy(pub Plain);

impl Strategy for NetworkPolicy {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let spec = Cursor::root(object).get("spec");
        let mut found = Vec::new();
        for (list, peers) in [("ingress", "from"), ("egress", "to")] {
            for peer in spec.items(list).iter().flat_map(|rule| rule.items(peers)) {
                let block = peer.get("ipBlock");
                if block.exists() {
                    found.extend(warnings::network(&block.at("cidr"), block.text("cidr")));
                }
                for except in block.items("except") {
                    found.extend(warnings::network(&except.path, except.as_text()));
                }
            }
        }
        found
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        for list in ["ingress", "egress"] {
            for rule in maps_mut(spec, list) {
                maps_mut(rule, "ports").for_each(|port| default_absent(port, "protocol", "TCP"));
            }
        }
        let has = |key: &str| spec.get(key).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if !has("policyTypes") {
            let kinds = if has("egress") { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            spec.insert("policyTypes".into(), kinds);
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        check::label_selector(&mut errors, &spec.get("podSelector"));
        // What is missing altogether is found by a later pass.
        let mut later = FieldErrors::new();
        for (list, peers) in [("ingress", "from"), ("egress", "to")] {
            for rule in spec.items(list) {
                rule.items("ports").iter().for_each(|port| one_port(&mut errors, port));
                rule.items(peers).iter().for_each(|peer| one_peer(&mut errors, &mut later, peer));
            }
        }
        let kinds = spec.items("policyTypes");
        if kinds.len() > 2 {
            let detail = "may not specify more than two policyTypes";
            errors.invalid(spec.at("policyTypes"), spec.raw("policyTypes").clone(), detail);
            errors.extend(later);
            return errors;
        }
        for kind in kinds.iter().filter(|kind| !["Ingress", "Egress"].contains(&kind.as_text())) {
            errors.unsupported(kind.path.clone(), kind.as_text(), &["Ingress", "Egress"]);
        }
        errors.extend(later);
        errors
    }
}

fn one_port(errors: &mut FieldErrors, port: &Cursor<'_>) {
    let protocols = ["TCP", "UDP", "SCTP"];
    if let Some(protocol) = port.raw("protocol").as_str().filter(|p| !protocols.contains(p)) {
        errors.unsupported(port.at("protocol"), protocol, &protocols);
    }
    let end = port.int("endPort");
    match port.raw("port") {
        Value::Null => {
            if let Some(end) = end {
                errors.invalid(port.at("endPort"), end, "may not be specified when `port` is not specified");
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                errors.invalid(port.at("endPort"), end, "may not be specified when `port` is non-numeric");
            }
            errors.reasons(port.at("port"), name, names::port_name(name));
        }
        number => {
            let number = number.as_i64().unwrap_or_default();
            for reason in names::port_number(number) {
                errors.invalid(port.at("port"), number, reason);
            }
            let Some(end) = end else { return };
            if end < number {
                errors.invalid(port.at("endPort"), end, "must be greater than or equal to `port`");
            }
            for reason in names::port_number(end) {
                errors.invalid(port.at("endPort"), end, reason);
            }
        }
    }
}

fn one_peer(errors: &mut FieldErrors, later: &mut FieldErrors, peer: &Cursor<'_>) {
    let (pods, namespaces, block) = (peer.get("podSelector"), peer.get("namespaceSelector"), peer.get("ipBlock"));
    check::label_selector(errors, &pods);
    check::label_selector(errors, &namespaces);
    if block.exists() {
        ip_block(errors, later, &block);
    }
    match [&pods, &namespaces, &block].iter().filter(|part| part.exists()).count() {
        0 => errors.required(peer.path.clone(), "must specify a peer"),
        count if count > 1 && block.exists() => {
            errors.forbidden(peer.path.clone(), "may not specify both ipBlock and another peer");
        }
        _ => {}
    }
}

fn ip_block(errors: &mut FieldErrors, later: &mut FieldErrors, block: &Cursor<'_>) {
    let text = block.text("cidr");
    if text.is_empty() {
        return later.required(block.at("cidr"), "");
    }
    check::cidr(errors, block.at("cidr"), text);
    let Some(whole) = cidr::parse(text) else { return };
    for except in block.items("except") {
        check::cidr(errors, except.path.clone(), except.as_text());
        let Some(part) = cidr::parse(except.as_text()) else { continue };
        if !whole.contains(&part) || whole.prefix_len() >= part.prefix_len() {
            errors.invalid(except.path.clone(), except.as_text(), "must be a strict subset of `cidr`");
        }
    }
}

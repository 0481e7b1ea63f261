//! EndpointSlices: the addresses behind a Service.

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors, names, object};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::cells;
use crate::check;
use crate::core::endpoints::{PROTOCOLS, first_three, reachable};
use crate::core::warnings::address;
use crate::cursor::{Cursor, Report, default_absent, maps_mut};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct EndpointSlice(pub Plain);

impl Strategy for EndpointSlice {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let slice = Cursor::root(object);
        let mut found = Vec::new();
        if old.is_none() && slice.text("addressType") == "FQDN" {
            found.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        let by = object::labels(object).get("endpointslice.kubernetes.io/managed-by").and_then(Value::as_str);
        // What the controllers make is in its right form.
        let own = ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
        if by.is_some_and(|by| own.contains(&by)) {
            return found;
        }
        for endpoint in slice.items("endpoints") {
            found.extend(endpoint.items("addresses").iter().filter_map(|one| address(&one.path, one.as_text())));
        }
        found
    }

    fn default(&self, object: &mut Value) {
        let none = &mut Map::new();
        for port in maps_mut(object.as_object_mut().unwrap_or(none), "ports") {
            if port.get("name").is_none_or(Value::is_null) {
                port.insert("name".into(), "".into());
            }
            default_absent(port, "protocol", "TCP");
        }
    }

    fn prepare_create(&self, context: &Context<'_>, object: &mut Value) {
        common::prepare_create(self.has_status(), self.has_generation(), context, object);
        drop_topology(object);
    }

    /// Labels tell consumers something too, and so move the generation. So does a field that is dropped afterwards.
    fn prepare_update(&self, _context: &Context<'_>, object: &mut Value, old: &Value) {
        let changed = !common::same_but(object, old, &["metadata"]) || object::labels(object) != object::labels(old);
        common::set_generation(object, common::generation(old) + i64::from(changed));
        if object.get("endpoints") != old.get("endpoints") {
            drop_topology(object);
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let slice = Cursor::root(object);
        ports(&mut errors, &slice);
        let counts = endpoints(&mut errors, &slice);
        address_type(&mut errors, &slice);
        errors.extend(counts);
        errors
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        // One that is not known is told first, one that is missing where it is found on creation too.
        let given = !new.text("addressType").is_empty();
        if given {
            address_type(&mut errors, &new);
        }
        ports(&mut errors, &new);
        let mut counts = FieldErrors::new();
        if new.raw("endpoints") != old.raw("endpoints") {
            counts = endpoints(&mut errors, &new);
        }
        if !given {
            address_type(&mut errors, &new);
        }
        if new.raw("addressType") != old.raw("addressType") {
            errors.invalid(new.at("addressType"), Value::Null, crate::cursor::IMMUTABLE);
        }
        errors.extend(counts);
        errors
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let slice = Cursor::root(object);
        let ports: Vec<String> = slice
            .items("ports")
            .iter()
            .map(|port| match (port.int("port"), port.raw("name").as_str()) {
                (Some(number), _) => number.to_string(),
                (None, Some(name)) => name.to_owned(),
                (None, None) => "*".to_owned(),
            })
            .collect();
        let addresses: Vec<String> = slice
            .items("endpoints")
            .iter()
            .flat_map(|e| e.texts("addresses").map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let shown = |all: &[String]| {
            let text = first_three(all);
            if text.is_empty() { "<unset>".to_owned() } else { text }
        };
        vec![
            object::name(object).into(),
            slice.text("addressType").into(),
            shown(&ports).into(),
            shown(&addresses).into(),
            cells::age(object, now).into(),
        ]
    }
}

/// The field of an older version is written by nobody any more.
fn drop_topology(object: &mut Value) {
    let none = &mut Map::new();
    for endpoint in maps_mut(object.as_object_mut().unwrap_or(none), "endpoints") {
        endpoint.remove("deprecatedTopology");
    }
}

fn address_type(errors: &mut FieldErrors, slice: &Cursor<'_>) {
    errors.one_of(slice.at("addressType"), slice.text("addressType"), &["FQDN", "IPv4", "IPv6"]);
}

fn ports(errors: &mut FieldErrors, slice: &Cursor<'_>) {
    let ports = slice.items("ports");
    if ports.len() > 20_000 {
        return errors.push(FieldError::too_many(&slice.at("ports"), ports.len(), 20_000));
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for port in ports {
        let name = port.text("name");
        if !name.is_empty() {
            errors.reasons(port.at("name"), name, names::dns1123_label(name));
        }
        if seen.contains(&name) {
            errors.duplicate(port.at("name"), name);
        } else {
            seen.insert(name);
        }
        if !PROTOCOLS.contains(&port.text("protocol")) {
            errors.unsupported(port.at("protocol"), port.text("protocol"), &PROTOCOLS);
        }
        if let Some(protocol) = port.raw("appProtocol").as_str() {
            errors.reasons(port.at("appProtocol"), protocol, names::qualified_name(protocol));
        }
    }
}

/// Counts are checked after everything else: they are what is returned.
fn endpoints(errors: &mut FieldErrors, slice: &Cursor<'_>) -> FieldErrors {
    let endpoints = slice.items("endpoints");
    if endpoints.len() > 1000 {
        errors.push(FieldError::too_many(&slice.at("endpoints"), endpoints.len(), 1000));
        return FieldErrors::new();
    }
    let mut counts = FieldErrors::new();
    for endpoint in &endpoints {
        for address in endpoint.items("addresses") {
            one_address(errors, endpoint, &address, slice.text("addressType"));
        }
        if let Some(node) = endpoint.raw("nodeName").as_str() {
            errors.reasons(endpoint.at("nodeName"), node, names::dns1123_subdomain(node));
        }
        if let Some(name) = endpoint.raw("hostname").as_str() {
            errors.reasons(endpoint.at("hostname"), name, names::dns1123_label(name));
        }
        hints(errors, &endpoint.get("hints"));
        match endpoint.array("addresses").len() {
            0 => counts.required(endpoint.at("addresses"), ""),
            many if many > 100 => counts.push(FieldError::too_many(&endpoint.at("addresses"), many, 100)),
            _ => {}
        }
    }
    counts
}

fn one_address(errors: &mut FieldErrors, endpoint: &Cursor<'_>, address: &Cursor<'_>, kind: &str) {
    let text = address.as_text();
    let before = errors.len();
    match kind {
        "IPv4" => check::ip(errors, address.path.clone(), text),
        "IPv6" => check::canonical_ip(errors, address.path.clone(), text),
        "FQDN" => return domain_name(errors, address),
        _ => return,
    }
    if errors.len() > before {
        return;
    }
    if text.contains(':') != (kind == "IPv6") {
        errors.invalid(endpoint.at("addresses"), text, format!("must be an {kind} address"));
    }
    reachable(errors, address.path.clone(), text);
}

fn domain_name(errors: &mut FieldErrors, address: &Cursor<'_>) {
    let name = address.as_text();
    if name.is_empty() {
        return errors.required(address.path.clone(), "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let reasons = names::dns1123_subdomain(name);
    if !reasons.is_empty() {
        errors.invalid(address.path.clone(), name, reasons.join(","));
    } else if !name.contains('.') {
        errors.invalid(address.path.clone(), name, "should be a domain with at least two segments separated by dots");
    }
}

fn hints(errors: &mut FieldErrors, hints: &Cursor<'_>) {
    type Check = fn(&str) -> Vec<String>;
    for (list, check) in [("forZones", names::label_value as Check), ("forNodes", names::dns1123_subdomain)] {
        let items = hints.items(list);
        if items.len() > 8 {
            return errors.push(FieldError::too_many(&hints.at(list), items.len(), 8));
        }
        let mut seen: HashSet<&str> = HashSet::new();
        for item in items {
            let name = item.text("name");
            if seen.contains(&name) {
                errors.duplicate(item.at("name"), name);
            } else {
                seen.insert(name);
            }
            errors.reasons(item.at("name"), name, check(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_moves_the_generation() {
        let user = UserInfo::new("u", &[]);
        let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
        let strategy = EndpointSlice(Plain { has_generation: true, ..<Plain as Default>::default() });
        let slice = |endpoint: Value, metadata: Value| json!({"metadata": metadata, "addressType": "IPv4", "endpoints": [endpoint]});
        let mut old = slice(json!({"addresses": ["1.2.3.4"], "deprecatedTopology": {"a": "b"}}), json!({"name": "e"}));
        strategy.prepare_create(&context, &mut old);
        assert_eq!(old["endpoints"], json!([{"addresses": ["1.2.3.4"]}]));
        for (endpoint, metadata, generation) in [
            (json!({"addresses": ["1.2.3.4"]}), json!({"annotations": {"a": "b"}}), 1),
            (json!({"addresses": ["1.2.3.4"]}), json!({"labels": {"a": "b"}}), 2),
            (json!({"addresses": ["1.2.3.4"], "zone": "z"}), json!({}), 2),
            // It is gone afterwards, and has been a change all the same.
            (json!({"addresses": ["1.2.3.4"], "deprecatedTopology": {"a": "b"}}), json!({}), 2),
        ] {
            let mut new = slice(endpoint, metadata);
            strategy.prepare_update(&context, &mut new, &old);
            assert_eq!(common::generation(&new), generation, "{new}");
            assert_eq!(new["endpoints"][0].get("deprecatedTopology"), None, "{new}");
        }
    }
}

//! The rules of Services.

use std::collections::HashSet;

use std::net::IpAddr;

use ferry_meta::{FieldError, FieldErrors, Path, names};
use serde_json::{Value, json};

use super::endpoints::{PROTOCOLS, reachable};
use super::service::{is_external, is_headless, needs_health_check_port};
use crate::check;
use crate::cursor::{Cursor, Report};

const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

pub(super) fn validate(service: &Cursor<'_>, old: Option<&Cursor<'_>>) -> FieldErrors {
    let mut found = FieldErrors::new();
    let errors = &mut found;
    let spec = service.get("spec");
    let headless = is_headless(service);
    let kind = spec.text("type");
    if spec.array("ports").is_empty() && !(headless && kind == "ClusterIP") && kind != "ExternalName" {
        errors.required(spec.at("ports"), "");
    }
    by_type(errors, &spec, headless);
    let ports = spec.items("ports");
    let mut seen: HashSet<&str> = HashSet::new();
    for port in &ports {
        one_port(errors, port, ports.len() > 1, &mut seen);
    }
    errors.extend(crate::object_meta::label_errors(spec.map("selector"), &spec.at("selector")));
    errors.one_of(spec.at("sessionAffinity"), spec.text("sessionAffinity"), &["ClientIP", "None"]);
    affinity(errors, &spec);
    if kind != "ExternalName" {
        cluster_ips(errors, service, old);
    }
    let known: HashSet<&str> = old.map(|old| old.get("spec").texts("externalIPs").collect()).unwrap_or_default();
    for ip in spec.items("externalIPs") {
        let before = errors.len();
        if !known.contains(&ip.as_text()) {
            check::ip(errors, ip.path.clone(), ip.as_text());
        }
        if errors.len() == before {
            reachable(errors, ip.path.clone(), ip.as_text());
        }
    }
    errors.one_of(spec.at("type"), kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    port_conflicts(errors, &ports, kind);
    source_ranges(errors, service);
    if spec.has("allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        errors.forbidden(spec.at("allocateLoadBalancerNodePorts"), ONLY_LOAD_BALANCER);
    }
    load_balancer_class(errors, &spec);
    traffic(errors, service);
    found
}

fn by_type(errors: &mut FieldErrors, spec: &Cursor<'_>, headless: bool) {
    let kind = spec.text("type");
    if headless && ["LoadBalancer", "NodePort"].contains(&kind) {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.invalid(spec.at("clusterIPs").index(0), "None", detail);
    }
    if kind != "ExternalName" {
        return;
    }
    for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let set = spec.has(key) && spec.raw(key).as_array().is_none_or(|items| !items.is_empty());
        if set {
            errors.forbidden(spec.at(key), "may not be set for ExternalName services");
        }
    }
    let name = spec.text("externalName");
    errors.named(spec.at("externalName"), name.strip_suffix('.').unwrap_or(name), names::dns1123_subdomain);
}

fn one_port<'a>(errors: &mut FieldErrors, port: &Cursor<'a>, named: bool, seen: &mut HashSet<&'a str>) {
    let name = port.text("name");
    if named && name.is_empty() {
        errors.required(port.at("name"), "");
    } else if !name.is_empty() {
        errors.reasons(port.at("name"), name, names::dns1123_label(name));
        if seen.contains(&name) {
            errors.duplicate(port.at("name"), name);
        }
        seen.insert(name);
    }
    for reason in names::port_number(port.number("port")) {
        errors.invalid(port.at("port"), port.number("port"), reason);
    }
    errors.one_of(port.at("protocol"), port.text("protocol"), &PROTOCOLS);
    check::port_number_or_name(errors, &port.get("targetPort"));
    if let Some(protocol) = port.raw("appProtocol").as_str() {
        errors.reasons(port.at("appProtocol"), protocol, names::qualified_name(protocol));
    }
}

fn affinity(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let config = spec.get("sessionAffinityConfig");
    match spec.text("sessionAffinity") {
        "None" if config.exists() => {
            errors.forbidden(config.path, "must not be set when session affinity is None");
        }
        "ClientIP" => {
            let client = config.get("clientIP");
            let missing = "when session affinity type is ClientIP";
            if !config.exists() {
                errors.required(config.path, missing);
            } else if !client.exists() {
                errors.required(client.path, missing);
            } else {
                match client.int("timeoutSeconds") {
                    None => errors.required(client.at("timeoutSeconds"), missing),
                    Some(seconds) if !(1..=86400).contains(&seconds) => {
                        let detail = "must be greater than 0 and less than 86400";
                        errors.invalid(client.at("timeoutSeconds"), seconds, detail);
                    }
                    Some(_) => {}
                }
            }
        }
        _ => {}
    }
}

pub(super) fn cluster_ips(errors: &mut FieldErrors, service: &Cursor<'_>, old: Option<&Cursor<'_>>) {
    let spec = service.get("spec");
    let (single, list) = (spec.text("clusterIP"), spec.at("clusterIPs"));
    let all: Vec<&str> = spec.texts("clusterIPs").collect();
    match (single, all.first()) {
        ("", Some(_)) => errors.invalid(list.clone(), json!(all), "must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => errors.required(list.clone(), ""),
        (one, Some(first)) if one != *first => {
            errors.invalid(list.clone(), json!(all), "first value must match `clusterIP`");
        }
        _ => {}
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for family in spec.items("ipFamilies") {
        let text = family.as_text();
        if !["IPv4", "IPv6"].contains(&text) {
            errors.unsupported(family.path.clone(), text, &["IPv4", "IPv6"]);
        }
        if seen.contains(&text) {
            errors.duplicate(family.path.clone(), text);
        }
        seen.insert(text);
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if let Some(policy) = spec.raw("ipFamilyPolicy").as_str().filter(|p| !policies.contains(p)) {
        errors.unsupported(spec.at("ipFamilyPolicy"), policy, &policies);
    }
    let known: HashSet<&str> = old.map(|old| old.get("spec").texts("clusterIPs").collect()).unwrap_or_default();
    let before = errors.len();
    for (index, ip) in all.iter().enumerate() {
        if index == 0 && *ip == "None" {
            if all.len() > 1 {
                errors.invalid(list.clone(), json!(all), "'None' must be the first and only value");
            }
        } else if !known.contains(ip) {
            check::ip(errors, list.index(index), ip);
        }
    }
    let bad = errors.len() > before;
    if all.len() > 2 {
        errors.invalid(list.clone(), json!(all), "may only hold up to 2 values");
    }
    if bad {
        return;
    }
    let six = |ip: &str| matches!(ip.parse::<IpAddr>(), Ok(IpAddr::V6(_)));
    if all.len() > 1 && all.iter().filter(|ip| six(ip)).count() != 1 {
        errors.invalid(list.clone(), json!(all), "may specify no more than one IP for each IP family");
    }
    if !is_headless(service) {
        for (index, (ip, family)) in all.iter().zip(spec.texts("ipFamilies")).enumerate() {
            if (family == "IPv4" && six(ip)) || (family == "IPv6" && !six(ip)) {
                let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
                errors.invalid(list.index(index), *ip, detail);
            }
        }
    }
}

fn port_conflicts(errors: &mut FieldErrors, ports: &[Cursor<'_>], kind: &str) {
    if kind == "ClusterIP" {
        for port in ports.iter().filter(|p| p.number("nodePort") != 0) {
            errors.forbidden(port.at("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut seen: HashSet<(i64, &str)> = HashSet::new();
    for port in ports.iter().filter(|p| p.number("nodePort") != 0) {
        let key = (port.number("nodePort"), port.text("protocol"));
        if seen.contains(&key) {
            errors.duplicate(port.at("nodePort"), key.0);
        }
        seen.insert(key);
    }
    seen.clear();
    for port in ports {
        let key = (port.number("port"), port.text("protocol"));
        if seen.contains(&key) {
            let shown = json!({"protocol": key.1, "port": key.0});
            let error = FieldError::duplicate(&port.path, shown.clone());
            errors.push(error.shown_as(crate::internal::show("ServicePort", &shown)));
        }
        seen.insert(key);
    }
}

fn source_ranges(errors: &mut FieldErrors, service: &Cursor<'_>) {
    let spec = service.get("spec");
    let balanced = spec.text("type") == "LoadBalancer";
    // Upstream spells this field with a capital in its errors.
    let list = spec.at("LoadBalancerSourceRanges");
    let ranges: Vec<&str> = spec.texts("loadBalancerSourceRanges").collect();
    if !ranges.is_empty() {
        if !balanced {
            errors.forbidden(list.clone(), ONLY_LOAD_BALANCER);
        }
        for (index, range) in ranges.iter().enumerate() {
            check::cidr(errors, list.index(index), range.trim());
        }
        return;
    }
    let annotations = service.get("metadata").get("annotations");
    if annotations.has(RANGES) {
        let path = annotations.path.key(RANGES);
        if !balanced {
            errors.forbidden(path.clone(), ONLY_LOAD_BALANCER);
        }
        for range in annotations.text(RANGES).split(',').map(str::trim).filter(|r| !r.is_empty()) {
            check::cidr(errors, path.clone(), range);
        }
    }
}

fn load_balancer_class(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let Some(class) = spec.raw("loadBalancerClass").as_str() else { return };
    let path = spec.at("loadBalancerClass");
    if spec.text("type") == "LoadBalancer" {
        errors.reasons(path, class, names::qualified_name(class));
    } else {
        errors.forbidden(path, ONLY_LOAD_BALANCER);
    }
}

fn traffic(errors: &mut FieldErrors, service: &Cursor<'_>) {
    let spec = service.get("spec");
    let policy = spec.text("externalTrafficPolicy");
    if is_external(&spec) {
        errors.one_of(spec.at("externalTrafficPolicy"), policy, &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.invalid(spec.at("externalTrafficPolicy"), policy, detail);
    }
    let port = spec.number("healthCheckNodePort");
    if needs_health_check_port(service) {
        for reason in names::port_number(port).into_iter().filter(|_| port != 0) {
            errors.invalid(spec.at("healthCheckNodePort"), port, reason);
        }
    } else if port != 0 {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(spec.at("healthCheckNodePort"), port, detail);
    }
    if let Some(policy) = spec.raw("internalTrafficPolicy").as_str().filter(|p| !["Cluster", "Local"].contains(p)) {
        errors.unsupported(spec.at("internalTrafficPolicy"), policy, &["Cluster", "Local"]);
    }
    let spread = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(value) = spec.raw("trafficDistribution").as_str().filter(|v| !spread.contains(v)) {
        errors.unsupported(spec.at("trafficDistribution"), value, &spread);
    }
}

/// What an update may not change.
pub(super) fn changes(new: &Cursor<'_>, old: &Cursor<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (spec, was) = (new.get("spec"), old.get("spec"));
    if spec.text("type") != "ExternalName" && was.text("type") != "ExternalName" {
        if !(is_headless(new) && is_headless(old)) {
            stays(&mut errors, &spec, &was, "clusterIPs", "primary clusterIP can not be unset", "clusterIP");
        }
        if !is_headless(new) && !is_headless(old) {
            stays(&mut errors, &spec, &was, "ipFamilies", "primary ipFamily can not be unset", "ipFamily");
        }
    }
    let class = "loadBalancerClass";
    if [&spec, &was].iter().all(|s| s.text("type") == "LoadBalancer") && spec.raw(class) != was.raw(class) {
        errors.invalid(spec.at(class), spec.raw(class).clone(), "may not change once set");
    }
    // Looked at here and again with all else.
    load_balancer_class(&mut errors, &spec);
    if needs_health_check_port(new) && needs_health_check_port(old) {
        let port = "healthCheckNodePort";
        if spec.raw(port) != was.raw(port) {
            errors.forbidden(spec.at(port), crate::cursor::IMMUTABLE);
        }
    }
    errors
}

/// The first of a list stays; a second one may come, and go only with the policy that says so.
fn stays(errors: &mut FieldErrors, spec: &Cursor<'_>, was: &Cursor<'_>, list: &str, unset: &str, what: &str) {
    let (new, old) = (spec.array(list), was.array(list));
    let value = || spec.raw(list).clone();
    let path: Path = spec.at(list).index(0);
    if new.len() == old.len() {
        for (index, _) in new.iter().zip(old).enumerate().filter(|(_, (a, b))| a != b) {
            let at = if list == "clusterIPs" { spec.at(list).index(index) } else { path.clone() };
            errors.invalid(at, value(), "may not change once set");
            // All are shown each time.
            if errors.is_full() {
                break;
            }
        }
        return;
    }
    if new.is_empty() {
        errors.invalid(path.clone(), Value::Null, unset);
    }
    if let (Some(a), Some(b)) = (new.first(), old.first())
        && a != b
    {
        errors.invalid(path, value(), "may not change once set");
    }
    if old.len() > new.len() && new.len() == 1 && spec.text("ipFamilyPolicy") != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.invalid(spec.at("ipFamilyPolicy"), spec.raw("ipFamilyPolicy").clone(), detail);
    }
}

pub(super) fn status(new: &Cursor<'_>, old: &Cursor<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let balancer = new.get("status").get("loadBalancer");
    let ingress = balancer.items("ingress");
    if new.get("spec").text("type") != "LoadBalancer" && !ingress.is_empty() {
        errors.forbidden(balancer.at("ingress"), "may only be used when `spec.type` is 'LoadBalancer'");
        return errors;
    }
    let before = old.get("status").get("loadBalancer");
    let known: HashSet<&str> = before.array("ingress").iter().filter_map(|i| i["ip"].as_str()).collect();
    for one in ingress {
        let (ip, mode, name) = (one.text("ip"), one.raw("ipMode").as_str(), one.text("hostname"));
        if !ip.is_empty() && !known.contains(&ip) {
            check::ip(&mut errors, one.at("ip"), ip);
        }
        match (mode, ip) {
            (None, "") => {}
            (None, _) => errors.required(one.at("ipMode"), "must be specified when `ip` is set"),
            (Some(_), "") => errors.forbidden(one.at("ipMode"), "may not be specified when `ip` is not set"),
            (Some(mode), _) if !["Proxy", "VIP"].contains(&mode) => {
                errors.unsupported(one.at("ipMode"), mode, &["Proxy", "VIP"]);
            }
            _ => {}
        }
        if !name.is_empty() {
            errors.reasons(one.at("hostname"), name, names::dns1123_subdomain(name));
            if name.parse::<IpAddr>().is_ok() {
                errors.invalid(one.at("hostname"), name, "must be a DNS name, not an IP address");
            }
        }
    }
    errors
}

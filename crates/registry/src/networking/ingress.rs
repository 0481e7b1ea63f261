//! Ingresses.

use std::net::IpAddr;

use ferry_meta::{FieldErrors, Path, names, object};
use jiff::Timestamp;
use serde_json::Value;

use crate::cells;
use crate::core::service::load_balancer;
use crate::core::warnings;
use crate::cursor::{Cursor, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct Ingress(pub Plain);

const CLASS: &str = "kubernetes.io/ingress.class";

impl Strategy for Ingress {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let ingress = Cursor::root(object);
        let spec = ingress.get("spec");
        validate_spec(&mut errors, &spec);
        let annotations = ingress.get("metadata").get("annotations");
        let class = annotations.text(CLASS);
        if annotations.has(CLASS) && spec.has("ingressClassName") && class != spec.text("ingressClassName") {
            let path = Path::new("annotations").child(CLASS);
            errors.invalid(path, class, "must match `ingressClassName` when both are specified");
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let ingress = Cursor::root(object);
        if context.subresource == "status" {
            status(&mut errors, &ingress.get("status").get("loadBalancer"));
        } else {
            validate_spec(&mut errors, &ingress.get("spec"));
        }
        errors
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let annotated = object::annotations(object).contains_key(CLASS);
        if context.subresource.is_empty() && old.is_none() && annotated {
            return vec![
                "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
                    .into(),
            ];
        }
        if context.subresource == "status" { warnings::balancer(&Cursor::root(object)) } else { Vec::new() }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let ingress = Cursor::root(object);
        let spec = ingress.get("spec");
        let class = if spec.has("ingressClassName") { spec.text("ingressClassName") } else { "<none>" };
        vec![
            object::name(object).into(),
            class.into(),
            hosts(&spec).into(),
            load_balancer(&ingress.get("status").get("loadBalancer")).join(",").into(),
            (if spec.array("tls").is_empty() { "80" } else { "80, 443" }).into(),
            cells::age(object, now).into(),
        ]
    }
}

fn hosts(spec: &Cursor<'_>) -> String {
    let rules = spec.items("rules");
    let (mut list, mut more) = (Vec::new(), false);
    for rule in &rules {
        more |= list.len() == 3;
        if !more && !rule.text("host").is_empty() {
            list.push(rule.text("host"));
        }
    }
    match (list.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, true) => format!("{} + {} more...", list.join(","), rules.len() - 3),
        (false, false) => list.join(","),
    }
}

fn validate_spec(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let rules = spec.items("rules");
    if rules.is_empty() && !spec.has("defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.invalid(spec.path.clone(), spec.raw("rules").clone(), detail);
    }
    if spec.has("defaultBackend") {
        backend(errors, &spec.get("defaultBackend"));
    }
    for rule in rules {
        let host = rule.text("host");
        if !host.is_empty() {
            if host.parse::<IpAddr>().is_ok() {
                errors.invalid(rule.at("host"), host, "must be a DNS name, not an IP address");
            }
            errors.reasons(rule.at("host"), host, host_name(host));
        }
        let http = rule.get("http");
        if http.exists() {
            let paths = http.items("paths");
            if paths.is_empty() {
                errors.required(http.at("paths"), "");
            }
            paths.iter().for_each(|path| one_path(errors, path));
        }
    }
    for tls in spec.items("tls") {
        for host in tls.items("hosts") {
            errors.reasons(host.path.clone(), host.as_text(), host_name(host.as_text()));
        }
        let secret = tls.text("secretName");
        if !secret.is_empty() {
            errors.reasons(tls.at("secretName"), secret, names::dns1123_subdomain(secret));
        }
    }
    if let Some(class) = spec.raw("ingressClassName").as_str() {
        errors.reasons(spec.at("ingressClassName"), class, names::dns1123_subdomain(class));
    }
}

fn host_name(host: &str) -> Vec<String> {
    if host.contains('*') { names::wildcard_dns1123_subdomain(host) } else { names::dns1123_subdomain(host) }
}

fn one_path(errors: &mut FieldErrors, path: &Cursor<'_>) {
    let text = path.text("path");
    let absolute = "must be an absolute path";
    match path.raw("pathType").as_str() {
        None => return errors.required(path.at("pathType"), "pathType must be specified"),
        Some("Exact" | "Prefix") => {
            if !text.starts_with('/') {
                errors.invalid(path.at("path"), text, absolute);
            }
            for odd in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|odd| text.contains(odd)) {
                errors.invalid(path.at("path"), text, format!("must not contain '{odd}'"));
            }
            for odd in ["/..", "/."].into_iter().filter(|odd| text.ends_with(odd)) {
                errors.invalid(path.at("path"), text, format!("cannot end with '{odd}'"));
            }
        }
        Some("ImplementationSpecific") => {
            if !text.is_empty() && !text.starts_with('/') {
                errors.invalid(path.at("path"), text, absolute);
            }
        }
        Some(other) => {
            errors.unsupported(path.at("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]);
        }
    }
    backend(errors, &path.get("backend"));
}

fn backend(errors: &mut FieldErrors, backend: &Cursor<'_>) {
    let (resource, service) = (backend.get("resource"), backend.get("service"));
    match (resource.exists(), service.exists()) {
        (true, true) => errors.invalid(backend.path.clone(), "", "cannot set both resource and service backends"),
        (true, false) => reference(errors, &resource),
        (false, true) => {
            errors.named(service.at("name"), service.text("name"), names::dns1123_label);
            let port = service.get("port");
            match (port.text("name"), port.number("number")) {
                ("", 0) => errors.required(backend.path.clone(), "port name or number is required"),
                ("", number) => {
                    for reason in names::port_number(number) {
                        errors.invalid(port.at("number"), number, reason);
                    }
                }
                (name, 0) => errors.reasons(port.at("name"), name, names::port_name(name)),
                _ => errors.invalid(backend.path.clone(), "", "cannot set both port name & port number"),
            }
        }
        (false, false) => errors.invalid(backend.path.clone(), "", "resource or service backend is required"),
    }
}

/// An object in the same namespace, or parameters of a class.
pub fn reference(errors: &mut FieldErrors, reference: &Cursor<'_>) {
    if let Some(group) = reference.raw("apiGroup").as_str() {
        errors.reasons(reference.at("apiGroup"), group, names::dns1123_subdomain(group));
    }
    for key in ["kind", "name"] {
        errors.named(reference.at(key), reference.text(key), names::path_segment);
    }
}

fn status(errors: &mut FieldErrors, balancer: &Cursor<'_>) {
    for one in balancer.items("ingress") {
        if !one.text("ip").is_empty() {
            crate::check::ip(errors, one.at("ip"), one.text("ip"));
        }
        let name = one.text("hostname");
        if !name.is_empty() {
            errors.reasons(one.at("hostname"), name, names::dns1123_subdomain(name));
            if name.parse::<IpAddr>().is_ok() {
                errors.invalid(one.at("hostname"), name, "must be a DNS name, not an IP address");
            }
        }
    }
}

//! The rules of a pod's spec, shared by pods and the templates of all workloads.

use std::collections::{HashMap, HashSet};

use ferry_meta::{FieldErrors, Path, names};
use serde_json::Value;

use super::{container, resources, scheduling, security, volume};
use crate::check;
use crate::cursor::{Cursor, Report};

/// What the rules of a part need to know of the whole.
pub struct Whole<'a> {
    /// A pod itself, not the template of one.
    pub is_pod: bool,
    pub host_users: bool,
    pub grace_period: Option<i64>,
    pub restart_policy: &'a str,
    pub os: &'a str,
    /// The well-formed volumes by name.
    pub volumes: HashMap<&'a str, &'a Value>,
    pub claims: HashSet<&'a str>,
}

/// The containers of all three kinds, in the order upstream visits them.
pub fn all_containers<'a>(spec: &Cursor<'a>) -> Vec<Cursor<'a>> {
    ["initContainers", "containers", "ephemeralContainers"].iter().flat_map(|key| spec.items(key)).collect()
}

/// `metadata` is that of the pod or template; null where there is none.
pub fn validate(errors: &mut FieldErrors, spec: &Cursor<'_>, metadata: &Cursor<'_>, is_pod: bool) {
    if !spec.has("terminationGracePeriodSeconds") {
        errors.required(spec.at("terminationGracePeriodSeconds"), "");
    }
    let volumes = volume::validate_all(errors, spec, metadata);
    let whole = Whole {
        is_pod,
        host_users: spec.flag("hostUsers") != Some(false),
        grace_period: spec.int("terminationGracePeriodSeconds"),
        restart_policy: spec.text("restartPolicy"),
        os: spec.get("os").text("name"),
        volumes,
        claims: spec.array("resourceClaims").iter().filter_map(|c| c["name"].as_str()).collect(),
    };
    resource_claims(errors, spec, metadata);
    container::validate_containers(errors, spec, &whole);
    container::validate_init_containers(errors, spec, &whole);
    container::validate_ephemeral_containers(errors, spec, &whole);
    resources::validate_pod_level(errors, spec, &whole);
    host_network_ports(errors, spec, is_pod);
    errors.one_of(spec.at("restartPolicy"), spec.text("restartPolicy"), &["Always", "OnFailure", "Never"]);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.one_of(spec.at("dnsPolicy"), spec.text("dnsPolicy"), &policies);
    errors.extend(crate::object_meta::label_errors(spec.map("nodeSelector"), &spec.at("nodeSelector")));
    security::validate_pod(errors, spec);
    if spec.is_true("shareProcessNamespace") && spec.is_true("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(spec.at("shareProcessNamespace"), true, detail);
    }
    scheduling::affinity(errors, &spec.get("affinity"));
    dns_config(errors, spec);
    for gate in spec.items("readinessGates") {
        let kind = gate.text("conditionType");
        errors.reasons(gate.at("conditionType"), kind, names::qualified_name(kind));
    }
    scheduling_gates(errors, spec);
    scheduling::spread(errors, spec);
    security::windows_host_process(errors, spec);
    security::host_users(errors, spec);
    hostname_override(errors, spec);
    let account = spec.text("serviceAccountName");
    if !account.is_empty() {
        errors.reasons(spec.at("serviceAccountName"), account, names::dns1123_subdomain(account));
    }
    let node = spec.text("nodeName");
    if !node.is_empty() {
        errors.reasons(spec.at("nodeName"), node, names::dns1123_subdomain(node));
    }
    if let Some(seconds) = spec.int("activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.invalid(spec.at("activeDeadlineSeconds"), seconds, names::in_range(1, i32::MAX.into()));
    }
    for key in ["hostname", "subdomain"] {
        let text = spec.text(key);
        if !text.is_empty() {
            errors.reasons(spec.at(key), text, names::dns1123_label(text));
        }
    }
    scheduling::tolerations(errors, spec, false);
    host_aliases(errors, spec);
    let class = spec.text("priorityClassName");
    if !class.is_empty() {
        errors.reasons(spec.at("priorityClassName"), class, names::dns1123_subdomain(class));
    }
    if let Some(class) = spec.raw("runtimeClassName").as_str() {
        errors.reasons(spec.at("runtimeClassName"), class, names::dns1123_subdomain(class));
    }
    if let Some(policy) = spec.raw("preemptionPolicy").as_str() {
        errors.one_of(spec.at("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
    resources::validate_overhead(errors, spec);
    security::operating_system(errors, spec);
    file_key_volumes(errors, spec);
}

fn resource_claims(errors: &mut FieldErrors, spec: &Cursor<'_>, metadata: &Cursor<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for claim in spec.items("resourceClaims") {
        if metadata.map("annotations").contains_key("kubernetes.io/config.mirror") {
            errors.forbidden(Path::root(), "static pods do not support resource claims");
            continue;
        }
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(claim.at("name"), "");
        } else if seen.contains(&name) {
            errors.duplicate(claim.at("name"), name);
        } else {
            errors.reasons(claim.at("name"), name, names::dns1123_label(name));
            seen.insert(name);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        match sources.iter().filter(|key| claim.has(key)).count() {
            0 => errors
                .push(shown_claim(&claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")),
            1 => {}
            _ => errors.push(shown_claim(
                &claim,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            )),
        }
        for key in sources.into_iter().filter(|key| claim.has(key)) {
            errors.reasons(claim.at(key), claim.text(key), names::dns1123_subdomain(claim.text(key)));
        }
    }
}

fn shown_claim(claim: &Cursor<'_>, detail: &str) -> ferry_meta::FieldError {
    ferry_meta::FieldError::invalid(&claim.path, claim.value.clone(), detail)
        .shown_as(crate::internal::show("PodResourceClaim", claim.value))
}

fn host_network_ports(errors: &mut FieldErrors, spec: &Cursor<'_>, is_pod: bool) {
    if !spec.is_true("hostNetwork") {
        return;
    }
    for container in spec.items("containers") {
        for port in container.items("ports") {
            let (host, inside) = (port.number("hostPort"), port.number("containerPort"));
            if (is_pod || host != 0) && host != inside {
                errors.invalid(port.at("hostPort"), host, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn dns_config(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let config = spec.get("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        if !config.exists() {
            return errors.required(config.path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if config.array("nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(config.at("nameservers"), detail);
        }
    }
    let nameservers = config.array("nameservers");
    if nameservers.len() > 3 {
        errors.invalid(config.at("nameservers"), nameservers.to_vec(), "must not have more than 3 nameservers");
    }
    for server in config.items("nameservers") {
        check::ip(errors, server.path.clone(), server.as_text());
    }
    let searches: Vec<&str> = config.texts("searches").collect();
    if searches.len() > 32 {
        errors.invalid(config.at("searches"), searches.clone(), "must not have more than 32 search paths");
    }
    if searches.join(" ").len() > 2048 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(config.at("searches"), searches, detail);
    }
    for search in config.items("searches").iter().filter(|s| s.as_text() != ".") {
        let text = search.as_text().strip_suffix('.').unwrap_or(search.as_text());
        errors.reasons(search.path.clone(), text, names::dns1123_subdomain_with_underscore(text));
    }
    for option in config.items("options").iter().filter(|o| o.text("name").is_empty()) {
        errors.required(option.path.clone(), "must not be empty");
    }
}

fn scheduling_gates(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for gate in spec.items("schedulingGates") {
        let name = gate.text("name");
        errors.reasons(gate.path.clone(), name, names::qualified_name(name));
        if seen.contains(&name) {
            errors.duplicate(gate.path.clone(), name);
        }
        seen.insert(name);
    }
}

fn hostname_override(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let Some(name) = spec.raw("hostnameOverride").as_str() else { return };
    let path = || spec.at("hostnameOverride");
    if spec.is_true("setHostnameAsFQDN") {
        errors.forbidden(path(), "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.is_true("hostNetwork") {
        errors.forbidden(path(), "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        errors.push(ferry_meta::FieldError::too_long(&path(), 64));
    }
    errors.reasons(path(), name, names::dns1123_subdomain(name));
}

fn host_aliases(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    for alias in spec.items("hostAliases") {
        check::ip(errors, alias.at("ip"), alias.text("ip"));
        for name in alias.items("hostnames") {
            errors.reasons(name.path.clone(), name.as_text(), names::dns1123_subdomain(name.as_text()));
        }
    }
}

/// Environment files must lie in a volume that starts empty.
fn file_key_volumes(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    for container in all_containers(spec) {
        for variable in container.items("env") {
            let reference = variable.get("valueFrom").get("fileKeyRef");
            if !reference.exists() {
                continue;
            }
            let name = reference.text("volumeName");
            match spec.array("volumes").iter().find(|v| v["name"].as_str() == Some(name)) {
                None => errors.not_found(reference.at("volumeName"), name),
                Some(volume) if volume["emptyDir"].is_null() => {
                    errors.invalid(reference.at("volumeName"), name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    }
}

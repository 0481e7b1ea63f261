//! What is accepted in a pod's spec but doubtful.

use std::collections::HashMap;
use std::net::IpAddr;

use ferry_meta::Path;

use super::spec::all_containers;
use crate::at::At;

/// Labels of nodes that have new names.
const OLD_LABELS: [(&str, &str); 6] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("", ""),
];

const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

const OLD_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

pub fn old_label(key: &str) -> Option<&'static str> {
    OLD_LABELS.iter().find(|(old, _)| *old == key && !key.is_empty()).map(|(_, message)| *message)
}

/// `pod` is a pod or a template: it has metadata and spec.
pub fn of(pod: &At<'_>) -> Vec<String> {
    let (spec, metadata) = (pod.get("spec"), pod.get("metadata"));
    let mut out: Vec<String> = Vec::new();
    let mut warn = |path: &Path, message: String| out.push(format!("{path}: {message}"));
    for key in spec.map("nodeSelector").keys() {
        if let Some(message) = old_label(key) {
            warn(&spec.at("nodeSelector").key(key), message.to_owned());
        }
    }
    for constraint in spec.items("topologySpreadConstraints") {
        let key = constraint.text("topologyKey");
        if let Some(message) = old_label(key) {
            warn(&constraint.at("topologyKey"), format!("{key} is {message}"));
        }
        if !constraint.has("labelSelector") {
            warn(&constraint.at("labelSelector"), "a null labelSelector results in matching no pod".into());
        }
    }
    for (key, message) in OLD_ANNOTATIONS {
        if metadata.map("annotations").contains_key(key) {
            warn(&metadata.at("annotations").key(key), message.to_owned());
        }
    }
    for volume in spec.items("volumes") {
        for (key, shown, message) in OLD_VOLUMES {
            if volume.has(key) {
                warn(&volume.at(shown), message.to_owned());
            }
        }
    }
    duplicates(&mut warn, &spec, "hostAliases", "ip");
    duplicates(&mut warn, &spec, "imagePullSecrets", "name");
    for secret in spec.items("imagePullSecrets").iter().filter(|s| s.text("name").is_empty()) {
        warn(&secret.at("name"), "invalid empty name \"\"".into());
    }
    fractions(&mut warn, &spec, "overhead");
    for container in all_containers(&spec) {
        let resources = container.get("resources");
        for (list, name) in [
            ("limits", "memory"),
            ("requests", "memory"),
            ("limits", "ephemeral-storage"),
            ("requests", "ephemeral-storage"),
        ] {
            fraction(&mut warn, &resources, list, name);
        }
        hidden_variables(&mut warn, &container);
    }
    ports(&mut warn, &spec);
    if spec.number("terminationGracePeriodSeconds") < 0 {
        let message = "must be >= 0; negative values are invalid and will be treated as 1";
        warn(&spec.at("terminationGracePeriodSeconds"), message.into());
    }
    for pods in ["podAffinity", "podAntiAffinity"].map(|key| spec.get("affinity").get(key)) {
        for term in pods.items("requiredDuringSchedulingIgnoredDuringExecution") {
            null_selector(&mut warn, &term);
        }
        for term in pods.items("preferredDuringSchedulingIgnoredDuringExecution") {
            null_selector(&mut warn, &term.get("podAffinityTerm"));
        }
    }
    for server in spec.get("dnsConfig").items("nameservers") {
        out.extend(address(&server.path, server.as_text()));
    }
    for alias in spec.items("hostAliases") {
        out.extend(address(&alias.at("ip"), alias.text("ip")));
    }
    out
}

type Warn<'a> = dyn FnMut(&Path, String) + 'a;

fn null_selector(warn: &mut Warn<'_>, term: &At<'_>) {
    if !term.has("labelSelector") {
        warn(&term.at("labelSelector"), "a null labelSelector results in matching no pod".into());
    }
}

fn duplicates(warn: &mut Warn<'_>, spec: &At<'_>, list: &str, key: &str) {
    let mut seen: Vec<&str> = Vec::new();
    for item in spec.items(list) {
        let value = item.text(key);
        if seen.contains(&value) {
            warn(&item.at(key), format!("duplicate {key} {value:?}"));
        } else {
            seen.push(value);
        }
    }
}

fn fractions(warn: &mut Warn<'_>, parent: &At<'_>, list: &str) {
    for name in ["memory", "ephemeral-storage"] {
        fraction(warn, parent, list, name);
    }
}

fn fraction(warn: &mut Warn<'_>, parent: &At<'_>, list: &str, name: &str) {
    // Amounts too large to count in thousandths are whole.
    let fractional = |milli: i64| milli % 1000 != 0 && milli != i64::MAX;
    if let Some(quantity) = parent.get(list).quantity(name).filter(|q| fractional(q.milli_value())) {
        let message = format!("fractional byte value \"{quantity}\" is invalid, must be an integer");
        warn(&parent.at(list).key(name), message);
    }
}

/// A variable set twice, unless the second builds on the first.
fn hidden_variables(warn: &mut Warn<'_>, container: &At<'_>) {
    let mut seen: Vec<&str> = Vec::new();
    for variable in container.items("env") {
        let (name, value) = (variable.text("name"), variable.text("value"));
        if !seen.contains(&name) {
            seen.push(name);
            continue;
        }
        let reference = format!("$({name})");
        if variable.has("valueFrom") || value == reference || !value.contains(&reference) {
            let message = format!("hides previous definition of {name:?}, which may be dropped when using apply");
            warn(&variable.path, message);
        }
    }
}

fn ports(warn: &mut Warn<'_>, spec: &At<'_>) {
    let mut seen: HashMap<(i64, &str), Vec<At<'_>>> = HashMap::new();
    let containers = all_containers(spec);
    for port in containers.iter().flat_map(|c| c.items("ports")) {
        let others = seen.entry((port.number("containerPort"), port.text("protocol"))).or_default();
        for other in others.iter() {
            let (host, their) = (port.number("hostPort"), other.number("hostPort"));
            let (address, theirs) = (port.text("hostIP"), other.text("hostIP"));
            if address == theirs && host == their {
                warn(&port.path, format!("duplicate port definition with {}", other.path));
            } else if host == 0 || their == 0 {
                warn(&port.path, format!("overlapping port definition with {}", other.path));
            } else if host == their && (address.is_empty() != theirs.is_empty()) {
                warn(&port.path, format!("dangerously ambiguous port definition with {}", other.path));
            }
        }
        others.push(port);
    }
    let mut names: HashMap<&str, Path> = HashMap::new();
    for port in containers.iter().flat_map(|c| c.items("ports")) {
        let name = port.text("name");
        match names.get(name) {
            _ if name.is_empty() => {}
            Some(other) => warn(
                &port.path,
                format!(
                    "duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                ),
            ),
            None => {
                names.insert(name, port.path.clone());
            }
        }
    }
}

/// An IPv6 address that is not written as it should be.
pub fn address(path: &Path, text: &str) -> Option<String> {
    let IpAddr::V6(address) = text.parse().ok()? else { return None };
    if let Some(four) = address.to_ipv4_mapped() {
        return Some(format!("{path}: non-standard IP address {text:?} is invalid: use \"{four}\""));
    }
    (address.to_string() != text)
        .then(|| format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{address}\")"))
}

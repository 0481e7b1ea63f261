//! What is accepted in a pod's spec but doubtful.

use std::collections::{HashMap, HashSet};

use ferry_meta::Path;

use super::spec::all_containers;
use super::{app_armor, overlaps};
use crate::core::warnings::{self, address, old_label};
use crate::cursor::Cursor;

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

/// `pod` is a pod or a template: it has metadata and spec.
pub fn of(pod: &Cursor<'_>) -> Vec<String> {
    let (spec, metadata) = (pod.get("spec"), pod.get("metadata"));
    let mut out: Vec<String> = Vec::new();
    for key in spec.map("nodeSelector").keys() {
        if let Some(message) = old_label(key) {
            say(&mut out, &spec.at("nodeSelector").key(key), message.to_owned());
        }
    }
    let affinity = spec.get("affinity").get("nodeAffinity");
    for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution").items("nodeSelectorTerms") {
        out.extend(warnings::term(&term, false));
    }
    for wish in affinity.items("preferredDuringSchedulingIgnoredDuringExecution") {
        out.extend(warnings::term(&wish.get("preference"), true));
    }
    for constraint in spec.items("topologySpreadConstraints") {
        let key = constraint.text("topologyKey");
        if let Some(message) = old_label(key) {
            say(&mut out, &constraint.at("topologyKey"), format!("{key} is {message}"));
        }
        if !constraint.has("labelSelector") {
            say(&mut out, &constraint.at("labelSelector"), "a null labelSelector results in matching no pod".into());
        }
    }
    for (key, message) in OLD_ANNOTATIONS {
        if metadata.map("annotations").contains_key(key) {
            say(&mut out, &metadata.at("annotations").key(key), message.to_owned());
        }
    }
    for volume in spec.items("volumes") {
        for (key, shown, message) in OLD_VOLUMES {
            if volume.has(key) {
                say(&mut out, &volume.at(shown), message.to_owned());
            }
        }
        if volume.get("ephemeral").has("volumeClaimTemplate") {
            let template = volume.get("ephemeral").get("volumeClaimTemplate");
            out.extend(crate::core::persistent_volume_claim::spec_warnings(&template.get("spec")));
        }
    }
    for volume in spec.items("volumes") {
        out.extend(overlaps::of(&volume));
    }
    duplicates(&mut out, &spec, "hostAliases", "ip");
    duplicates(&mut out, &spec, "imagePullSecrets", "name");
    for secret in spec.items("imagePullSecrets").iter().filter(|s| s.text("name").is_empty()) {
        say(&mut out, &secret.at("name"), "invalid empty name \"\"".into());
    }
    let annotations = metadata.map("annotations");
    let unused = |key: &str, of: &Cursor<'_>| {
        let set = annotations.contains_key(key) && !of.get("securityContext").has("seccompProfile");
        let path = metadata.at("annotations").key(key);
        set.then(|| format!("{path}: non-functional in v1.27+; use the \"seccompProfile\" field instead"))
    };
    out.extend(["memory", "ephemeral-storage"].iter().filter_map(|name| warnings::fraction(&spec, "overhead", name)));
    out.extend(unused("seccomp.security.alpha.kubernetes.io/pod", &spec));
    if !pod.path.as_str().is_empty() {
        // A pod itself is asked before its annotations become fields.
        out.extend(app_armor::warnings(pod));
    }
    for container in all_containers(&spec) {
        let key = format!("container.seccomp.security.alpha.kubernetes.io/{}", container.text("name"));
        out.extend(unused(&key, &container));
        let resources = container.get("resources");
        for (list, name) in [
            ("limits", "memory"),
            ("requests", "memory"),
            ("limits", "ephemeral-storage"),
            ("requests", "ephemeral-storage"),
        ] {
            out.extend(warnings::fraction(&resources, list, name));
        }
        hidden_variables(&mut out, &container);
    }
    ports(&mut out, &spec);
    if spec.number("terminationGracePeriodSeconds") < 0 {
        let message = "must be >= 0; negative values are invalid and will be treated as 1";
        say(&mut out, &spec.at("terminationGracePeriodSeconds"), message.into());
    }
    for pods in ["podAffinity", "podAntiAffinity"].map(|key| spec.get("affinity").get(key)) {
        for term in pods.items("requiredDuringSchedulingIgnoredDuringExecution") {
            null_selector(&mut out, &term);
        }
        for term in pods.items("preferredDuringSchedulingIgnoredDuringExecution") {
            null_selector(&mut out, &term.get("podAffinityTerm"));
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

/// As many are told; an answer has no room for more.
const MOST: usize = 1000;

fn say(out: &mut Vec<String>, path: &Path, message: String) {
    if out.len() < MOST {
        out.push(format!("{path}: {message}"));
    }
}

fn null_selector(out: &mut Vec<String>, term: &Cursor<'_>) {
    if !term.has("labelSelector") {
        say(out, &term.at("labelSelector"), "a null labelSelector results in matching no pod".into());
    }
}

fn duplicates(out: &mut Vec<String>, spec: &Cursor<'_>, list: &str, key: &str) {
    let mut seen: HashSet<&str> = HashSet::new();
    for item in spec.items(list) {
        let value = item.text(key);
        if seen.contains(&value) {
            say(out, &item.at(key), format!("duplicate {key} {value:?}"));
        } else {
            seen.insert(value);
        }
    }
}

/// A variable set twice, unless the second builds on the first.
fn hidden_variables(out: &mut Vec<String>, container: &Cursor<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for variable in container.items("env") {
        let (name, value) = (variable.text("name"), variable.text("value"));
        if !seen.contains(&name) {
            seen.insert(name);
            continue;
        }
        let reference = format!("$({name})");
        if variable.has("valueFrom") || value == reference || !value.contains(&reference) {
            let message = format!("hides previous definition of {name:?}, which may be dropped when using apply");
            say(out, &variable.path, message);
        }
    }
}

/// Each port is compared with as many of those before it.
const COMPARED: usize = 64;

fn ports(out: &mut Vec<String>, spec: &Cursor<'_>) {
    let mut seen: HashMap<(i64, &str), Vec<Cursor<'_>>> = HashMap::new();
    let containers = all_containers(spec);
    for port in containers.iter().flat_map(|c| c.items("ports")) {
        if !port.text("hostIP").is_empty() && port.number("hostPort") == 0 {
            let shown = format!(
                "hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{}}}",
                port.text("name"),
                port.number("containerPort"),
                port.text("protocol"),
                port.text("hostIP")
            );
            say(out, &port.path, shown);
        }
        let others = seen.entry((port.number("containerPort"), port.text("protocol"))).or_default();
        for other in others.iter() {
            let (host, their) = (port.number("hostPort"), other.number("hostPort"));
            let (address, theirs) = (port.text("hostIP"), other.text("hostIP"));
            if address == theirs && host == their {
                say(out, &port.path, format!("duplicate port definition with {}", other.path));
            } else if host == 0 || their == 0 {
                say(out, &port.path, format!("overlapping port definition with {}", other.path));
            } else if host == their && (address.is_empty() != theirs.is_empty()) {
                say(out, &port.path, format!("dangerously ambiguous port definition with {}", other.path));
            }
        }
        if others.len() < COMPARED {
            others.push(port);
        }
        if out.len() >= MOST {
            return;
        }
    }
    let mut names: HashMap<&str, Path> = HashMap::new();
    for port in containers.iter().flat_map(|c| c.items("ports")) {
        let name = port.text("name");
        match names.get(name) {
            _ if name.is_empty() => {}
            Some(other) => say(
                out,
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

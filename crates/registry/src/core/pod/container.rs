//! The rules of containers: names, ports, policies, and what each of the three kinds may have.

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors, Path, names};

use super::spec::Whole;
use super::{environment, mount, probe, resources, security};
use crate::cursor::{Cursor, Report};

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

pub fn validate_containers(errors: &mut FieldErrors, spec: &Cursor<'_>, whole: &Whole<'_>) {
    let containers = spec.items("containers");
    if containers.is_empty() {
        return errors.required(spec.at("containers"), "");
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for container in &containers {
        common(errors, container, whole);
        if !seen.insert(container.text("name")) {
            errors.duplicate(container.at("name"), container.text("name"));
        }
        probe::lifecycle(errors, container, whole);
        probe::all(errors, container, whole);
        restart_rules(errors, container);
    }
    host_port_conflicts(errors, &containers, &spec.at("containers"));
}

pub fn validate_init_containers(errors: &mut FieldErrors, spec: &Cursor<'_>, whole: &Whole<'_>) {
    let mut seen: HashSet<&str> = spec.array("containers").iter().filter_map(|c| c["name"].as_str()).collect();
    for container in spec.items("initContainers") {
        common(errors, &container, whole);
        if container.has("restartPolicy") || !container.array("restartPolicyRules").is_empty() {
            restart_rules(errors, &container);
        }
        let always = container.text("restartPolicy") == "Always";
        let name = container.text("name");
        if seen.contains(name) {
            errors.duplicate(container.at("name"), name);
        } else if !name.is_empty() {
            seen.insert(name);
        }
        host_port_conflicts(errors, std::slice::from_ref(&container), &spec.at("initContainers"));
        if always {
            probe::lifecycle(errors, &container, whole);
            probe::all(errors, &container, whole);
        } else {
            for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(key) {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    errors.forbidden(container.at(key), detail);
                }
            }
            for policy in container.items("resizePolicy") {
                if policy.text("restartPolicy") == "RestartContainer" {
                    let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    errors.invalid(policy.at("restartPolicy"), "RestartContainer", detail);
                }
            }
        }
    }
}

/// What an ephemeral container may not have, in the order of upstream's type.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

pub fn validate_ephemeral_containers(errors: &mut FieldErrors, spec: &Cursor<'_>, whole: &Whole<'_>) {
    let named = |key: &str| spec.array(key).iter().filter_map(|c| c["name"].as_str());
    let others: HashSet<&str> = named("containers").chain(named("initContainers")).collect();
    let mut seen = others.clone();
    for container in spec.items("ephemeralContainers") {
        common(errors, &container, whole);
        image_has_no_padding(errors, &container);
        let name = container.text("name");
        if !seen.insert(name) {
            errors.duplicate(container.at("name"), name);
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(container.at("targetContainerName"), target);
        }
        for key in NOT_EPHEMERAL {
            let value = container.raw(key);
            // Resources are there always; a probe or a hook that is empty is one that was given.
            let nothing = |map: &serde_json::Map<String, serde_json::Value>| key == "resources" && map.is_empty();
            let empty = value.as_object().is_some_and(nothing)
                || value.as_array().is_some_and(Vec::is_empty)
                || value.is_null();
            if !empty {
                errors.forbidden(container.at(key), "cannot be set for an Ephemeral Container");
            }
        }
        for mount in container.items("volumeMounts") {
            for key in ["subPath", "subPathExpr"] {
                if !mount.text(key).is_empty() {
                    errors.forbidden(mount.at(key), "cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

fn common(errors: &mut FieldErrors, container: &Cursor<'_>, whole: &Whole<'_>) {
    errors.named(container.at("name"), container.text("name"), names::dns1123_label);
    if container.text("image").is_empty() {
        errors.required(container.at("image"), "");
    }
    let policies = ["File", "FallbackToLogsOnError"];
    errors.one_of(container.at("terminationMessagePolicy"), container.text("terminationMessagePolicy"), &policies);
    ports(errors, container);
    environment::variables(errors, container);
    environment::sources(errors, container);
    mount::mounts(errors, container, whole);
    mount::devices(errors, container, whole);
    errors.one_of(container.at("imagePullPolicy"), container.text("imagePullPolicy"), &PULL_POLICIES);
    resources::validate(errors, &container.get("resources"), &whole.claims, resources::container_name);
    resize_policy(errors, container, whole.restart_policy);
    security::validate_container(errors, container, whole.host_users);
}

/// Only pods refuse blanks around the image; templates may carry them.
pub fn image_has_no_padding(errors: &mut FieldErrors, container: &Cursor<'_>) {
    let image = container.text("image");
    if image.trim() != image {
        errors.invalid(container.at("image"), image, "must not have leading or trailing whitespace");
    }
}

fn ports(errors: &mut FieldErrors, container: &Cursor<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for port in container.items("ports") {
        let name = port.text("name");
        if !name.is_empty() {
            let reasons = names::port_name(name);
            if !reasons.is_empty() {
                errors.reasons(port.at("name"), name, reasons);
            } else if !seen.insert(name) {
                errors.duplicate(port.at("name"), name);
            }
        }
        match port.number("containerPort") {
            0 => errors.required(port.at("containerPort"), ""),
            number => port_number(errors, port.at("containerPort"), number),
        }
        if port.number("hostPort") != 0 {
            port_number(errors, port.at("hostPort"), port.number("hostPort"));
        }
        errors.one_of(port.at("protocol"), port.text("protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn port_number(errors: &mut FieldErrors, path: Path, number: i64) {
    for reason in names::port_number(number) {
        errors.invalid(path.clone(), number, reason);
    }
}

/// No two containers may claim the same port of the host.
fn host_port_conflicts(errors: &mut FieldErrors, containers: &[Cursor<'_>], list: &Path) {
    let mut seen: HashSet<String> = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (number, port) in container.items("ports").iter().enumerate() {
            let host = port.number("hostPort");
            if host == 0 {
                continue;
            }
            let key = format!("{}/{}/{host}", port.text("protocol"), port.text("hostIP"));
            if !seen.insert(key.clone()) {
                let path = list.index(index).child("ports").index(number).child("hostPort");
                errors.duplicate(path, key);
            }
        }
    }
}

fn resize_policy(errors: &mut FieldErrors, container: &Cursor<'_>, pod_restart_policy: &str) {
    let path = || container.at("resizePolicy");
    let mut seen: HashSet<&str> = HashSet::new();
    for policy in container.items("resizePolicy") {
        let resource = policy.text("resourceName");
        if !seen.insert(resource) {
            errors.duplicate(policy.path.clone(), resource);
        }
        errors.one_of(path(), resource, &["cpu", "memory"]);
        let restart = policy.text("restartPolicy");
        errors.one_of(path(), restart, &["NotRequired", "RestartContainer"]);
        if pod_restart_policy == "Never" && restart != "NotRequired" {
            errors.invalid(path(), restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

fn restart_rules(errors: &mut FieldErrors, container: &Cursor<'_>) {
    let rules = container.items("restartPolicyRules");
    match container.raw("restartPolicy").as_str() {
        None if rules.is_empty() => return,
        None => {
            errors.required(container.at("restartPolicy"), "must specify restartPolicy when restart rules are used");
            // Of containers that run before the others no more is said.
            if container.path.as_str().contains("initContainers[") {
                return;
            }
        }
        Some(policy) if !["Always", "Never", "OnFailure"].contains(&policy) => {
            errors.unsupported(container.at("restartPolicy"), policy, &["Always", "Never", "OnFailure"]);
        }
        Some(_) => {}
    }
    if rules.len() > 20 {
        errors.push(FieldError::too_many(&container.at("restartPolicyRules"), rules.len(), 20));
    }
    for rule in rules {
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&rule.text("action")) {
            errors.unsupported(rule.at("action"), rule.text("action"), &actions);
        }
        let codes = rule.get("exitCodes");
        if !codes.exists() {
            errors.required(codes.path, "must be specified");
            continue;
        }
        if !["In", "NotIn"].contains(&codes.text("operator")) {
            errors.unsupported(codes.at("operator"), codes.text("operator"), &["In", "NotIn"]);
        }
        let count = codes.array("values").len();
        if count > 255 {
            errors.push(FieldError::too_many(&codes.at("values"), count, 255));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn ephemeral_containers_have_no_hooks_and_no_probes() {
        let pod = |more: Value| {
            let mut container = json!({"name": "e", "image": "i", "resources": {}, "imagePullPolicy": "Always",
                "terminationMessagePath": "/t", "terminationMessagePolicy": "File"});
            for (key, value) in more.as_object().cloned().unwrap_or_default() {
                container[key] = value;
            }
            json!({"spec": {"containers": [{"name": "a"}], "ephemeralContainers": [container]}})
        };
        for (more, refused) in [
            (json!({}), None),
            (json!({"ports": []}), None),
            (json!({"lifecycle": {}}), Some("lifecycle")),
            (json!({"startupProbe": {}}), Some("startupProbe")),
        ] {
            let object = pod(more);
            let spec = Cursor::root(&object).get("spec");
            let mut errors = FieldErrors::new();
            let whole = Whole {
                is_pod: true,
                host_users: true,
                grace_period: None,
                restart_policy: "Always",
                os: "",
                volumes: Default::default(),
                claims: HashSet::new(),
            };
            validate_ephemeral_containers(&mut errors, &spec, &whole);
            let forbidden = errors.iter().map(|error| error.line()).find(|line| line.contains("Ephemeral"));
            assert_eq!(forbidden.is_some(), refused.is_some(), "{object}");
            assert!(forbidden.unwrap_or_default().contains(refused.unwrap_or_default()));
        }
    }
}

//! The defaults of a pod's spec, and those that only a pod itself has.

use ferry_meta::Quantity;
use serde_json::{Map, Value, json};

use super::volume;
use crate::cursor::{default_number, default_to, map_mut, maps_mut};

type Object = Map<String, Value>;

/// What pods and templates share.
pub fn spec(spec: &mut Object) {
    default_to(spec, "dnsPolicy", "ClusterFirst");
    default_to(spec, "restartPolicy", "Always");
    default_to(spec, "securityContext", json!({}));
    default_to(spec, "terminationGracePeriodSeconds", 30);
    default_to(spec, "schedulerName", "default-scheduler");
    // The old name of the field follows the new one.
    let account = |spec: &Object, key: &str| spec.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut name = account(spec, "serviceAccountName");
    if name.is_empty() {
        name = account(spec, "serviceAccount");
    }
    if !name.is_empty() {
        spec.insert("serviceAccountName".into(), name.clone().into());
        spec.insert("serviceAccount".into(), name.into());
    }
    for volume in maps_mut(spec, "volumes") {
        one_volume(volume);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for one in maps_mut(spec, list) {
            container(one);
        }
    }
    resource_list(spec, "overhead");
    if let Some(resources) = map_mut(spec, "resources") {
        resource_list(resources, "limits");
        resource_list(resources, "requests");
    }
}

/// Amounts are kept to thousandths.
pub fn resource_list(parent: &mut Object, key: &str) {
    for value in map_mut(parent, key).into_iter().flat_map(|list| list.values_mut()) {
        let Some(quantity) = value.as_str().and_then(|text| text.parse::<Quantity>().ok()) else { continue };
        let rounded = quantity.round_up(-3).to_string();
        if value.as_str() != Some(rounded.as_str()) {
            *value = rounded.into();
        }
    }
}

fn container(container: &mut Object) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = pull_policy(image);
    default_to(container, "imagePullPolicy", policy);
    default_to(container, "terminationMessagePath", "/dev/termination-log");
    default_to(container, "terminationMessagePolicy", "File");
    default_to(container, "resources", json!({}));
    for port in maps_mut(container, "ports") {
        default_to(port, "protocol", "TCP");
    }
    for variable in maps_mut(container, "env") {
        if let Some(source) = map_mut(variable, "valueFrom") {
            reference(source);
            if let Some(file) = map_mut(source, "fileKeyRef") {
                default_to(file, "optional", false);
            }
        }
    }
    if let Some(resources) = map_mut(container, "resources") {
        resource_list(resources, "limits");
        resource_list(resources, "requests");
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = map_mut(container, key) {
            default_number(probe, "timeoutSeconds", 1);
            default_number(probe, "periodSeconds", 10);
            default_number(probe, "successThreshold", 1);
            default_number(probe, "failureThreshold", 3);
            if let Some(grpc) = map_mut(probe, "grpc")
                && grpc.get("service").is_none_or(Value::is_null)
            {
                grpc.insert("service".into(), "".into());
            }
            http_get(probe);
        }
    }
    if let Some(lifecycle) = map_mut(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = map_mut(lifecycle, hook) {
                http_get(hook);
            }
        }
    }
}

fn http_get(handler: &mut Object) {
    if let Some(get) = map_mut(handler, "httpGet") {
        default_to(get, "path", "/");
        default_to(get, "scheme", "HTTP");
    }
}

fn reference(source: &mut Object) {
    if let Some(field) = map_mut(source, "fieldRef") {
        default_to(field, "apiVersion", "v1");
    }
    if let Some(resource) = map_mut(source, "resourceFieldRef") {
        default_to(resource, "divisor", "0");
    }
}

/// The name of an image may not be longer.
const LONGEST_NAME: usize = 255;

/// `Always` for what may change under the same name: no tag, no digest, or `latest`.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or_default();
    let (name, digest) = match last.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (last, None),
    };
    // With the registry and the folder that stand before a bare name.
    let whole = if image.contains('/') { "docker.io/" } else { "docker.io/library/" };
    let short = image.len() + whole.len() <= LONGEST_NAME;
    let well_formed = short && !image.is_empty() && !image.contains(' ') && image.chars().all(|c| c.is_ascii_graphic());
    match name.split_once(':') {
        Some((_, "latest")) => "Always",
        None if digest.is_none() && well_formed && is_lower_path(image) => "Always",
        _ => "IfNotPresent",
    }
}

/// A reference that upstream cannot parse counts as tagged.
fn is_lower_path(image: &str) -> bool {
    let path = image
        .split_once('/')
        .map_or(image, |(first, rest)| if first.contains(['.', ':']) || first == "localhost" { rest } else { image });
    path.split('/').all(|part| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'))
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.ends_with(|c: char| c.is_ascii_alphanumeric())
    })
}

fn one_volume(volume: &mut Object) {
    if !volume::has_source(volume) {
        volume.insert("emptyDir".into(), json!({}));
    }
    remote_volume(volume);
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = map_mut(volume, key) {
            default_to(source, "defaultMode", 420);
        }
    }
    if let Some(image) = map_mut(volume, "image") {
        let policy = pull_policy(image.get("reference").and_then(Value::as_str).unwrap_or_default());
        default_to(image, "pullPolicy", policy);
    }
    own_sources(volume);
}

/// The defaults of sources that PersistentVolumes have too.
pub fn remote_volume(volume: &mut Object) {
    for (source, defaults) in [
        ("iscsi", &[("iscsiInterface", "default")][..]),
        ("rbd", &[("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")]),
        ("azureDisk", &[("cachingMode", "ReadWrite"), ("kind", "Shared"), ("fsType", "ext4")]),
        ("scaleIO", &[("storageMode", "ThinProvisioned"), ("fsType", "xfs")]),
        ("hostPath", &[]),
    ] {
        if let Some(source) = map_mut(volume, source) {
            for (key, value) in defaults {
                default_to(source, key, *value);
            }
        }
    }
    if let Some(disk) = map_mut(volume, "azureDisk")
        && disk.get("readOnly").is_none_or(Value::is_null)
    {
        disk.insert("readOnly".into(), false.into());
    }
    if let Some(path) = map_mut(volume, "hostPath")
        && path.get("type").is_none_or(Value::is_null)
    {
        path.insert("type".into(), "".into());
    }
}

fn own_sources(volume: &mut Object) {
    if let Some(downward) = map_mut(volume, "downwardAPI") {
        maps_mut(downward, "items").for_each(reference);
    }
    if let Some(projected) = map_mut(volume, "projected") {
        for source in maps_mut(projected, "sources") {
            if let Some(downward) = map_mut(source, "downwardAPI") {
                maps_mut(downward, "items").for_each(reference);
            }
            if let Some(token) = map_mut(source, "serviceAccountToken") {
                default_to(token, "expirationSeconds", 3600);
            }
            if let Some(certificate) = map_mut(source, "podCertificate") {
                default_to(certificate, "maxExpirationSeconds", 86_400);
            }
        }
    }
    if let Some(template) = map_mut(volume, "ephemeral").and_then(|e| map_mut(e, "volumeClaimTemplate")) {
        if let Some(spec) = map_mut(template, "spec") {
            crate::core::persistent_volume_claim::default_spec(spec);
        }
        default_to(template, "metadata", json!({}));
    }
}

/// What a pod has beyond its spec's defaults; templates do not.
pub fn pod(spec: &mut Object) {
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s < 0) {
        spec.insert("terminationGracePeriodSeconds".into(), 1.into());
    }
    for list in ["containers", "initContainers"] {
        for container in maps_mut(spec, list) {
            requests_from_limits(container);
        }
    }
    default_to(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            for container in maps_mut(spec, list) {
                for port in maps_mut(container, "ports") {
                    let inside = port.get("containerPort").and_then(Value::as_i64).unwrap_or_default();
                    if inside != 0 {
                        default_number(port, "hostPort", inside);
                    }
                }
            }
        }
    }
}

fn requests_from_limits(container: &mut Object) {
    let Some(resources) = map_mut(container, "resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).filter(|l| !l.is_empty()).cloned() else {
        return;
    };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if requests.is_null() {
        *requests = json!({});
    }
    for (name, value) in limits {
        if let Some(requests) = requests.as_object_mut() {
            requests.entry(name).or_insert(value);
        }
    }
}

/// The single address and the list of them tell the same.
pub fn status(status: &mut Object) {
    let single = status.get("podIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = status.get("podIPs").and_then(|list| list.get(0)).and_then(|ip| ip["ip"].as_str()).map(str::to_owned);
    match (single.is_empty(), first) {
        (false, first) if first.as_deref() != Some(&single) => {
            status.insert("podIPs".into(), json!([{"ip": single}]));
        }
        (true, Some(first)) => {
            status.insert("podIP".into(), first.into());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_may_change_are_pulled_always() {
        let check = |image: &str, want: &str| assert_eq!(pull_policy(image), want, "{image}");
        check("nginx", "Always");
        check("nginx:latest", "Always");
        check("nginx:1", "IfNotPresent");
        check("host:5000/a/b", "Always");
        check("host:5000/a/b:2", "IfNotPresent");
        check("nginx@sha256:0000", "IfNotPresent");
        check("", "IfNotPresent");
        check("Not A Name", "IfNotPresent");
        check(&"x".repeat(300), "IfNotPresent");
    }
}

//! Names, namespaces, labels, annotations, replicas and images.

use serde_json::{Value, json};

use super::references::Renamed;
use super::{Item, Result, pairs};

const CLUSTER: [&str; 24] = [
    "APIService",
    "CSIDriver",
    "CSINode",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterTrustBundle",
    "ComponentStatus",
    "CustomResourceDefinition",
    "FlowSchema",
    "IPAddress",
    "IngressClass",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "RuntimeClass",
    "StorageClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "VolumeAttachment",
];

/// Whether objects of the kind stand beside the namespaces.
pub fn is_in_cluster(kind: &str) -> bool {
    CLUSTER.contains(&kind)
}

pub fn is_built_in(item: &Item) -> bool {
    ty(item).is_some()
}

pub fn ty(item: &Item) -> Option<ferry_schema::Type> {
    let api_version = item.object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ferry_schema::builtin().kind(&ferry_meta::GroupVersionKind::new(group, version, item.kind()))
}

/// What stands before and behind names; kinds whose names mean something keep them.
pub fn names(kustomization: &Value, items: &mut [Item]) -> Vec<Renamed> {
    let text = |field: &str| kustomization[field].as_str().unwrap_or_default();
    let (prefix, suffix) = (text("namePrefix"), text("nameSuffix"));
    let mut renamed = Vec::new();
    if prefix.is_empty() && suffix.is_empty() {
        return renamed;
    }
    for item in items {
        if matches!(item.kind(), "CustomResourceDefinition" | "APIService" | "Namespace") {
            continue;
        }
        let name = format!("{prefix}{}{suffix}", item.name());
        renamed.push((item.kind().to_owned(), item.name().to_owned(), name.clone()));
        item.rename(name);
    }
    renamed
}

pub fn all(kustomization: &Value, items: &mut [Item]) -> Result<()> {
    if let Some(namespace) = kustomization["namespace"].as_str().filter(|namespace| !namespace.is_empty()) {
        namespaces(namespace, items);
    }
    for item in &mut *items {
        for (key, value) in pairs(&kustomization["commonLabels"]) {
            label(&mut item.object, key, value, true, true);
        }
        for group in kustomization["labels"].as_array().into_iter().flatten() {
            let is = |field: &str| group[field] == true;
            for (key, value) in pairs(&group["pairs"]) {
                label(
                    &mut item.object,
                    key,
                    value,
                    is("includeSelectors"),
                    is("includeSelectors") || is("includeTemplates"),
                );
            }
        }
        for (key, value) in pairs(&kustomization["commonAnnotations"]) {
            set(&mut item.object["metadata"], "annotations", key, value);
            for path in templates(&item.object) {
                if let Some(template) = item.object.pointer_mut(path).filter(|template| template.is_object()) {
                    set(&mut template["metadata"], "annotations", key, value);
                }
            }
        }
        for wanted in kustomization["replicas"].as_array().into_iter().flatten() {
            let scales = matches!(item.kind(), "Deployment" | "ReplicaSet" | "ReplicationController" | "StatefulSet");
            if scales && wanted["name"].as_str().is_some_and(|name| item.has_name(name)) {
                set(&mut item.object, "spec", "replicas", &wanted["count"]);
            }
        }
        for wanted in kustomization["images"].as_array().into_iter().flatten() {
            images(&mut item.object, wanted);
        }
    }
    Ok(())
}

fn namespaces(namespace: &str, items: &mut [Item]) {
    let accounts: Vec<String> =
        items.iter().filter(|item| item.kind() == "ServiceAccount").map(|item| item.name().to_owned()).collect();
    for item in items {
        if !is_in_cluster(item.kind()) {
            item.object["metadata"]["namespace"] = namespace.into();
        }
        if !matches!(item.kind(), "RoleBinding" | "ClusterRoleBinding") {
            continue;
        }
        let subjects = item.object.pointer_mut("/subjects").and_then(Value::as_array_mut);
        for subject in subjects.into_iter().flatten() {
            let name = subject["name"].as_str().unwrap_or_default();
            let is_ours = name == "default" || accounts.iter().any(|account| account == name);
            if subject["kind"] == "ServiceAccount" && is_ours {
                subject["namespace"] = namespace.into();
            }
        }
    }
}

/// One entry of a map below an object; what is no map becomes one.
pub fn set(parent: &mut Value, field: &str, key: &str, value: &Value) {
    if !parent.is_object() {
        *parent = json!({});
    }
    if !parent[field].is_object() {
        parent[field] = json!({});
    }
    parent[field][key] = value.clone();
}

/// Where the kind has a template of pods.
fn templates(object: &Value) -> &'static [&'static str] {
    match object["kind"].as_str().unwrap_or_default() {
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" | "ReplicationController" | "Job" => {
            &["/spec/template"]
        }
        "CronJob" => &["/spec/jobTemplate", "/spec/jobTemplate/spec/template"],
        _ => &[],
    }
}

fn label(object: &mut Value, key: &str, value: &Value, selectors: bool, in_templates: bool) {
    set(&mut object["metadata"], "labels", key, value);
    if in_templates {
        for path in templates(object) {
            if let Some(template) = object.pointer_mut(path).filter(|template| template.is_object()) {
                set(&mut template["metadata"], "labels", key, value);
            }
        }
    }
    if !selectors {
        return;
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    for path in ["/spec", "/spec/selector", "/spec/podSelector"] {
        // What is no map is wrong, and the server says so.
        if object.pointer(path).is_some_and(|value| !value.is_object() && !value.is_null()) {
            return;
        }
    }
    match &*kind {
        "Service" | "ReplicationController" => set(&mut object["spec"], "selector", key, value),
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => {
            set(&mut object["spec"]["selector"], "matchLabels", key, value);
        }
        "PodDisruptionBudget" | "Job" if object["spec"]["selector"]["matchLabels"].is_object() => {
            set(&mut object["spec"]["selector"], "matchLabels", key, value);
        }
        "NetworkPolicy" if object["spec"]["podSelector"]["matchLabels"].is_object() => {
            set(&mut object["spec"]["podSelector"], "matchLabels", key, value);
        }
        _ => {}
    }
    if kind == "StatefulSet" {
        let claims = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
        for claim in claims.into_iter().flatten().filter(|claim| claim.is_object()) {
            set(&mut claim["metadata"], "labels", key, value);
        }
    }
}

fn images(value: &mut Value, wanted: &Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|item| images(item, wanted)),
        Value::Object(map) => {
            for (field, below) in map {
                if matches!(&**field, "containers" | "initContainers" | "ephemeralContainers") {
                    for container in below.as_array_mut().into_iter().flatten() {
                        if let Some(new) = container["image"].as_str().and_then(|image| renewed(image, wanted)) {
                            container["image"] = new.into();
                        }
                    }
                } else {
                    images(below, wanted);
                }
            }
        }
        _ => {}
    }
}

/// None where another image is meant.
fn renewed(image: &str, wanted: &Value) -> Option<String> {
    let (rest, digest) = image.split_once('@').map_or((image, None), |(rest, digest)| (rest, Some(digest)));
    // A colon before the last slash is that of a port.
    let slash = rest.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match rest[slash..].find(':') {
        Some(at) => (&rest[..slash + at], Some(&rest[slash + at + 1..])),
        None => (rest, None),
    };
    let text = |field: &str| wanted[field].as_str().filter(|text| !text.is_empty());
    if text("name") != Some(name) {
        return None;
    }
    let name = text("newName").unwrap_or(name);
    let (tag, digest) = match (text("newTag"), text("digest")) {
        (None, None) => (tag, digest),
        new => new,
    };
    let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
    let digest = digest.map(|digest| format!("@{digest}")).unwrap_or_default();
    Some(format!("{name}{tag}{digest}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn images_are_named_anew() {
        for (image, wanted, new) in [
            ("nginx:1", json!({"name": "nginx", "newTag": "2"}), Some("nginx:2")),
            ("nginx", json!({"name": "nginx", "newName": "a.example:5000/n"}), Some("a.example:5000/n")),
            ("a.example:5000/n", json!({"name": "a.example:5000/n", "newTag": "2"}), Some("a.example:5000/n:2")),
            ("n@sha256:1", json!({"name": "n", "digest": "sha256:2"}), Some("n@sha256:2")),
            ("n@sha256:1", json!({"name": "n", "newTag": "2"}), Some("n:2")),
            ("other", json!({"name": "n"}), None),
        ] {
            assert_eq!(super::renewed(image, &wanted).as_deref(), new, "{image}");
        }
    }
}

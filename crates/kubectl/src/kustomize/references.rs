//! Names of other objects, inside objects: changed when those are renamed.

use serde_json::Value;

use super::Item;

/// Kind, old name, new name.
pub type Renamed = (String, String, String);

pub fn follow(items: &mut [Item], renamed: &[Renamed]) {
    if renamed.is_empty() {
        return;
    }
    let new = |kind: &str, name: &str| {
        renamed.iter().find(|(known, old, _)| known == kind && old == name).map(|(_, _, new)| new.clone())
    };
    for item in items {
        // What is in these is no field of the API, and other kinds are not known.
        if !matches!(item.kind(), "ConfigMap" | "Secret") && super::change::is_built_in(item) {
            walk(&mut item.object, &new);
        }
    }
}

/// The kind that a field of this name refers to.
fn kind_of(field: &str) -> Option<&'static str> {
    Some(match field {
        "secretName" => "Secret",
        "serviceAccountName" | "serviceAccount" => "ServiceAccount",
        "claimName" => "PersistentVolumeClaim",
        "serviceName" => "Service",
        "priorityClassName" => "PriorityClass",
        "storageClassName" => "StorageClass",
        "ingressClassName" => "IngressClass",
        "runtimeClassName" => "RuntimeClass",
        "volumeName" => "PersistentVolume",
        _ => return None,
    })
}

/// The kind of the object that stands in a field of this name, or in its list.
fn kind_in(field: &str) -> Option<&'static str> {
    Some(match field {
        "configMapRef" | "configMapKeyRef" | "configMap" => "ConfigMap",
        "secretRef" | "secretKeyRef" | "secret" | "imagePullSecrets" | "secrets" => "Secret",
        "service" => "Service",
        _ => return None,
    })
}

fn walk(value: &mut Value, new: &dyn Fn(&str, &str) -> Option<String>) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|item| walk(item, new)),
        Value::Object(map) => {
            for (field, below) in map {
                if field == "metadata" {
                    continue;
                }
                if let (Some(kind), Value::String(name)) = (kind_of(field), &mut *below) {
                    *name = new(kind, name).unwrap_or_else(|| name.clone());
                    continue;
                }
                for object in list(below) {
                    let kind = match &**field {
                        "scaleTargetRef" | "roleRef" | "subjects" => object["kind"].as_str().map(str::to_owned),
                        field => kind_in(field).map(str::to_owned),
                    };
                    if let Some(kind) = kind
                        && let Some(name) = object["name"].as_str().and_then(|name| new(&kind, name))
                    {
                        object["name"] = name.into();
                    }
                }
                walk(below, new);
            }
        }
        _ => {}
    }
}

/// The objects of a list, or the one object.
fn list(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(list) => list.iter_mut().filter(|item| item.is_object()).collect(),
        object @ Value::Object(_) => vec![object],
        _ => Vec::new(),
    }
}

//! Reading and changing pod specs held as JSON.

use ferry_meta::object::items;
use serde_json::{Map, Value};

pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

pub(crate) fn is_mirror(pod: &Value) -> bool {
    ferry_meta::object::annotations(pod).contains_key(MIRROR)
}

/// All containers of a spec in the order upstream visits them.
pub(crate) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["/initContainers", "/containers", "/ephemeralContainers"].into_iter().flat_map(|pointer| items(spec, pointer))
}

/// The list under a key, made where it is absent or null.
pub(crate) fn list_mut<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Vec<Value> {
    let list = map.entry(key).or_insert_with(|| Value::Array(Vec::new()));
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Value::Array(list) = list else { unreachable!("made a list above") };
    list
}

/// The names of Secrets that a pod refers to in its volumes, its environment and for pulling images.
pub(crate) fn refers_to_secrets(pod: &Value) -> bool {
    let Some(spec) = pod.get("spec") else { return false };
    const VOLUMES: [&str; 10] = [
        "/secret",
        "/azureFile/secretName",
        "/cephfs/secretRef",
        "/cinder/secretRef",
        "/flexVolume/secretRef",
        "/iscsi/secretRef",
        "/rbd/secretRef",
        "/scaleIO/secretRef",
        "/storageos/secretRef",
        "/csi/nodePublishSecretRef",
    ];
    !items(spec, "/imagePullSecrets").is_empty()
        || containers(spec).any(|c| environment_refers(c, "secretRef", "secretKeyRef"))
        || items(spec, "/volumes").iter().any(|volume| {
            VOLUMES.iter().any(|pointer| is_set(volume, pointer))
                || items(volume, "/projected/sources").iter().any(|source| is_set(source, "/secret"))
        })
}

pub(crate) fn refers_to_config_maps(pod: &Value) -> bool {
    let Some(spec) = pod.get("spec") else { return false };
    containers(spec).any(|c| environment_refers(c, "configMapRef", "configMapKeyRef"))
        || items(spec, "/volumes").iter().any(|volume| {
            is_set(volume, "/configMap")
                || items(volume, "/projected/sources").iter().any(|source| is_set(source, "/configMap"))
        })
}

fn environment_refers(container: &Value, whole: &str, key: &str) -> bool {
    items(container, "/envFrom").iter().any(|source| is_set(source, &format!("/{whole}")))
        || items(container, "/env").iter().any(|variable| is_set(variable, &format!("/valueFrom/{key}")))
}

pub(crate) fn is_set(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).is_some_and(|found| !found.is_null())
}

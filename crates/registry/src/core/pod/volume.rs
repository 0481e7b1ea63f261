//! The rules of volumes.

use std::collections::{HashMap, HashSet};

use ferry_meta::{FieldErrors, Path, Quantity, names};
use serde_json::Value;

use super::{environment, projection, remote_volume};
use crate::check;
use crate::core::persistent_volume_claim;
use crate::cursor::{Cursor, Report};

/// The kinds of sources in the order upstream looks at them: (field, its name where two are given, its name in other errors,
/// the fields it cannot do without).
type Source = (&'static str, &'static str, &'static str, &'static [&'static str]);
const SOURCES: [Source; 31] = [
    ("emptyDir", "emptyDir", "emptyDir", &[]),
    ("hostPath", "hostPath", "hostPath", &[]),
    ("gitRepo", "gitRepo", "gitRepo", &["repository"]),
    ("gcePersistentDisk", "gcePersistentDisk", "persistentDisk", &["pdName"]),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", &["volumeID"]),
    ("secret", "secret", "secret", &["secretName"]),
    ("nfs", "nfs", "nfs", &["server", "path"]),
    ("iscsi", "iscsi", "iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", "glusterfs", "glusterfs", &["endpoints", "path"]),
    ("flocker", "flocker", "flocker", &[]),
    ("persistentVolumeClaim", "persistentVolumeClaim", "persistentVolumeClaim", &["claimName"]),
    ("rbd", "rbd", "rbd", &["monitors", "image"]),
    ("cinder", "cinder", "cinder", &["volumeID"]),
    ("cephfs", "cephFS", "cephfs", &["monitors"]),
    ("quobyte", "quobyte", "quobyte", &[]),
    ("downwardAPI", "downwarAPI", "downwardAPI", &[]),
    ("fc", "fc", "fc", &[]),
    ("flexVolume", "flexVolume", "flexVolume", &["driver"]),
    ("configMap", "configMap", "configMap", &["name"]),
    ("azureFile", "azureFile", "azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", &["pdID"]),
    ("portworxVolume", "portworxVolume", "portworxVolume", &["volumeID"]),
    ("azureDisk", "azureDisk", "azureDisk", &["diskName", "diskURI"]),
    ("storageos", "storageos", "storageos", &["volumeName"]),
    ("projected", "projected", "projected", &[]),
    ("scaleIO", "scaleIO", "scaleIO", &["gateway", "system", "volumeName"]),
    ("csi", "csi", "csi", &[]),
    ("ephemeral", "ephemeral", "ephemeral", &[]),
    ("image", "image", "image", &[]),
    ("local", "local", "local", &["path"]),
];

pub fn has_source(volume: &serde_json::Map<String, Value>) -> bool {
    SOURCES.iter().any(|(key, ..)| volume.get(*key).is_some_and(|source| !source.is_null()))
}

/// The well-formed volumes by name.
pub fn validate_all<'a>(
    errors: &mut FieldErrors,
    spec: &Cursor<'a>,
    metadata: &Cursor<'_>,
) -> HashMap<&'a str, &'a Value> {
    let mut good: HashMap<&str, &Value> = HashMap::new();
    let volumes = spec.items("volumes");
    let pod = metadata.text("name");
    let created: HashSet<String> = volumes
        .iter()
        .filter(|v| !pod.is_empty() && v.has("ephemeral"))
        .map(|v| format!("{pod}-{}", v.text("name")))
        .collect();
    for volume in &volumes {
        let name = volume.text("name");
        let before = errors.len();
        source(errors, volume, pod);
        errors.named(volume.at("name"), name, names::dns1123_label);
        if good.contains_key(name) {
            errors.duplicate(volume.at("name"), name);
        }
        if errors.len() == before {
            good.insert(name, volume.value);
        }
        let claim = volume.get("persistentVolumeClaim");
        if created.contains(claim.text("claimName")) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(claim.at("claimName"), claim.text("claimName"), detail);
        }
    }
    good
}

/// The sources of PersistentVolumes in the order upstream looks at them.
const PERSISTENT: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// The source of a PersistentVolume, which stands among the fields of its spec.
pub fn validate_source(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let order = PERSISTENT.iter().filter_map(|key| SOURCES.iter().find(|source| source.0 == *key));
    sources(errors, spec, None, order);
}

fn source(errors: &mut FieldErrors, volume: &Cursor<'_>, pod: &str) {
    sources(errors, volume, Some(pod), SOURCES.iter());
}

fn sources<'a>(
    errors: &mut FieldErrors,
    volume: &Cursor<'_>,
    pod: Option<&str>,
    order: impl Iterator<Item = &'a Source>,
) {
    let mut found = false;
    for (key, other, shown, required) in order.copied() {
        let source = volume.get_as(key, shown);
        if !source.exists() {
            continue;
        }
        // A flexVolume beside another source of a PersistentVolume goes unnoticed.
        let unnoticed = key == "flexVolume" && pod.is_none();
        if std::mem::replace(&mut found, true) && !unnoticed {
            errors.forbidden(volume.at(other), "may not specify more than 1 volume type");
            continue;
        }
        for field in required {
            let value = source.raw(field);
            if value.as_str().is_none_or(str::is_empty) && value.as_array().is_none_or(Vec::is_empty) {
                errors.required(source.at(field), "");
            }
        }
        one(errors, key, &source, volume.text("name"), pod, &volume.path);
        if key == "local" && !volume.get("nodeAffinity").has("required") {
            errors.required(volume.at("nodeAffinity"), "Local volume requires node affinity");
        }
    }
    if !found {
        errors.required(volume.path.clone(), "must specify a volume type");
    }
}

/// `pod` is the name of the pod; None for the source of a PersistentVolume.
fn one(errors: &mut FieldErrors, key: &str, source: &Cursor<'_>, volume: &str, pod: Option<&str>, volume_path: &Path) {
    match key {
        "emptyDir" if source.quantity("sizeLimit").is_some_and(|limit: Quantity| limit.is_negative()) => {
            errors.forbidden(source.at("sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
        "hostPath" => host_path(errors, source),
        "gitRepo" => check::descending_path(errors, source.at("directory"), source.text("directory")),
        "secret" | "configMap" => files(errors, source),
        "nfs" if !source.text("path").starts_with('/') => {
            errors.invalid(source.at("path"), source.text("path"), "must be an absolute path");
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = source.number("partition");
            if !(0..=255).contains(&partition) {
                errors.invalid(source.at("partition"), partition, names::in_range(1, 255));
            }
        }
        "fc" => fibre_channel(errors, source),
        "downwardAPI" => {
            check::file_mode(errors, source, "defaultMode");
            for file in source.array("items") {
                downward_file(errors, &Cursor::new(file, source.path.clone()));
            }
        }
        "projected" => {
            check::file_mode(errors, source, "defaultMode");
            projection::sources(errors, source);
        }
        "csi" if pod.is_none() => persistent_csi(errors, source),
        "local" if !source.text("path").is_empty() => {
            check::no_backsteps(errors, source.at("path"), source.text("path"));
        }
        "csi" => {
            csi_driver_name(errors, source.at("driver"), source.text("driver"));
            let secret = source.get("nodePublishSecretRef");
            match (secret.exists(), secret.text("name")) {
                (false, _) => {}
                (true, "") => errors.required(secret.at("name"), ""),
                (true, name) => errors.reasons(source.at("name"), name, names::dns1123_subdomain(name)),
            }
        }
        "ephemeral" => {
            let template = source.get("volumeClaimTemplate");
            if template.exists() {
                persistent_volume_claim::validate_template(errors, &template);
            } else {
                errors.required(template.path, "");
            }
            let pod = pod.unwrap_or_default();
            let claim = format!("{pod}-{volume}");
            if !pod.is_empty() && !volume.is_empty() {
                for reason in names::dns1123_subdomain(&claim) {
                    errors.invalid(volume_path.child("name"), volume, format!("PVC name \"{claim}\": {reason}"));
                }
            }
        }
        "image" => {
            if source.text("reference").is_empty() {
                errors.required(source.at("reference"), "");
            }
            let policies = ["Always", "IfNotPresent", "Never"];
            errors.one_of(source.at("pullPolicy"), source.text("pullPolicy"), &policies);
        }
        key => remote_volume::validate(errors, key, source, pod.is_none()),
    }
}

/// The CSI source of a PersistentVolume, whose secrets may be in any namespace.
fn persistent_csi(errors: &mut FieldErrors, source: &Cursor<'_>) {
    csi_driver_name(errors, source.at("driver"), source.text("driver"));
    if source.text("volumeHandle").is_empty() {
        errors.required(source.at("volumeHandle"), "");
    }
    let secrets =
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"];
    for secret in secrets.iter().map(|key| source.get(key)).filter(Cursor::exists) {
        errors.named(secret.at("name"), secret.text("name"), names::dns1123_subdomain);
        errors.named(secret.at("namespace"), secret.text("namespace"), names::dns1123_label);
    }
}

fn host_path(errors: &mut FieldErrors, source: &Cursor<'_>) {
    const KINDS: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if source.text("path").is_empty() {
        return errors.required(source.at("path"), "");
    }
    check::no_backsteps(errors, source.at("path"), source.text("path"));
    if !KINDS.contains(&source.text("type")) {
        errors.unsupported(source.at("type"), source.text("type"), &KINDS);
    }
}

fn fibre_channel(errors: &mut FieldErrors, source: &Cursor<'_>) {
    let (targets, ids) = (source.array("targetWWNs"), source.array("wwids"));
    if targets.is_empty() && ids.is_empty() {
        errors.required(source.at("targetWWNs"), "must specify either targetWWNs or wwids, but not both");
    }
    if !targets.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(source.at("targetWWNs"), targets.to_vec(), detail);
    }
    if !targets.is_empty() && !source.has("lun") {
        errors.required(source.at("lun"), "lun is required if targetWWNs is specified");
    }
    if let Some(lun) = source.int("lun").filter(|lun| !targets.is_empty() && !(0..=255).contains(lun)) {
        errors.invalid(source.at("lun"), lun, names::in_range(0, 255));
    }
}

/// The files of a ConfigMap's or Secret's volume.
fn files(errors: &mut FieldErrors, source: &Cursor<'_>) {
    check::file_mode(errors, source, "defaultMode");
    for item in source.items("items") {
        key_to_path(errors, &item);
    }
}

pub fn key_to_path(errors: &mut FieldErrors, item: &Cursor<'_>) {
    if item.text("key").is_empty() {
        errors.required(item.at("key"), "");
    }
    if item.text("path").is_empty() {
        errors.required(item.at("path"), "");
    }
    check::unreserved_path(errors, item.at("path"), item.text("path"));
    check::file_mode(errors, item, "mode");
}

/// A file that shows a field of the pod. Upstream names the volume in its errors, not the file.
pub fn downward_file(errors: &mut FieldErrors, file: &Cursor<'_>) {
    if file.text("path").is_empty() {
        errors.required(file.at("path"), "");
    }
    check::unreserved_path(errors, file.at("path"), file.text("path"));
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    if field.exists() {
        environment::field_reference(errors, &field, &environment::VOLUME_FIELDS);
        if resource.exists() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.invalid(file.path.clone(), "resource", detail);
        }
    } else if resource.exists() {
        environment::resource_reference(errors, &resource, true);
    } else {
        errors.required(file.path.clone(), "one of fieldRef and resourceFieldRef is required");
    }
    check::file_mode(errors, file, "mode");
}

pub fn csi_driver_name(errors: &mut FieldErrors, path: Path, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > 63 {
        errors.push(ferry_meta::FieldError::too_long(&path, 63));
    }
    errors.reasons(path, name, names::dns1123_subdomain(&name.to_lowercase()));
}

//! PersistentVolumes.

use ferry_meta::{FieldError, FieldErrors, object};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::persistent_volume_claim::{access_modes, storage_class, validate_access_modes};
use super::pod::{difference, resource_list, scheduling, validate_volume_source};
use super::warnings;
use crate::cells;
use crate::cursor::{Cursor, IMMUTABLE, Report, default_absent, default_to, object_at};
use crate::internal;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common, subdomain_name};

pub struct PersistentVolume(pub Plain);

const OLD_ANNOTATIONS: [(&str, &str); 2] = [
    ("volume.beta.kubernetes.io/storage-class", "deprecated since v1.8; use \"storageClassName\" attribute instead"),
    ("volume.beta.kubernetes.io/mount-options", "deprecated since v1.31; use \"mountOptions\" attribute instead"),
];

const OLD_SOURCES: [(&str, &str, &str); 6] = [
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

impl Strategy for PersistentVolume {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, _old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return Vec::new();
        }
        let spec = Cursor::root(object).get("spec");
        let annotations = object::annotations(object);
        let old = OLD_ANNOTATIONS.into_iter().filter(|(key, _)| annotations.contains_key(*key));
        let mut found: Vec<String> =
            old.map(|(key, message)| format!("metadata.annotations[{key}]: {message}")).collect();
        if spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
            found.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
        }
        for term in spec.get("nodeAffinity").get("required").items("nodeSelectorTerms") {
            found.extend(warnings::term(&term, false));
        }
        let sources = OLD_SOURCES.into_iter().filter(|(key, _, _)| spec.has(key));
        found.extend(sources.map(|(_, shown, message)| format!("spec.{shown}: {message}")));
        found
    }

    fn default(&self, object: &mut Value) {
        default_to(object_at(object, &["status"]), "phase", "Pending");
        let spec = object_at(object, &["spec"]);
        default_to(spec, "persistentVolumeReclaimPolicy", "Retain");
        default_absent(spec, "volumeMode", "Filesystem");
        resource_list(spec, "capacity");
        super::pod::default_remote_volume(spec);
    }

    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        let now = object.pointer("/metadata/creationTimestamp").cloned().unwrap_or_default();
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
        }
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        if context.subresource != "status" {
            return common::keep(object, old, "status");
        }
        common::keep(object, old, "spec");
        // Since when it is in its phase, where the client does not say so itself.
        let status = |field: &str, of: &Value| of["status"][field].clone();
        let before = status("lastPhaseTransitionTime", old);
        let told = status("lastPhaseTransitionTime", object);
        let since = if status("phase", object) == status("phase", old) {
            told.is_null().then(|| before.clone())
        } else {
            let now = || Value::from(ferry_meta::time::time(ferry_meta::time::now()));
            (told.is_null() || told == before).then(now)
        };
        if let Some(since) = since.filter(|since| !since.is_null())
            && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
        {
            status.insert("lastPhaseTransitionTime".into(), since);
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate_spec(&mut errors, &Cursor::root(object).get("spec"), false);
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if !context.subresource.is_empty() {
            return errors;
        }
        let (spec, was) = (Cursor::root(object).get("spec"), Cursor::root(old).get("spec"));
        validate_spec(&mut errors, &spec, false);
        let mut munged = spec.value.clone();
        let secret = "controllerExpandSecretRef";
        if was.has("csi")
            && !was.get("csi").has(secret)
            && let Some(csi) = munged.pointer_mut("/csi").and_then(Value::as_object_mut)
        {
            csi.remove(secret);
        }
        if source_of(&munged) != source_of(was.value) {
            let name = "PersistentVolumeSource";
            let (before, after) = (source_of(was.value), source_of(&munged));
            let shown = difference(&internal::show_lines(name, &before), &internal::show_lines(name, &after));
            let detail = format!("spec.persistentvolumesource is immutable after creation\n{shown}");
            errors.forbidden(spec.at("persistentvolumesource"), detail);
        }
        errors.immutable(ferry_meta::Path::new("volumeMode"), spec.raw("volumeMode"), was.raw("volumeMode"));
        let (affinity, before) = (spec.raw("nodeAffinity"), was.raw("nodeAffinity"));
        if !before.is_null() && !same_affinity(affinity, before) {
            let detail = format!("{IMMUTABLE}, except for updating from beta label to GA");
            let error = FieldError::invalid(&ferry_meta::Path::new("nodeAffinity"), affinity.clone(), detail);
            errors.push(error.shown_as(internal::show_pointer("VolumeNodeAffinity", affinity)));
        }
        let class = "volumeAttributesClassName";
        if was.has(class) && !spec.has(class) {
            errors.forbidden(spec.at(class), "update from non-nil value to nil is forbidden");
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        subdomain_name(name, prefix)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let volume = Cursor::root(object);
        let (spec, status) = (volume.get("spec"), volume.get("status"));
        let claim = spec.get("claimRef");
        let claimed =
            if claim.exists() { format!("{}/{}", claim.text("namespace"), claim.text("name")) } else { String::new() };
        let unset = |key: &str| if spec.has(key) { spec.text(key) } else { "<unset>" };
        let capacity = spec.get("capacity").quantity("storage").unwrap_or_default();
        let phase = if object::is_being_deleted(object) { "Terminating" } else { status.text("phase") };
        vec![
            object::name(object).into(),
            capacity.to_string().into(),
            access_modes(spec.texts("accessModes")).into(),
            spec.text("persistentVolumeReclaimPolicy").into(),
            phase.into(),
            claimed.into(),
            storage_class(object, &spec).into(),
            unset("volumeAttributesClassName").into(),
            status.text("reason").into(),
            cells::age(object, now).into(),
            unset("volumeMode").into(),
        ]
    }
}

/// Old labels and the names that took their place.
const RENAMED: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// Whether two affinities are the same but for labels that got new names.
fn same_affinity(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| same_affinity(new, old))
        }
        (Value::Object(new), Value::Object(old)) => {
            let keys = new.keys().chain(old.keys());
            keys.into_iter().all(|key| {
                let (new, old) = (new.get(key).unwrap_or(&Value::Null), old.get(key).unwrap_or(&Value::Null));
                same_affinity(new, old) || (key == "key" && renamed(old) == new.as_str().unwrap_or_default())
            })
        }
        _ => new == old,
    }
}

fn renamed(old: &Value) -> &'static str {
    let old = old.as_str().unwrap_or_default();
    RENAMED.iter().find(|(before, _)| *before == old).map(|(_, after)| *after).unwrap_or_default()
}

/// The fields of a spec that are not the volume's source.
const NOT_SOURCE: [&str; 10] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
    "",
];

fn source_of(spec: &Value) -> Value {
    let mut copy = spec.clone();
    if let Some(map) = copy.as_object_mut() {
        map.retain(|key, _| !NOT_SOURCE.contains(&key.as_str()));
    }
    copy
}

/// `inline`: the spec stands in another object, as that of a volume without a claim.
pub(crate) fn validate_spec(errors: &mut FieldErrors, spec: &Cursor<'_>, inline: bool) {
    let foreign = |errors: &mut FieldErrors, key: &str| {
        errors.forbidden(spec.at(key), "may not be specified in the context of inline volumes");
    };
    if inline {
        if spec.has("claimRef") {
            foreign(errors, "claimRef");
        }
        if !spec.map("capacity").is_empty() {
            foreign(errors, "capacity");
        }
        if !spec.has("csi") {
            errors.required(spec.at("csi"), "has to be specified in the context of inline volumes");
        }
    }
    if spec.array("accessModes").is_empty() {
        errors.required(spec.at("accessModes"), "");
    }
    validate_access_modes(errors, spec);
    if !inline {
        validate_capacity(errors, spec);
    }
    let policies = ["Delete", "Recycle", "Retain"];
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if inline && !["", "Retain"].contains(&policy) {
        let detail = "may only be Retain in the context of inline volumes";
        errors.forbidden(spec.at("persistentVolumeReclaimPolicy"), detail);
    } else if !policy.is_empty() && !policies.contains(&policy) {
        errors.unsupported(spec.at("persistentVolumeReclaimPolicy"), policy, &policies);
    }
    let required = spec.get("nodeAffinity").get("required");
    if spec.has("nodeAffinity") {
        if inline {
            foreign(errors, "nodeAffinity");
        } else if required.exists() {
            scheduling::node_selector(errors, &required);
        } else {
            errors.required(required.path.clone(), "must specify required node constraints");
        }
    }
    validate_volume_source(errors, spec);
    let path = spec.get("hostPath").text("path");
    if path == "/" && policy == "Recycle" {
        errors.forbidden(spec.at("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'");
    }
    let class = spec.text("storageClassName");
    if !class.is_empty() && inline {
        foreign(errors, "storageClassName");
    } else if !class.is_empty() {
        errors.reasons(spec.at("storageClassName"), class, ferry_meta::names::dns1123_subdomain(class));
    }
    let mode = spec.text("volumeMode");
    if inline {
        if spec.has("volumeMode") && mode != "Filesystem" {
            let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
            errors.forbidden(spec.at("volumeMode"), detail);
        }
        // The class of attributes is not looked at here.
        return;
    }
    if spec.has("volumeMode") && !["Block", "Filesystem"].contains(&mode) {
        errors.unsupported(spec.at("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    let attributes = spec.get("volumeAttributesClassName");
    if attributes.exists() {
        match attributes.as_text() {
            "" => errors.required(attributes.path.clone(), "an empty string is disallowed"),
            class => errors.reasons(attributes.path.clone(), class, ferry_meta::names::dns1123_subdomain(class)),
        }
        if !spec.has("csi") {
            errors.required(spec.at("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
}

fn validate_capacity(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let capacity = spec.map("capacity");
    if capacity.is_empty() {
        errors.required(spec.at("capacity"), "");
    }
    if capacity.len() != 1 || !capacity.contains_key("storage") {
        errors.unsupported(spec.at("capacity"), spec.raw("capacity").clone(), &["storage"]);
    }
    for (_, at) in spec.entries("capacity") {
        let quantity = at.as_quantity().unwrap_or_default();
        if quantity.is_negative() {
            errors.invalid(at.path.clone(), quantity.value(), "must be a valid resource quantity");
        }
        if quantity.is_zero() || quantity.is_negative() {
            errors.invalid(at.path, quantity.to_string(), "must be greater than zero");
        }
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;

    use super::*;

    #[test]
    fn a_volume_says_since_when_it_is_in_its_phase() {
        const THEN: &str = "2020-01-01T00:00:00Z";
        const OWN: &str = "2021-01-01T00:00:00Z";
        let volume = |phase: &str, since: Option<&str>| json!({ "spec": {}, "status": { "phase": phase, "lastPhaseTransitionTime": since } });
        let user = UserInfo::new("u", &[]);
        let context = Context { user: &user, subresource: "status", dry_run: false, patch: false, reader: None };
        // None for the time of the update.
        for (phase, since, expected) in [
            ("Available", None, Some(THEN)),
            ("Available", Some(OWN), Some(OWN)),
            ("Bound", None, None),
            ("Bound", Some(THEN), None),
            ("Bound", Some(OWN), Some(OWN)),
        ] {
            let mut new = volume(phase, since);
            let strategy = PersistentVolume(<Plain as Default>::default());
            strategy.prepare_update(&context, &mut new, &volume("Available", Some(THEN)));
            let made = new["status"]["lastPhaseTransitionTime"].as_str().expect("a time");
            match expected {
                Some(expected) => assert_eq!(made, expected, "{phase} {since:?}"),
                None => assert!(![THEN, OWN].contains(&made), "{phase} {since:?}: {made}"),
            }
        }
    }
}

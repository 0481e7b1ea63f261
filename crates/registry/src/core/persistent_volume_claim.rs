//! Claims for storage.

use ferry_meta::{FieldErrors, names, object};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::pod::{resource_list, resources};
use super::warnings;
use crate::cells;
use crate::check;
use crate::cursor::{Cursor, Report, default_absent, default_to, map_mut, object_at};
use crate::internal;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub struct PersistentVolumeClaim(pub Plain);

pub fn default_spec(spec: &mut Map<String, Value>) {
    default_absent(spec, "volumeMode", "Filesystem");
    default_to(spec, "resources", json!({}));
    if let Some(resources) = map_mut(spec, "resources") {
        resource_list(resources, "requests");
        resource_list(resources, "limits");
    }
}

/// Sources of kinds nobody can clone from are dropped, as old clients expect; one that names a reference too is no old one.
fn drop_unknown_source(spec: &mut Map<String, Value>) {
    if spec.get("dataSourceRef").is_some_and(|reference| !reference.is_null()) {
        return;
    }
    let known = |source: &Value| {
        let at = Cursor::root(source);
        matches!(
            (at.text("apiGroup"), at.text("kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    if spec.get("dataSource").is_some_and(|source| !known(source)) {
        spec.remove("dataSource");
    }
}

/// The two ways to name a source say the same where only one was given.
fn same_source(spec: &mut Map<String, Value>) {
    let namespaced = spec.get("dataSourceRef").is_some_and(|r| !r["namespace"].as_str().unwrap_or_default().is_empty());
    let (one, other) = (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned());
    match (one, other) {
        (Some(source), None) if !source.is_null() => {
            // Both always tell the group, if only that there is none.
            let mut reference = source;
            if let Some(map) = reference.as_object_mut() {
                map.entry("apiGroup").or_insert(Value::Null);
            }
            spec.insert("dataSourceRef".into(), reference);
        }
        (None, Some(reference)) if !reference.is_null() && !namespaced => {
            spec.insert("dataSource".into(), reference);
        }
        _ => {}
    }
}

/// The claim that a volume makes for itself.
pub fn validate_template(errors: &mut FieldErrors, template: &Cursor<'_>) {
    let metadata = template.get("metadata");
    errors.extend(crate::object_meta::annotation_errors(metadata.map("annotations"), &metadata.at("annotations")));
    errors.extend(crate::object_meta::label_errors(metadata.map("labels"), &metadata.at("labels")));
    unset_metadata(errors, &metadata);
    validate_spec(errors, &template.get("spec"));
}

/// What the metadata of a template may not have.
pub fn unset_metadata(errors: &mut FieldErrors, metadata: &Cursor<'_>) {
    const UNSET: [&str; 13] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    for key in UNSET {
        let value = metadata.raw(key);
        // A grace period of nothing is one.
        let zero = value.as_i64() == Some(0) && key != "deletionGracePeriodSeconds";
        if !value.is_null() && value.as_str() != Some("") && !zero {
            // Upstream makes the name of the field from Go's.
            let shown = if key == "uid" { "uID" } else { key };
            errors.forbidden(metadata.at(shown), "cannot be set");
        }
    }
}

pub fn validate_access_modes(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    for mode in spec.texts("accessModes").filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.unsupported(spec.at("accessModes"), mode, &ACCESS_MODES);
    }
    let modes: Vec<&str> = spec.texts("accessModes").collect();
    let others = modes.iter().any(|m| *m != "ReadWriteOncePod" && ACCESS_MODES.contains(m));
    if modes.contains(&"ReadWriteOncePod") && others {
        errors.forbidden(spec.at("accessModes"), "may not use ReadWriteOncePod with other access modes");
    }
}

pub fn validate_spec(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    if spec.array("accessModes").is_empty() {
        errors.required(spec.at("accessModes"), "at least 1 access mode is required");
    }
    check::label_selector(errors, &spec.get("selector"));
    validate_access_modes(errors, spec);
    let path = spec.at("resources").key("storage");
    match spec.get("resources").get("requests").quantity("storage") {
        None => errors.required(path, ""),
        Some(size) if size.is_zero() || size.is_negative() => {
            errors.invalid(path, size.to_string(), "must be greater than zero");
        }
        Some(size) => resources::amount(errors, &path, "storage", &size),
    }
    for key in ["storageClassName", "volumeAttributesClassName"] {
        let class = spec.text(key);
        if !class.is_empty() && key == "storageClassName" {
            errors.reasons(spec.at(key), class, names::dns1123_subdomain(class));
        }
    }
    let mode = spec.text("volumeMode");
    if spec.has("volumeMode") && !["Block", "Filesystem"].contains(&mode) {
        errors.unsupported(spec.at("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    data_source(errors, &source);
    data_source(errors, &reference);
    let namespace = reference.text("namespace");
    if !namespace.is_empty() {
        errors.reasons(reference.at("namespace"), namespace, names::dns1123_label(namespace));
    }
    if source.exists() && reference.exists() {
        let same = ["apiGroup", "kind", "name"].iter().all(|key| source.text(key) == reference.text(key));
        let detail = if namespace.is_empty() {
            (!same).then_some("must match dataSourceRef")
        } else {
            Some("may not be specified when dataSourceRef.namespace is specified")
        };
        if let Some(detail) = detail {
            errors.invalid(spec.path.clone(), json!({}), detail);
        }
    }
    let class = spec.text("volumeAttributesClassName");
    if !class.is_empty() {
        errors.reasons(spec.at("volumeAttributesClassName"), class, names::dns1123_subdomain(class));
    }
}

fn data_source(errors: &mut FieldErrors, source: &Cursor<'_>) {
    if !source.exists() {
        return;
    }
    for key in ["name", "kind"] {
        if source.text(key).is_empty() {
            errors.required(source.at(key), "");
        }
    }
    let group = source.text("apiGroup");
    if group.is_empty() && source.text("kind") != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(source.path.clone(), source.text("kind"), detail);
    }
    if !group.is_empty() {
        errors.reasons(source.at("apiGroup"), group, names::dns1123_subdomain(group));
    }
}

const SOURCES: [&str; 2] = ["dataSource", "dataSourceRef"];
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn validate_change(errors: &mut FieldErrors, new: &Cursor<'_>, old: &Cursor<'_>) {
    let (spec, was) = (new.get("spec"), old.get("spec"));
    let bound = new.get("status").text("phase") == "Bound";
    let mut munged = spec.value.clone();
    let mut before = was.value.clone();
    if was.text("volumeName").is_empty()
        && let (Some(before), Some(name)) = (before.as_object_mut(), spec.value.get("volumeName"))
    {
        before.insert("volumeName".into(), name.clone());
    }
    immutable_class_annotation(errors, new, old);
    let annotation = old.get("metadata").map("annotations").get(CLASS_ANNOTATION).and_then(Value::as_str);
    let from_nil = spec.has("storageClassName")
        && !was.has("storageClassName")
        && annotation.is_none_or(|class| class == spec.text("storageClassName"));
    if let Some(map) = munged.as_object_mut() {
        let mut keep: Vec<&str> = Vec::new();
        if from_nil {
            keep.push("storageClassName");
        }
        if bound {
            keep.push("volumeAttributesClassName");
        }
        for key in keep {
            match was.value.get(key) {
                Some(value) => map.insert(key.into(), value.clone()),
                None => map.remove(key),
            };
        }
        if bound
            && let Some(requests) = map_mut(map, "resources").and_then(|r| map_mut(r, "requests"))
            && let Some(size) = was.value.pointer("/resources/requests/storage")
        {
            requests.insert("storage".into(), size.clone());
        }
    }
    if munged != before {
        let name = "PersistentVolumeClaimSpec";
        let shown = super::pod::difference(&internal::show_lines(name, &before), &internal::show_lines(name, &munged));
        errors.forbidden(
            spec.path.clone(),
            format!("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{shown}"),
        );
    }
    let size = |at: &Cursor<'_>| at.get("resources").get("requests").quantity("storage").unwrap_or_default();
    let actual = old.get("status").get("capacity").quantity("storage").unwrap_or_default();
    if size(&spec) < size(&was) && size(&spec) <= actual {
        let path = spec.at("resources").child("requests").child("storage");
        errors.forbidden(path, "field can not be less than status.capacity");
    }
    if spec.text("volumeMode") != was.text("volumeMode") {
        errors.invalid(ferry_meta::Path::new("volumeMode"), spec.text("volumeMode"), crate::cursor::IMMUTABLE);
    }
}

/// The class in the annotation stays; it may only move into the field.
fn immutable_class_annotation(errors: &mut FieldErrors, new: &Cursor<'_>, old: &Cursor<'_>) {
    let class = new.get("metadata").get("annotations").text(CLASS_ANNOTATION);
    let was = old.get("metadata").get("annotations").text(CLASS_ANNOTATION);
    let moved = !was.is_empty()
        && !old.get("spec").has("storageClassName")
        && new.get("spec").raw("storageClassName").as_str() == Some(was);
    if !moved && class != was {
        let path = new.at("metadata").child("annotations").key(CLASS_ANNOTATION);
        errors.invalid(path, class, crate::cursor::IMMUTABLE);
    }
}

fn validate_status(errors: &mut FieldErrors, status: &Cursor<'_>) {
    const STATES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    for (_, at) in status.entries("capacity") {
        let quantity = at.as_quantity().unwrap_or_default();
        if quantity.is_negative() {
            errors.invalid(at.path, quantity.value(), "must be a valid resource quantity");
        }
    }
    let path = status.at("allocatedResourceStatuses");
    for (key, state) in status.map("allocatedResourceStatuses") {
        claimed_resource(errors, &path, key);
        if !state.as_str().is_some_and(|state| STATES.contains(&state)) {
            let mut sorted = STATES;
            sorted.sort_unstable();
            errors.unsupported(path.clone(), key.as_str(), &sorted);
        }
    }
    for (key, at) in status.entries("allocatedResources") {
        let before = errors.len();
        claimed_resource(errors, &status.at("allocatedResources"), key);
        if errors.len() == before {
            resources::amount(errors, &at.path, "storage", &at.as_quantity().unwrap_or_default());
        }
    }
}

/// A resource of a claim: storage, or one of somebody's own domain.
fn claimed_resource(errors: &mut FieldErrors, path: &ferry_meta::Path, key: &str) {
    let reasons = names::qualified_name(key);
    if !reasons.is_empty() {
        return errors.reasons(path.clone(), key, reasons);
    }
    let own = key.contains('/') && !key.split('/').next().is_some_and(|domain| domain.ends_with("kubernetes.io"));
    if key != "storage" && !own {
        errors.unsupported(path.clone(), key, &["storage"]);
    }
}

pub fn spec_warnings(spec: &Cursor<'_>) -> Vec<String> {
    let resources = spec.get("resources");
    ["requests", "limits"].iter().filter_map(|list| warnings::fraction(&resources, list, "storage")).collect()
}

impl Strategy for PersistentVolumeClaim {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, _old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return Vec::new();
        }
        let claim = Cursor::root(object);
        let mut found = Vec::new();
        if object::annotations(object).contains_key(CLASS_ANNOTATION) {
            found.push(format!(
                "metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
            ));
        }
        found.extend(spec_warnings(&claim.get("spec")));
        found
    }

    fn default(&self, object: &mut Value) {
        default_spec(object_at(object, &["spec"]));
        default_to(object_at(object, &["status"]), "phase", "Pending");
    }

    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), json!({"phase": "Pending"}));
        }
        let spec = object_at(object, &["spec"]);
        drop_unknown_source(spec);
        same_source(spec);
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        if context.subresource == "status" {
            return common::keep_all_but_status(object, old);
        }
        common::keep(object, old, "status");
        let spec = object_at(object, &["spec"]);
        // A source that is there stays, whatever it is.
        if !Cursor::root(old).get("spec").has("dataSource") && !Cursor::root(old).get("spec").has("dataSourceRef") {
            drop_unknown_source(spec);
        }
        same_source(spec);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate_spec(&mut errors, &Cursor::root(object).get("spec"));
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if context.subresource.is_empty() {
            errors = self.validate_create(context, object);
            // Groups were not looked at once, so that they are not where there were some before.
            let was = Cursor::root(old).get("spec");
            if SOURCES.iter().any(|key| was.get(key).has("apiGroup")) {
                errors.retain(|error| !SOURCES.iter().any(|key| error.path.as_str() == format!("spec.{key}.apiGroup")));
            }
            validate_change(&mut errors, &Cursor::root(object), &Cursor::root(old));
        } else {
            validate_status(&mut errors, &Cursor::root(object).get("status"));
        }
        errors
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let at = Cursor::root(object);
        let (spec, status) = (at.get("spec"), at.get("status"));
        let phase = if object::is_being_deleted(object) { "Terminating" } else { status.text("phase") };
        let bound = !spec.text("volumeName").is_empty();
        // A volume of which no size is known yet has none.
        let capacity = match (bound, status.get("capacity").text("storage")) {
            (false, _) => "",
            (true, "") => "0",
            (true, size) => size,
        };
        let modes = if bound { access_modes(status.texts("accessModes")) } else { String::new() };
        let unset = |text: &str| if text.is_empty() { "<unset>".to_owned() } else { text.to_owned() };
        vec![
            object::name(object).into(),
            phase.into(),
            spec.text("volumeName").into(),
            capacity.into(),
            modes.into(),
            storage_class(object, &spec).into(),
            unset(spec.text("volumeAttributesClassName")).into(),
            cells::age(object, now).into(),
            (if spec.has("volumeMode") { spec.text("volumeMode") } else { "<unset>" }).into(),
        ]
    }
}

pub fn storage_class<'a>(object: &'a Value, spec: &Cursor<'a>) -> &'a str {
    match object::annotations(object).get(CLASS_ANNOTATION).and_then(Value::as_str) {
        Some(class) => class,
        None => spec.text("storageClassName"),
    }
}

/// `RWO,ROX,…` in upstream's order, each once.
pub fn access_modes<'a>(modes: impl Iterator<Item = &'a str>) -> String {
    let modes: Vec<&str> = modes.collect();
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    short.iter().filter(|(long, _)| modes.contains(long)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

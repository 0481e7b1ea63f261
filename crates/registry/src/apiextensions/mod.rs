//! The group apiextensions.k8s.io: definitions of custom resources.

mod paths;
mod pattern;
mod rules;
mod schema;
mod structural;

pub mod custom;
mod defaults;
mod embedded;
mod guards;
pub mod json_path;
pub mod rows;
#[cfg(test)]
mod version_tests;
mod warnings;

pub use guards::approval_condition;

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors, Path, names, object};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admissionregistration::webhook::{client_config, review_versions};
use crate::cursor::{Cursor, Report, default_to, map_mut, object_at};
use crate::internal;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

/// Holds a definition until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

pub struct CustomResourceDefinition(pub Plain);

fn storage_version(object: &Value) -> Option<String> {
    let versions = object::items(object, "/spec/versions").iter();
    let stored = versions.map(Cursor::root).find(|version| version.is_true("storage"))?;
    Some(stored.text("name").to_owned())
}

/// The storage version joins those in which objects may lie.
fn remember_storage_version(object: &mut Value) {
    let Some(version) = storage_version(object) else { return };
    let stored = object_at(object, &["status"]).entry("storedVersions").or_insert_with(|| json!([]));
    if !stored.is_array() {
        *stored = json!([]);
    }
    if let Some(list) = stored.as_array_mut()
        && !list.iter().any(|name| *name == version)
    {
        list.push(version.into());
    }
}

pub fn has_condition(definition: &Value, kind: &str) -> bool {
    let conditions = object::items(definition, "/status/conditions").iter();
    conditions.map(Cursor::root).any(|c| c.text("type") == kind && c.text("status") == "True")
}

impl Strategy for CustomResourceDefinition {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn precondition_refusal(&self) -> Option<&'static str> {
        Some("precondition failed")
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        default_to(spec, "conversion", json!({"strategy": "None"}));
        if let Some(service) = map_mut(spec, "conversion")
            .and_then(|conversion| map_mut(conversion, "webhook"))
            .and_then(|webhook| map_mut(webhook, "clientConfig"))
            .and_then(|config| map_mut(config, "service"))
        {
            default_to(service, "port", 443);
        }
        let names = object_at(object, &["spec", "names"]);
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !kind.is_empty() {
            default_to(names, "singular", kind.to_lowercase());
            default_to(names, "listKind", format!("{kind}List"));
        }
        let stored = object.pointer("/status/storedVersions").and_then(Value::as_array);
        if stored.is_none_or(Vec::is_empty) {
            remember_storage_version(object);
        }
    }

    fn prepare_create(&self, context: &Context<'_>, object: &mut Value) {
        common::prepare_create(true, true, context, object);
        remember_storage_version(object);
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::prepare_update(true, true, context, object, old);
        if context.subresource.is_empty() {
            remember_storage_version(object);
        }
    }

    fn begin_deletion(&self, object: &mut Value, now: &str) -> bool {
        if object::is_being_deleted(object) {
            object::metadata_mut(object).insert("deletionGracePeriodSeconds".into(), 0.into());
            return true;
        }
        let mut finalizers: Vec<String> = object::finalizers(object).map(str::to_owned).collect();
        if !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
            finalizers.push(CLEANUP_FINALIZER.to_owned());
        }
        let metadata = object::metadata_mut(object);
        metadata.insert("finalizers".into(), json!(finalizers));
        metadata.insert("deletionTimestamp".into(), now.into());
        let conditions = object_at(object, &["status"]).entry("conditions").or_insert_with(|| json!([]));
        if conditions.is_null() {
            *conditions = json!([]);
        }
        if let Some(list) = conditions.as_array_mut() {
            list.retain(|condition| condition["type"] != "Terminating");
            list.push(json!({"type": "Terminating", "status": "True", "lastTransitionTime": now,
                "reason": "InstanceDeletionPending",
                "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"}));
        }
        true
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if !context.subresource.is_empty() {
            return Vec::new();
        }
        let before: HashSet<String> = old.map(warnings::of).unwrap_or_default().into_iter().collect();
        warnings::of(object).into_iter().filter(|warning| !before.contains(warning)).collect()
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let definition = Cursor::root(object);
        let spec = definition.get("spec");
        let name = object::name(object);
        let detail = "must be spec.names.plural+\".\"+spec.group";
        let wanted = format!("{}.{}", spec.get("names").text("plural"), spec.text("group"));
        for (key, given) in [("generateName", object::text(object, "/metadata/generateName")), ("name", name)] {
            if given != wanted && !given.is_empty() {
                errors.invalid(definition.at("metadata").child(key), given, detail);
            }
        }
        validate_spec(&mut errors, &spec);
        stored_versions(&mut errors, &definition);
        guards::approval(&mut errors, object, None);
        if spec.is_true("preserveUnknownFields") {
            guards::keeps_unknown_fields(&mut errors, &spec);
            errors.invalid(spec.at("preserveUnknownFields"), true, guards::KEEPS_UNKNOWN);
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if !context.subresource.is_empty() {
            validate_names(&mut errors, &Cursor::root(object).get("status").get("acceptedNames"));
            return errors;
        }
        let (definition, was) = (Cursor::root(object), Cursor::root(old));
        let (spec, before) = (definition.get("spec"), was.get("spec"));
        validate_spec(&mut errors, &spec);
        if spec.is_true("preserveUnknownFields") {
            guards::keeps_unknown_fields(&mut errors, &spec);
            if !before.is_true("preserveUnknownFields") {
                errors.invalid(spec.at("preserveUnknownFields"), true, guards::KEEPS_UNKNOWN);
            }
        }
        let names = spec.get("names");
        if has_condition(old, "Established") {
            errors.immutable(spec.at("scope"), spec.raw("scope"), before.raw("scope"));
            errors.immutable(names.at("kind"), names.raw("kind"), before.get("names").raw("kind"));
        }
        errors.immutable(spec.at("group"), spec.raw("group"), before.raw("group"));
        errors.immutable(names.at("plural"), names.raw("plural"), before.get("names").raw("plural"));
        stored_versions(&mut errors, &definition);
        guards::approval(&mut errors, object, Some(old));
        errors
    }

    fn cells(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        let spec = Cursor::root(object).get("spec");
        let mut versions: Vec<String> = spec
            .items("versions")
            .iter()
            .filter(|version| version.is_true("served"))
            .map(|v| format!("{}{}", v.text("name"), if v.is_true("storage") { "(storage)" } else { "" }))
            .collect();
        versions.sort();
        let names = spec.get("names");
        vec![
            object::name(object).into(),
            spec.text("scope").into(),
            versions.join(",").into(),
            object::text(object, "/metadata/creationTimestamp").into(),
            spec.text("group").into(),
            names.text("kind").into(),
            names.texts("shortNames").collect::<Vec<_>>().join(",").into(),
            has_condition(object, "Established").into(),
        ]
    }
}

/// Versions in which objects may still lie cannot go.
fn stored_versions(errors: &mut FieldErrors, definition: &Cursor<'_>) {
    let status = definition.get("status");
    let stored = status.items("storedVersions");
    let whole = || (status.at("storedVersions"), status.raw("storedVersions").clone());
    if stored.is_empty() {
        let (path, value) = whole();
        return errors.invalid(path, value, "must have at least one stored version");
    }
    let mut left = stored;
    for version in definition.get("spec").items("versions") {
        let name = version.text("name");
        let count = left.len();
        left.retain(|stored| stored.as_text() != name);
        // A version that is there twice is found once.
        if left.len() == count && version.is_true("storage") {
            let (path, value) = whole();
            errors.invalid(path, value, format!("must have the storage version {name}"));
        }
    }
    for version in left {
        let name = version.as_text();
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        errors.invalid(version.path.clone(), name, detail);
    }
}

fn validate_spec(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let group = spec.text("group");
    let reasons = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(spec.at("group"), "");
    } else if !reasons.is_empty() {
        errors.invalid(spec.at("group"), group, reasons.join(","));
    } else if !group.contains('.') {
        errors.invalid(spec.at("group"), group, "should be a domain with at least one dot");
    }
    errors.one_of(spec.at("scope"), spec.text("scope"), &["Cluster", "Namespaced"]);
    let versions = spec.items("versions");
    for version in &versions {
        let schema = version.get("schema");
        if !schema.has("openAPIV3Schema") {
            errors.required(schema.at("openAPIV3Schema"), "");
        }
    }
    let shared = |key: &str| {
        // No columns and none at all are the same.
        let of = |version: &Cursor<'_>| {
            Some(version.raw(key).clone()).filter(|value| *value != json!([]) && !value.is_null())
        };
        let first = versions.first().map(&of);
        !versions.is_empty() && versions.iter().all(|version| Some(of(version)) == first)
    };
    let mut seen: HashSet<&str> = HashSet::new();
    let mut unique = true;
    for version in &versions {
        let name = version.text("name");
        unique &= !seen.contains(&name);
        seen.insert(name);
        let reasons = names::dns1035_label(name);
        if !reasons.is_empty() {
            errors.invalid(version.at("name"), name, reasons.join(","));
        }
        deprecation(errors, version);
        // What all versions share is named as if it stood in the spec itself.
        let own = version.get("schema").get("openAPIV3Schema");
        if !shared("schema") {
            errors.extend(schema::validate(&own, version.get("subresources").has("status")));
        }
        if !shared("subresources") {
            subresources(errors, &version.get("subresources"));
        }
        if !shared("additionalPrinterColumns") {
            version.items("additionalPrinterColumns").iter().for_each(|column| one_column(errors, column));
        }
        let fields = version.get("selectableFields");
        if !shared("selectableFields") && !version.array("selectableFields").is_empty() {
            // A schema that all versions share is not seen from here, as upstream has it.
            if own.exists() && !shared("schema") {
                paths::selectable_fields(errors, &fields, own.value);
            } else {
                let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
                errors.invalid(fields.path.clone(), "", detail);
            }
        }
    }
    let whole = |detail: &str| {
        FieldError::invalid(&spec.at("versions"), spec.raw("versions").clone(), detail)
            .shown_as(if spec.has("versions") { shown(&versions, &shared) } else { "null".to_owned() })
    };
    if !unique {
        errors.push(whole("must contain unique version names"));
    }
    if versions.iter().filter(|version| version.is_true("storage")).count() != 1 {
        errors.push(whole("must have exactly one version marked as storage version"));
    }
    // The first version also counts as the one of the spec itself.
    if let Some(first) = versions.first() {
        label(errors, spec.at("version"), first.text("name"));
    }
    let names = spec.get("names");
    for key in ["plural", "singular", "kind", "listKind"].into_iter().filter(|key| names.text(key).is_empty()) {
        errors.required(names.at(key), "");
    }
    validate_names(errors, &names);
    if let Some(version) = versions.first() {
        let own =
            Cursor::new(&version.raw("schema")["openAPIV3Schema"], spec.at("validation").child("openAPIV3Schema"));
        if shared("schema") {
            let has_status = versions.iter().any(|version| version.get("subresources").has("status"));
            errors.extend(schema::validate(&own, has_status));
        }
        if shared("subresources") {
            subresources(errors, &Cursor::new(version.raw("subresources"), spec.at("subresources")));
        }
        if shared("additionalPrinterColumns") {
            let path = spec.at("additionalPrinterColumns");
            for (index, column) in version.array("additionalPrinterColumns").iter().enumerate() {
                one_column(errors, &Cursor::new(column, path.index(index)));
            }
        }
        if shared("selectableFields") && !version.array("selectableFields").is_empty() {
            let list = Cursor::new(version.raw("selectableFields"), spec.at("selectableFields"));
            if own.exists() && shared("schema") {
                paths::selectable_fields(errors, &list, own.value);
            } else {
                errors.invalid(list.path.clone(), "", "may only be set when validations.schema is included");
            }
        }
    }
    conversion(errors, &spec.get("conversion"));
}

/// Versions as upstream holds them: without what they all share.
fn shown(versions: &[Cursor<'_>], shared: &dyn Fn(&str) -> bool) -> String {
    let texts = versions.iter().map(|version| {
        let mut copy = version.value.clone();
        if let Some(map) = copy.as_object_mut() {
            map.retain(|key, _| {
                !["schema", "subresources", "additionalPrinterColumns", "selectableFields"].contains(&key.as_str())
                    || !shared(key)
            });
        }
        internal::show("CustomResourceDefinitionVersion", &copy)
    });
    format!("[{}]", texts.collect::<Vec<_>>().join(","))
}

fn deprecation(errors: &mut FieldErrors, version: &Cursor<'_>) {
    let Some(text) = version.raw("deprecationWarning").as_str() else { return };
    let mut refuse = |detail: &str| errors.invalid(version.at("deprecationWarning"), text, detail);
    if !version.is_true("deprecated") {
        return refuse("can only be set for deprecated versions");
    }
    if text.len() > 256 {
        refuse("must be <= 256 characters long");
    }
    if text.is_empty() {
        refuse("must not be an empty string");
    }
    // Of all white space Go prints the plain blank alone.
    let hidden = |c: char| c.is_control() || (c.is_whitespace() && c != ' ');
    if let Some((index, _)) = text.char_indices().find(|(_, c)| hidden(*c)) {
        let detail = "must only contain printable UTF-8 characters; non-printable character found at index";
        refuse(&format!("{detail} {index}"));
    }
}

fn validate_names(errors: &mut FieldErrors, all: &Cursor<'_>) {
    for key in ["plural", "singular"] {
        label(errors, all.at(key), all.text(key));
    }
    for key in ["kind", "listKind"] {
        let text = all.text(key);
        let reasons = names::dns1035_label(&text.to_lowercase());
        if !text.is_empty() && !reasons.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", reasons.join(","));
            errors.invalid(all.at(key), text, detail);
        }
    }
    for short in all.items("shortNames") {
        let reasons = names::dns1035_label(short.as_text());
        if !reasons.is_empty() {
            errors.invalid(short.path.clone(), short.as_text(), reasons.join(","));
        }
    }
    if !all.text("kind").is_empty() && all.text("kind") == all.text("listKind") {
        errors.invalid(all.at("listKind"), all.text("listKind"), "kind and listKind may not be the same");
    }
    for category in all.items("categories") {
        let reasons = names::dns1035_label(category.as_text());
        if !reasons.is_empty() {
            errors.invalid(category.path.clone(), category.as_text(), reasons.join(","));
        }
    }
}

fn label(errors: &mut FieldErrors, path: Path, text: &str) {
    let reasons = names::dns1035_label(text);
    if !text.is_empty() && !reasons.is_empty() {
        errors.invalid(path, text, reasons.join(","));
    }
}

fn one_column(errors: &mut FieldErrors, column: &Cursor<'_>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    if column.text("name").is_empty() {
        errors.required(column.at("name"), "");
    }
    let detail = format!("must be one of {}", TYPES.join(","));
    match column.text("type") {
        "" => errors.required(column.at("type"), &detail),
        kind if !TYPES.contains(&kind) => errors.invalid(column.at("type"), kind, detail),
        _ => {}
    }
    let format = column.text("format");
    if !format.is_empty() && !FORMATS.contains(&format) {
        errors.invalid(column.at("format"), format, format!("must be one of {}", FORMATS.join(",")));
    }
    json_path(errors, column.at("JSONPath"), column.text("jsonPath"));
}

/// A path in dots; whether it was well-formed.
fn json_path(errors: &mut FieldErrors, path: Path, text: &str) -> bool {
    match text.as_bytes().first() {
        None => errors.required(path, ""),
        Some(b'.') => return true,
        Some(_) => errors.invalid(path, text, "must be a simple json path starting with ."),
    }
    false
}

fn subresources(errors: &mut FieldErrors, subresources: &Cursor<'_>) {
    let scale = subresources.get("scale");
    if !scale.exists() {
        return;
    }
    for (key, below) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let text = scale.text(key);
        let good = json_path(errors, scale.at(key), text);
        if good && !text.starts_with(&format!("{below}.")) {
            errors.invalid(scale.at(key), text, format!("should be a json path under {below}"));
        }
    }
    let text = scale.text("labelSelectorPath");
    if !text.is_empty() {
        let good = json_path(errors, scale.at("labelSelectorPath"), text);
        if good && !text.starts_with(".spec.") && !text.starts_with(".status.") {
            let detail = "should be a json path under either .spec or .status";
            errors.invalid(scale.at("labelSelectorPath"), text, detail);
        }
    }
}

fn conversion(errors: &mut FieldErrors, conversion: &Cursor<'_>) {
    if !conversion.exists() {
        return;
    }
    errors.one_of(conversion.at("strategy"), conversion.text("strategy"), &["None", "Webhook"]);
    let webhook = conversion.get("webhook");
    let (config, versions) = (webhook.get("clientConfig"), webhook.array("conversionReviewVersions"));
    if conversion.text("strategy") == "Webhook" {
        if config.exists() {
            client_config(errors, &Cursor::new(config.value, conversion.at("webhookClientConfig")));
        } else {
            let detail = "required when strategy is set to Webhook";
            errors.required(conversion.at("webhookClientConfig"), detail);
        }
        let review = Cursor::new(webhook.value, conversion.path.clone());
        review_versions(errors, &review, "conversionReviewVersions", "");
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if config.exists() {
        errors.forbidden(conversion.at("webhookClientConfig"), detail);
    }
    if !versions.is_empty() {
        errors.forbidden(conversion.at("conversionReviewVersions"), detail);
    }
}

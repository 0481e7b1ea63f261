//! The metadata common to all objects: what the server sets, what a client may send, what an update may change.

use std::collections::HashSet;

use ferry_meta::object::{self, annotations, labels, text};
use ferry_meta::{ApiError, FieldError, FieldErrors, GroupVersion, Path, names};
use serde_json::{Map, Value, json};

use crate::resource::Resource;
use crate::strategy::Context;

/// The letters of generated names: no vowels, so that no words arise, and nothing that reads as something else.
pub const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
pub const SUFFIX_LENGTH: usize = 5;
const MAX_GENERATED_BASE: usize = 63 - SUFFIX_LENGTH;
const ANNOTATIONS_LIMIT: usize = 256 << 10;
/// As many owners that stand twice are named.
const MOST_NAMED: usize = 100;
/// As often are all owners shown.
const MOST_SHOWN: usize = 10;

/// A name from a generateName and five letters of `SUFFIX_ALPHABET`.
pub fn generated_name(base: &str, suffix: &str) -> String {
    let mut end = base.len().min(MAX_GENERATED_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &base[..end])
}

/// Sets what only the server sets on a new object. The name must have been generated before.
pub fn prepare_create(object: &mut Value, uid: &str, now: &str) {
    wipe_system_fields(object);
    let metadata = object::metadata_mut(object);
    metadata.insert("uid".into(), uid.into());
    metadata.insert("creationTimestamp".into(), now.into());
}

/// Takes away what is the server's alone to set, before anybody comes to own it.
pub fn wipe_system_fields(object: &mut Value) {
    let metadata = object::metadata_mut(object);
    for key in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(key);
    }
}

/// Keeps what no update may change; call it before the strategy's `prepare_update`.
pub fn prepare_update(object: &mut Value, old: &Value) {
    let was = object::map(old, "/metadata");
    let metadata = object::metadata_mut(object);
    keep(metadata, was, "generation");
    metadata.remove("selfLink");
    if metadata.get("uid").and_then(Value::as_str).unwrap_or_default().is_empty() {
        keep(metadata, was, "uid");
    }
    keep(metadata, was, "creationTimestamp");
    if was.get("deletionTimestamp").is_some_and(|v| !v.is_null()) {
        keep(metadata, was, "deletionTimestamp");
    }
    if metadata.get("deletionGracePeriodSeconds").is_none_or(Value::is_null) {
        keep(metadata, was, "deletionGracePeriodSeconds");
    }
}

fn keep(metadata: &mut Map<String, Value>, was: &Map<String, Value>, key: &str) {
    match was.get(key) {
        Some(value) => metadata.insert(key.into(), value.clone()),
        None => metadata.remove(key),
    };
}

/// Drops repeated owner references; the warning that goes with it, if any were dropped.
pub fn remove_duplicate_owners(object: &mut Value) -> Option<String> {
    let owners = object.get_mut("metadata")?.get_mut("ownerReferences")?.as_array_mut()?;
    if owners.len() < 2 {
        return None;
    }
    let mut seen: HashSet<&Value> = HashSet::with_capacity(owners.len());
    let fresh: Vec<bool> = owners.iter().map(|owner| seen.insert(owner)).collect();
    let mut dropped: Vec<String> = Vec::new();
    let mut named = HashSet::new();
    let mut at = fresh.iter();
    owners.retain(|owner| {
        let kept = at.next() == Some(&true);
        let uid = text(owner, "/uid");
        if !kept && dropped.len() < MOST_NAMED && named.insert(uid.to_owned()) {
            dropped.push(uid.to_owned());
        }
        kept
    });
    if dropped.is_empty() {
        return None;
    }
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        dropped.join(", ")
    ))
}

impl Resource {
    /// All errors of a new object, in upstream's order: metadata, then the kind's own.
    pub fn validate_create(&self, context: &Context<'_>, object: &Value) -> FieldErrors {
        let path = Path::new("metadata");
        let strategy = &self.strategy;
        let mut errors = strategy.early_errors(context, object, None);
        let mut metadata =
            metadata_errors(object, self.namespaced, &path, &|name, prefix| strategy.validate_name(name, prefix));
        if self.checks_finalizers() {
            metadata.extend(kube_finalizers(object));
        }
        errors.extend(strategy.in_order(metadata, strategy.validate_create(context, object)));
        strategy.last_errors(object, None, &mut errors);
        errors
    }

    /// All errors of an update, in upstream's order. Metadata is looked at more than once, so some are there more than once.
    pub fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let path = Path::new("metadata");
        let mut errors = self.strategy.early_errors(context, object, Some(old));
        errors.extend(metadata_errors(object, self.namespaced, &path, &names::path_segment_name));
        errors.extend(update_errors(object, old, &path));
        // The kind's own check begins with the metadata again.
        errors.extend(update_errors(object, old, &path));
        if self.judges_base_again() {
            errors.extend(base_errors(object, &path, &|name, prefix| self.strategy.validate_name(name, prefix)));
        }
        if self.checks_finalizers() {
            errors.extend(kube_finalizers(object));
        }
        errors.extend(self.strategy.validate_update(context, object, old));
        self.strategy.last_errors(object, Some(old), &mut errors);
        errors
    }

    /// The refusal of an object for what is wrong with it. The message says each error once; so do the causes, but for kinds
    /// whose rules upstream writes by hand alone.
    pub fn refusal(&self, object: &Value, errors: FieldErrors) -> ApiError {
        let mut seen = HashSet::new();
        let mut once = errors.clone();
        once.retain(|error| seen.insert(error.line()));
        let (kind, name) = (self.group_kind(), object::name(object));
        let refusal = ApiError::invalid(&kind, name, &once);
        let by_hand = self.strategy.custom_type().is_some()
            || ["apiextensions.k8s.io", "apiregistration.k8s.io"].contains(&&*self.gvk.group);
        if !by_hand || once.len() == errors.len() {
            return refusal;
        }
        let mut whole = ApiError::invalid(&kind, name, &errors);
        whole.0.message = refusal.0.message;
        whole
    }

    /// Kinds of which upstream looks at a changed object as at a new one: its metadata by the kind's own rules too.
    fn judges_base_again(&self) -> bool {
        match (&*self.gvk.group, &*self.gvk.kind) {
            ("", kind) => {
                ["Pod", "ConfigMap", "Secret", "Endpoints", "LimitRange", "Namespace", "Node"].contains(&kind)
                    || ["PersistentVolumeClaim", "PersistentVolume", "ServiceAccount"].contains(&kind)
            }
            ("apps", kind) => kind == "ControllerRevision",
            ("networking.k8s.io", kind) => ["IngressClass", "Ingress", "IPAddress"].contains(&kind),
            ("storage.k8s.io", kind) => kind != "CSIDriver",
            ("resource.k8s.io", kind) => ["ResourceClaim", "ResourceClaimTemplate"].contains(&kind),
            (
                "admissionregistration.k8s.io"
                | "discovery.k8s.io"
                | "flowcontrol.apiserver.k8s.io"
                | "node.k8s.io"
                | "storagemigration.k8s.io",
                _,
            ) => true,
            _ => false,
        }
    }

    /// Built-in kinds take no finalizer that is neither known nor qualified by a domain, but for those that are checked by
    /// the generic rules alone.
    fn checks_finalizers(&self) -> bool {
        match (&*self.gvk.group, &*self.gvk.kind) {
            ("admissionregistration.k8s.io" | "coordination.k8s.io", _)
            | ("apiregistration.k8s.io" | "apiextensions.k8s.io", _)
            | ("", "Event")
            | ("policy", "PodDisruptionBudget")
            // These come after its own look at the name.
            | ("certificates.k8s.io", "ClusterTrustBundle")
            | ("node.k8s.io", "RuntimeClass") => false,
            _ => self.strategy.custom_type().is_none(),
        }
    }
}

type NameCheck<'a> = &'a dyn Fn(&str, bool) -> Vec<String>;

/// The errors of what a name is generated from.
fn base_errors(object: &Value, path: &Path, name_check: NameCheck<'_>) -> FieldErrors {
    let base = text(object, "/metadata/generateName");
    let reasons = if base.is_empty() { Vec::new() } else { name_check(base, true) };
    reasons.into_iter().map(|reason| FieldError::invalid(&path.child("generateName"), base, reason)).collect()
}

/// The errors of metadata on its own.
pub fn metadata_errors(object: &Value, namespaced: bool, path: &Path, name_check: NameCheck<'_>) -> FieldErrors {
    let mut errors = base_errors(object, path, name_check);
    let name = object::name(object);
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), "name or generateName is required"));
    } else {
        let reasons = name_check(name, false).into_iter();
        errors.extend(reasons.map(|r| FieldError::invalid(&path.child("name"), name, r)));
    }
    let namespace = object::namespace(object);
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(&path.child("namespace"), "")),
        (true, false) => {
            let reasons = names::dns1123_label(namespace).into_iter();
            errors.extend(reasons.map(|r| FieldError::invalid(&path.child("namespace"), namespace, r)));
        }
        (false, true) => {}
        (false, false) => errors.push(FieldError::forbidden(&path.child("namespace"), "not allowed on this type")),
    }
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    if generation < 0 {
        errors.push(FieldError::invalid(&path.child("generation"), generation, "must be greater than or equal to 0"));
    }
    errors.extend(label_errors(labels(object), &path.child("labels")));
    errors.extend(annotation_errors(annotations(object), &path.child("annotations")));
    errors.extend(owner_errors(object::items(object, "/metadata/ownerReferences"), &path.child("ownerReferences")));
    errors.extend(finalizer_errors(object::items(object, "/metadata/finalizers"), &path.child("finalizers")));
    errors
}

fn update_errors(object: &Value, old: &Value, path: &Path) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if object::is_being_deleted(old) {
        let was: HashSet<&str> = object::finalizers(old).collect();
        let mut added: Vec<&str> = object::finalizers(object).filter(|f| !was.contains(f)).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let list = added.iter().map(|f| ferry_meta::field::quote(f)).collect::<Vec<_>>().join(", ");
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
            );
            errors.push(FieldError::forbidden(&path.child("finalizers"), detail));
        }
    }
    if object::resource_version(object).is_empty() {
        errors.push(FieldError::invalid(&path.child("resourceVersion"), "", "must be specified for an update"));
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let pointer = format!("/metadata/{field}");
        let (new, was) = (object.pointer(&pointer), old.pointer(&pointer));
        if new.unwrap_or(&Value::Null) != was.unwrap_or(&Value::Null) {
            let value = new.cloned().unwrap_or(Value::Null);
            errors.push(FieldError::invalid(&path.child(field), value, "field is immutable"));
        }
    }
    errors.extend(label_errors(labels(object), &path.child("labels")));
    errors.extend(annotation_errors(annotations(object), &path.child("annotations")));
    errors.extend(owner_errors(object::items(object, "/metadata/ownerReferences"), &path.child("ownerReferences")));
    errors
}

pub fn label_errors(labels: &Map<String, Value>, path: &Path) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (key, value) in labels {
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::qualified_name(key).into_iter().map(|r| FieldError::invalid(path, key.as_str(), r)));
        errors.extend(names::label_value(value).into_iter().map(|r| FieldError::invalid(path, value, r)));
    }
    errors
}

pub fn annotation_errors(annotations: &Map<String, Value>, path: &Path) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut size = 0;
    for (key, value) in annotations {
        let reasons = names::qualified_name(&key.to_lowercase()).into_iter();
        errors.extend(reasons.map(|r| FieldError::invalid(path, key.as_str(), r)));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long(path, ANNOTATIONS_LIMIT));
    }
    errors
}

fn owner_errors(owners: &[Value], path: &Path) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut controller: Option<String> = None;
    let mut shown = 0;
    for (index, owner) in owners.iter().enumerate() {
        let at = path.index(index);
        let field = |name: &str| owner.get(name).and_then(Value::as_str).unwrap_or_default();
        let version = GroupVersion::parse(field("apiVersion")).filter(|v| !v.version.is_empty());
        if field("apiVersion").is_empty() {
            errors.push(FieldError::required(&at.child("apiVersion"), "must not be empty"));
        } else if version.is_none() {
            let detail = "must be <group>/<version> or <version>";
            errors.push(FieldError::invalid(&at.child("apiVersion"), field("apiVersion"), detail));
        }
        for name in ["kind", "name", "uid"] {
            if field(name).is_empty() {
                errors.push(FieldError::required(&at.child(name), "must not be empty"));
            }
        }
        if field("apiVersion") == "v1" && field("kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(&at, owner.clone(), detail).shown_as(shown_owner(owner)));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{}/{}", field("kind"), field("name"));
            match &controller {
                None => controller = Some(name),
                // All of them are shown each time: a few times are enough.
                Some(_) if shown >= MOST_SHOWN => errors.count_one_more(),
                Some(first) => {
                    shown += 1;
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    );
                    let shown = owners.iter().map(shown_owner).collect::<Vec<_>>().join(",");
                    errors.push(FieldError::invalid(path, json!(owners), detail).shown_as(format!("[{shown}]")));
                }
            }
        }
    }
    errors
}

fn shown_owner(owner: &Value) -> String {
    const ORDER: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let fields: Vec<String> = ORDER
        .iter()
        .filter_map(|key| match owner.get(key) {
            Some(value) => Some(format!("\"{key}\":{value}")),
            // The four texts print even when they are empty.
            None if key.len() <= 10 && *key != "controller" => Some(format!("\"{key}\":\"\"")),
            None => None,
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn finalizer_errors(finalizers: &[Value], path: &Path) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        errors.extend(names::qualified_name(finalizer).into_iter().map(|r| FieldError::invalid(path, finalizer, r)));
    }
    let has = |name: &str| finalizers.iter().any(|f| f.as_str() == Some(name));
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, json!(finalizers), detail));
    }
    errors
}

pub(crate) fn kube_finalizers(object: &Value) -> FieldErrors {
    let path = Path::new("metadata.finalizers");
    let strange = |name: &str| !name.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name);
    object::finalizers(object)
        .enumerate()
        .filter(|(_, name)| strange(name))
        .map(|(index, name)| {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            FieldError::invalid(&path.index(index), name, detail)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;

    use super::*;
    use crate::resource::ResourceTable;

    fn lines(metadata: Value) -> Vec<String> {
        let table = ResourceTable::builtin();
        let row = table.find("", "v1", "configmaps").expect("configmaps");
        let user = UserInfo::anonymous();
        let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
        let errors = row.validate_create(&context, &json!({"metadata": metadata}));
        errors.iter().map(FieldError::line).collect()
    }

    #[test]
    fn metadata_is_refused_with_upstreams_words() {
        let check = |metadata: Value, want: &[&str]| {
            let mut whole = json!({"name": "a", "namespace": "b"});
            for (key, value) in metadata.as_object().into_iter().flatten() {
                whole[key] = value.clone();
            }
            assert_eq!(lines(whole), want);
        };
        check(json!({}), &[]);
        check(
            json!({"annotations": {"/x": ""}}),
            &["metadata.annotations: Invalid value: \"/x\": prefix part must be non-empty"],
        );
        check(
            json!({"finalizers": ["nope"]}),
            &[
                "metadata.finalizers[0]: Invalid value: \"nope\": name is neither a standard finalizer name nor is it fully qualified",
            ],
        );
        check(
            json!({"finalizers": ["orphan", "foregroundDeletion"]}),
            &[
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
            ],
        );
        check(json!({"name": ""}), &["metadata.name: Required value: name or generateName is required"]);
        check(
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "x", "controller": true}]}),
            &[
                "metadata.ownerReferences[0]: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\"uid\":\"x\",\"controller\":true}: /v1, Kind=Event is disallowed from being an owner",
            ],
        );
    }

    #[test]
    fn finalizers_are_judged_on_updates_too_and_each_kind_in_its_way() {
        let table = ResourceTable::builtin();
        let user = UserInfo::anonymous();
        let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
        for (group, plural, refused) in [
            ("", "configmaps", 1),
            ("", "events", 0),
            ("events.k8s.io", "events", 1),
            ("policy", "poddisruptionbudgets", 0),
            ("node.k8s.io", "runtimeclasses", 0),
            ("coordination.k8s.io", "leases", 0),
            ("rbac.authorization.k8s.io", "roles", 1),
        ] {
            let row = table.find(group, "v1", plural).expect(plural);
            let old = json!({"metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"}});
            let mut new = old.clone();
            new["metadata"]["finalizers"] = json!(["x"]);
            let errors = row.validate_update(&context, &new, &old);
            let found = errors.iter().filter(|error| error.line().starts_with("metadata.finalizers")).count();
            assert_eq!(found, refused, "{group} {plural}");
        }
    }

    #[test]
    fn long_bases_are_cut_and_never_inside_a_character() {
        assert_eq!(generated_name("web-", "abcde"), "web-abcde");
        assert_eq!(generated_name(&"x".repeat(100), "abcde").len(), 63);
        assert!(generated_name(&"é".repeat(40), "abcde").ends_with("abcde"));
    }

    #[test]
    fn repeated_owners_are_dropped_with_a_warning() {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "e", "uid": "x"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, owner]}});
        assert!(remove_duplicate_owners(&mut object).is_some_and(|w| w.ends_with("observed: x")));
        assert_eq!(object["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1));
    }
}

//! Patches that change the `kind` or the `apiVersion` of an object.
//!
//! Upstream reads the result of a JSON patch or a merge patch as what it says it is. Built-in kinds have a common internal
//! form for all their versions and are turned into it; a custom resource has to be what the request is about.

use ferry_meta::{ApiError, FieldError, FieldErrors, GroupVersion, GroupVersionKind, Path, object};
use ferry_schema::decode::TypeMeta;
use ferry_schema::patch::Reading;
use serde_json::Value;

use crate::storage::codec::{self, OtherVersions};

/// What a patched object of this kind is read as.
pub(super) fn reading(said: &TypeMeta, own: &GroupVersionKind, of: Option<&OtherVersions<'_>>) -> Reading {
    // Go takes a lone slash for no version.
    let api_version = if said.api_version == "/" { "" } else { said.api_version.as_str() };
    let Some(version) = GroupVersion::parse(api_version) else {
        return Reading::Refused(format!("unexpected GroupVersion string: {api_version}"));
    };
    match of.filter(|of| codec::is_custom(of.row)) {
        Some(of) => custom(said, &version, own, of),
        None => built_in(said, &version, own),
    }
}

fn built_in(said: &TypeMeta, version: &GroupVersion, own: &GroupVersionKind) -> Reading {
    let kind = if said.kind.is_empty() { own.kind.as_str() } else { &said.kind };
    if version.version.is_empty() {
        let unsaid = version.group.is_empty() || version.group == own.group;
        return if unsaid { internal(kind, own) } else { Reading::Missing("apiVersion") };
    }
    let gvk = version.with_kind(kind);
    if gvk == *own {
        return Reading::Own;
    }
    let Some(ty) = codec::type_of(&gvk) else {
        let scheme = codec::scheme(&own.group);
        let version = gvk.api_version();
        return Reading::Refused(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}"
        ));
    };
    if kind == own.kind && family(&gvk) == family(own) {
        return Reading::Other(ty);
    }
    let why = format!("converting ({}) to ({}): unknown conversion", ty.def().go_name, codec::internal_name(own));
    Reading::Foreign(ty, why)
}

/// Without a version it is taken for the internal form, whose fields have other names.
fn internal(kind: &str, own: &GroupVersionKind) -> Reading {
    if kind == own.kind {
        return Reading::Blank;
    }
    let other = own.group_version().with_kind(kind);
    if codec::type_of(&other).is_some() {
        let (from, to) = (codec::internal_name(&other), codec::internal_name(own));
        return Reading::Refused(format!("converting ({from}) to ({to}): unknown conversion"));
    }
    let (group, scheme) = (&own.group, codec::scheme(&own.group));
    Reading::Refused(format!(
        "no kind {kind:?} is registered for the internal version of group {group:?} in scheme {scheme:?}"
    ))
}

/// The group whose internal form a kind has: some kinds have moved, and one is in two groups.
fn family(gvk: &GroupVersionKind) -> &str {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("extensions", "Deployment" | "DaemonSet" | "ReplicaSet") => "apps",
        ("extensions", "Ingress" | "NetworkPolicy") => "networking.k8s.io",
        ("events.k8s.io", "Event") => "",
        (group, _) => group,
    }
}

fn custom(said: &TypeMeta, version: &GroupVersion, own: &GroupVersionKind, of: &OtherVersions<'_>) -> Reading {
    if said.kind.is_empty() {
        return Reading::Missing("Kind");
    }
    if version.group != own.group || said.kind != own.kind {
        return Reading::Free { bare: false };
    }
    if version.version == own.version {
        return Reading::Own;
    }
    let ty = of.row.strategy.type_in(&format!("{}/{}", version.group, version.version));
    ty.map_or(Reading::Free { bare: true }, |ty| Reading::Other(ty.clone()))
}

/// An object that was read as another version of its kind, as the own one. A custom resource that is something else is
/// refused.
pub(super) fn turn(object: &mut Value, own: &GroupVersionKind, of: Option<&OtherVersions<'_>>) -> Result<(), ApiError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let Some(of) = of else { return Ok(()) };
    if codec::is_custom(of.row) {
        let Some(version) = GroupVersion::parse(&api_version).filter(|version| !version.version.is_empty()) else {
            return Err(ApiError::internal("Object 'apiVersion' is missing in 'object has no apiVersion field'"));
        };
        let wanted =
            [("kind", kind.as_str(), own.kind.clone()), ("apiVersion", api_version.as_str(), own.api_version())];
        let mut errors = FieldErrors::new();
        for (key, said, wanted) in wanted.into_iter().filter(|(_, said, wanted)| said != wanted) {
            errors.push(FieldError::invalid(&Path::new(key), said, format!("must be {wanted}")));
        }
        if errors.is_empty() {
            return Ok(());
        }
        let said = version.with_kind(kind.as_str());
        return Err(ApiError::invalid(&said.group_kind(), object::name(object), &errors));
    }
    if api_version.is_empty() || api_version == own.api_version() {
        return Ok(());
    }
    past_defaults(object, own, &api_version);
    let gvk = GroupVersion::parse(&api_version).map(|version| version.with_kind(own.kind.clone()));
    let row = gvk.and_then(|gvk| of.table.find_kind(&gvk));
    if let Some(row) = row.filter(|row| row.storage_prefix == of.row.storage_prefix) {
        row.strategy.default(object);
        let stored = row.strategy.to_storage(std::mem::take(object));
        *object = of.row.strategy.from_storage(stored);
    }
    Ok(())
}

/// A patch may call its result by a version that is served no more but still read. Some of those gave a workload the
/// labels of its template where it had none.
fn past_defaults(object: &mut Value, own: &GroupVersionKind, said: &str) {
    let labels = matches!(
        (said, &*own.group, &*own.kind),
        ("apps/v1beta1", "apps", "Deployment" | "StatefulSet")
            | ("extensions/v1beta1", "apps", "Deployment" | "DaemonSet" | "ReplicaSet")
    );
    let bare = object::labels(object).is_empty();
    let template = object.pointer("/spec/template/metadata/labels").filter(|labels| labels.is_object()).cloned();
    if let (true, true, Some(template)) = (labels, bare, template) {
        object::metadata_mut(object).insert("labels".into(), template);
    }
}

//! Between bytes and objects: decoding bodies by their kind, encoding answers, what the store keeps.

use bytes::Bytes;
use ferry_meta::field::quote;
use ferry_meta::{ApiError, GroupVersion, GroupVersionKind};
use ferry_registry::{Resource, ResourceTable};
use ferry_schema::decode::TypeMeta;
use ferry_schema::{DecodeError, Decoded, Format, Type, Validation, managed, proto};
use serde_json::Value;

use crate::filters::audit;
use crate::request::context::RequestContext;
use crate::request::negotiate::Encoding;
use crate::request::options::FieldValidation;

/// Of a protobuf message that ends behind its magic number.
const EMPTY_MESSAGE: &str = "empty body";

/// What is shown of a body that says not what it is.
const SHOWN_BODY: usize = 64 * 1024;

/// What a thread keeps for encoding.
const KEPT_BUFFER: usize = 64 * 1024;

/// The type of a built-in kind; None for custom resources and for kinds the catalogue does not have.
pub(crate) fn type_of(kind: &GroupVersionKind) -> Option<Type> {
    let catalogue = ferry_schema::builtin();
    let meta = || catalogue.named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{}", kind.kind));
    catalogue.kind(kind).or_else(|| if kind.group == "meta.k8s.io" { meta() } else { None })
}

/// Whether a row came from a CustomResourceDefinition.
pub(crate) fn is_custom(row: &Resource) -> bool {
    row.strategy.custom_type().is_some()
}

/// The type of a row's objects.
pub(crate) fn row_type(row: &Resource) -> Result<Type, ApiError> {
    if let Some(ty) = row.strategy.custom_type() {
        return Ok(ty.clone());
    }
    type_of(&row.gvk).ok_or_else(|| ApiError::internal(format!("no type is known for {}", row.group_kind())))
}

/// Adds what a manager owns after an ordinary write. `live` is None for a new object.
pub(crate) fn managed_update(
    table: &ResourceTable,
    row: &Resource,
    subresource: &str,
    object: &mut Value,
    live: Option<&Value>,
    manager: &str,
) -> Result<(), ApiError> {
    let ty = row_type(row)?;
    let reset = row.strategy.reset_fields(subresource);
    let versions = OtherVersions { table, row };
    let now = ferry_meta::time::now();
    let versions = versions.known();
    let write = managed::Write { gvk: &row.gvk, manager, subresource, reset: &reset, now, versions };
    managed::update(&ty, &write, live, object);
    Ok(())
}

/// The rows that serve the same stored objects as this one in other versions.
pub(crate) struct OtherVersions<'a> {
    pub table: &'a ResourceTable,
    pub row: &'a Resource,
}

impl OtherVersions<'_> {
    /// The row of a built-in kind in one of its versions. Another group is none of them: what was written there is nobody's
    /// any more.
    fn version(&self, api_version: &str) -> Option<&Resource> {
        let gvk = GroupVersion::parse(api_version)?.with_kind(&*self.row.gvk.kind);
        if gvk.group != self.row.gvk.group {
            return None;
        }
        let row = self.table.find_kind(&gvk).filter(|row| row.storage_prefix == self.row.storage_prefix)?;
        Some(row)
    }

    /// None where only a webhook could tell: changes are then compared in the request's version alone.
    pub(crate) fn known(&self) -> Option<&dyn managed::Versions> {
        self.row.strategy.conversion().is_none().then_some(self as &dyn managed::Versions)
    }
}

impl managed::Versions for OtherVersions<'_> {
    fn convert(&self, to: &str, object: &Value) -> Option<Result<(Type, Value), String>> {
        let mut object = object.clone();
        let ty = if is_custom(self.row) {
            // They are not pruned on this way: what another version does not know is an error there.
            match self.row.strategy.type_in(to) {
                Some(ty) => ty.clone(),
                None => return Some(Err(format!("request to convert CR to an invalid group/version: {to}"))),
            }
        } else {
            let from = object.get("apiVersion").and_then(Value::as_str).and_then(|version| self.version(version));
            let (from, row) = (from.unwrap_or(self.row), self.version(to)?);
            object = row.strategy.from_storage(from.strategy.to_storage_bare(object));
            match row_type(row) {
                Ok(ty) => ty,
                Err(error) => return Some(Err(error.0.message.clone())),
            }
        };
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), to.into());
            // Managed fields are no part of what is managed.
            if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
        Some(Ok((ty, object)))
    }
}

/// The same for kinds that are no row: a Scale, a TokenRequest.
pub(crate) fn track(
    ty: &Type,
    gvk: &GroupVersionKind,
    subresource: &str,
    reset: &[&str],
    object: &mut Value,
    live: Option<&Value>,
    manager: &str,
) {
    let write = managed::Write { gvk, manager, subresource, reset, now: ferry_meta::time::now(), versions: None };
    managed::update(ty, &write, live, object);
}

/// JSON as Go would write it.
pub(crate) fn encode(kind: &GroupVersionKind, object: &Value) -> Vec<u8> {
    match type_of(kind) {
        Some(ty) => ferry_schema::encode_json(&ty, object),
        None => ferry_schema::encode::encode_custom(object),
    }
}

/// What goes into the store, of an object in the version that is stored: without its resourceVersion.
pub(crate) fn encode_stored(kind: &GroupVersionKind, object: &Value) -> Bytes {
    thread_local! {
        /// Values stay in memory as long as their objects do, so they get memory of just their size.
        static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let Some(ty) = type_of(kind) else {
        let mut object = object.clone();
        ferry_meta::object::metadata_mut(&mut object).remove("resourceVersion");
        return Bytes::from(ferry_schema::encode::encode_custom(&object).into_boxed_slice());
    };
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        ferry_schema::encode_stored(&ty, object, buffer);
        let stored = Bytes::copy_from_slice(buffer);
        // One huge object is no reason to keep so much for ever.
        buffer.shrink_to(KEPT_BUFFER);
        stored
    })
}

pub(crate) fn pretty(json: &[u8]) -> Bytes {
    ferry_schema::encode::indent(json).into()
}

pub(crate) fn yaml(json: &[u8]) -> Bytes {
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    ferry_schema::yaml::to_yaml(&value).into()
}

/// None where the kind has no protobuf form.
pub(crate) fn to_protobuf(kind: &GroupVersionKind, json: &[u8]) -> Option<Bytes> {
    let ty = type_of(kind)?;
    let object: Value = serde_json::from_slice(json).ok()?;
    Some(proto::encode(&ty, &object).into())
}

pub(crate) fn decode_stored(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|e| e.to_string())
}

pub(crate) fn validation(of: FieldValidation) -> Validation {
    match of {
        FieldValidation::Ignore => Validation::Ignore,
        FieldValidation::Warn => Validation::Warn,
        FieldValidation::Strict => Validation::Strict,
    }
}

pub(crate) fn format(encoding: Encoding) -> Format {
    if encoding == Encoding::Yaml { Format::Yaml } else { Format::Json }
}

/// A body that must be an object of this row.
pub(crate) fn decode_row(
    context: &RequestContext,
    row: &Resource,
    encoding: Encoding,
    body: &[u8],
    fields: FieldValidation,
) -> Result<Value, ApiError> {
    let (Some(ty), expected) = (row.strategy.custom_type(), &row.gvk) else {
        return decode(context, &row.gvk, encoding, body, fields);
    };
    if encoding == Encoding::Protobuf {
        return Err(crate::request::negotiate::unsupported_media_type("application/json, application/yaml"));
    }
    let format = format(encoding);
    let refuse = |e: DecodeError| e.refusal(&expected.kind, &expected.version, &expected.kind, body);
    let opened = ferry_schema::decode::open(body, format).map_err(refuse)?;
    let said = opened.said.clone();
    if said.kind.is_empty() {
        let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BODY)]);
        let missing = format!("Object 'Kind' is missing in '{text}'");
        // Who asks for no field validation is told by another reader of upstream's.
        let told = |e: &str| DecodeError::Type(e.to_owned());
        return Err(refuse(match fields {
            FieldValidation::Ignore => told(&missing),
            _ => DecodeError::Unrecognized(missing),
        }));
    }
    let kind = GroupVersion::parse(&said.api_version).map(|version| version.with_kind(said.kind.clone())).ok_or_else(
        || {
            let why = format!("unexpected GroupVersion string: {}", said.api_version);
            refuse(DecodeError::Unrecognized(why))
        },
    )?;
    let null = said.api_version.is_empty() && opened.has_null("apiVersion");
    let decoded = if null {
        let error = ".apiVersion accessor error: <nil> is of the type <nil>, expected string";
        Err(DecodeError::Type(error.to_owned()))
    } else {
        opened.decode(ty, validation(fields))
    };
    // The schema says nothing of the fields of what is another kind.
    let other = kind.kind != expected.kind || kind.group != expected.group;
    let decoded = match decoded {
        Err(DecodeError::Strict(mut found)) if other => {
            found.retain(|one| one.starts_with("duplicate ") || one.starts_with("unknown field \"metadata."));
            if found.is_empty() {
                ferry_schema::decode::open(body, format).and_then(|opened| opened.decode(ty, Validation::Ignore))
            } else {
                Err(DecodeError::Strict(found))
            }
        }
        decoded => decoded,
    };
    let decoded = decoded.map_err(|error| {
        // Only what could be read takes the place of the object that was expected.
        let place = if matches!(error, DecodeError::Strict(_)) { &kind.kind } else { &expected.kind };
        error.refusal(&kind.kind, &kind.version, place, body)
    })?;
    if kind.group_version() != expected.group_version() {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            kind.api_version(),
            expected.api_version()
        )));
    }
    if kind.kind != expected.kind {
        let path = ferry_meta::Path::new("kind");
        let error = ferry_meta::FieldError::invalid(&path, kind.kind.as_str(), format!("must be {}", expected.kind));
        return Err(ApiError::invalid(&kind.group_kind(), ferry_meta::object::name(&decoded.object), &error.into()));
    }
    for warning in decoded.warnings {
        context.warn(warning);
    }
    audit::request_object(context, &decoded.object, || decoded.object.clone());
    Ok(decoded.object)
}

/// A body that must be an object of this kind; kind and version may be left out.
pub(crate) fn decode(
    context: &RequestContext,
    expected: &GroupVersionKind,
    encoding: Encoding,
    body: &[u8],
    fields: FieldValidation,
) -> Result<Value, ApiError> {
    let format = format(encoding);
    let unrecognized = |e: DecodeError| e.refusal(&expected.kind, &expected.api_version(), &expected.kind, body);
    let opened = match encoding {
        Encoding::Protobuf if body.is_empty() => {
            return Err(unrecognized(DecodeError::Unrecognized("empty data".into())));
        }
        Encoding::Protobuf if body == proto::MAGIC => {
            return Err(unrecognized(DecodeError::Unrecognized(EMPTY_MESSAGE.into())));
        }
        Encoding::Protobuf => None,
        _ => Some(ferry_schema::decode::open(body, format).map_err(unrecognized)?),
    };
    let kind = match &opened {
        Some(opened) => kind_of(&opened.said, expected).map_err(unrecognized)?,
        None => {
            let opened = proto::open(body).map_err(|e| unrecognized(DecodeError::Unrecognized(e.to_string())))?;
            kind_of(&opened.type_meta, expected).map_err(unrecognized)?
        }
    };
    let ty = type_of(&kind).filter(|_| same_scheme(&kind, expected));
    let Some(ty) = ty else { return Err(unknown_kind(&kind, expected)) };
    let decoded = match opened {
        Some(opened) => opened.decode(&ty, validation(fields)),
        None => {
            proto::decode(&ty, body).map(|object| Decoded { object, warnings: Vec::new() }).map_err(|error| match error
            {
                proto::ProtoError::TooLarge(excess) => DecodeError::TooLarge(excess),
                other => DecodeError::Type(other.to_string()),
            })
        }
    };
    let other = kind.kind != expected.kind || kind.group_version() != expected.group_version();
    // An object of another kind cannot be turned into the one expected, whatever fields it has.
    if other && kind.kind != expected.kind && matches!(decoded, Err(DecodeError::Strict(_))) {
        return Err(other_kind(&kind, expected));
    }
    let decoded = decoded.map_err(|e| e.refusal(&kind.kind, &kind.version, &expected.kind, body))?;
    if other {
        return Err(other_kind(&kind, expected));
    }
    for warning in decoded.warnings {
        context.warn(warning);
    }
    let mut object = decoded.object;
    if let Some(map) = object.as_object_mut() {
        map.insert("kind".into(), expected.kind.clone().into());
        map.insert("apiVersion".into(), expected.api_version().into());
    }
    audit::request_object(context, &object, || {
        let mut seen = object.clone();
        // As upstream has it: what the client left out is filled in.
        if let Some(row) = context.row.as_ref().filter(|row| row.gvk == *expected) {
            row.strategy.default(&mut seen);
        }
        seen
    });
    Ok(object)
}

/// What the body says it is, completed by what is expected.
fn kind_of(said: &TypeMeta, expected: &GroupVersionKind) -> Result<GroupVersionKind, DecodeError> {
    let version = if said.api_version.is_empty() {
        expected.group_version()
    } else {
        GroupVersion::parse(&said.api_version)
            .ok_or_else(|| DecodeError::Unrecognized(format!("unexpected GroupVersion string: {}", said.api_version)))?
    };
    let kind = if said.kind.is_empty() { expected.kind.clone() } else { said.kind.clone() };
    Ok(version.with_kind(kind))
}

fn unknown_kind(kind: &GroupVersionKind, expected: &GroupVersionKind) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version {} cannot be handled as a {}: no kind {} is registered for version {} in scheme {:?}",
        kind.kind,
        quote(&kind.version),
        expected.kind,
        quote(&kind.kind),
        quote(&kind.api_version()),
        scheme(&expected.group)
    ))
}

/// How upstream's errors name the scheme that the kinds of a group are in.
pub(crate) fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:56",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// Whether the scheme of one kind knows the other: each server of upstream's has its own, and all of them what belongs to every
/// group.
fn same_scheme(kind: &GroupVersionKind, expected: &GroupVersionKind) -> bool {
    let of_all = kind.group.is_empty()
        && kind.kind != "List"
        && ferry_schema::builtin().named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{}", kind.kind)).is_some();
    of_all || scheme(&kind.group) == scheme(&expected.group)
}

/// How they name the internal form of a kind.
pub(crate) fn internal_name(kind: &GroupVersionKind) -> String {
    let package = match kind.group.split('.').next() {
        None | Some("" | "events") => "core",
        Some(first) => first,
    };
    format!("{package}.{}", kind.kind)
}

fn other_kind(kind: &GroupVersionKind, expected: &GroupVersionKind) -> ApiError {
    if kind.kind == expected.kind {
        return ApiError::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            kind.api_version(),
            expected.api_version()
        ));
    }
    if !same_scheme(kind, expected) {
        return unknown_kind(kind, expected);
    }
    ApiError::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: converting ({}.{}) to ({}): unknown conversion",
        kind.kind,
        kind.version,
        expected.kind,
        kind.version,
        kind.kind,
        internal_name(expected),
    ))
}

/// DeleteOptions of `v1`, `meta.k8s.io/v1` or the resource's own group.
pub(crate) fn decode_delete_options(encoding: Encoding, body: &[u8]) -> Result<Value, ApiError> {
    let format = format(encoding);
    let said = match encoding {
        Encoding::Protobuf if body == proto::MAGIC => Err(EMPTY_MESSAGE.to_owned()),
        Encoding::Protobuf => proto::open(body).map(|e| e.type_meta).map_err(|e| e.to_string()),
        _ => ferry_schema::decode::type_meta(body, format).map_err(|e| e.to_string()),
    }
    .map_err(ApiError::bad_request)?;
    if !said.api_version.is_empty() && GroupVersion::parse(&said.api_version).is_none() {
        return Err(ApiError::bad_request(format!("unexpected GroupVersion string: {}", said.api_version)));
    }
    if said.kind == "Status" && said.api_version == "v1" {
        return Err(ApiError::bad_request("converting (v1.Status) to (v1.DeleteOptions): unknown conversion"));
    }
    if !said.kind.is_empty() && said.kind != "DeleteOptions" {
        return Err(ApiError::bad_request(format!(
            "no kind {:?} is registered for version {:?} in scheme \
             \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
            said.kind,
            if said.api_version.is_empty() { "meta.k8s.io/v1" } else { &said.api_version }
        )));
    }
    let ty = type_of(&GroupVersionKind::new("meta.k8s.io", "v1", "DeleteOptions"))
        .ok_or_else(|| ApiError::internal("the catalogue has no DeleteOptions"))?;
    if encoding == Encoding::Protobuf {
        return proto::decode(&ty, body).map_err(|e| ApiError::bad_request(e.to_string()));
    }
    let decoded = ferry_schema::decode(&ty, body, format, Validation::Ignore)
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
    Ok(decoded.object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_upstreams_servers_knows_its_own_kinds() {
        let gvk = GroupVersionKind::new;
        let definition = gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let service = gvk("apiregistration.k8s.io", "v1", "APIService");
        let map = gvk("", "v1", "ConfigMap");
        for (sent, expected, known) in [
            (&map, &definition, false),
            (&gvk("", "v1", "List"), &definition, false),
            (&gvk("", "v1", "Status"), &definition, true),
            (&gvk("", "v1", "DeleteOptions"), &service, true),
            (&gvk("apps", "v1", "Deployment"), &service, false),
            (&definition, &map, false),
            (&service, &definition, false),
            (&gvk("apps", "v1", "Deployment"), &map, true),
            (&gvk("", "v1", "List"), &map, true),
        ] {
            assert_eq!(same_scheme(sent, expected), known, "{sent:?} for {expected:?}");
        }
    }
}

//! Patches: the four kinds, read once and applied to whatever the live object is at the time.

use bytes::Bytes;
use ferry_meta::{ApiError, Reason, time};
use ferry_registry::Resource;
use ferry_schema::decode::TypeMeta;
use ferry_schema::{Type, managed, patch};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use crate::request::context::RequestContext;
use crate::request::negotiate;
use crate::request::options::{FieldValidation, WriteOptions};
use crate::storage::codec;
use crate::write::{Write, said};

/// What the content type of a PATCH says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Change(patch::PatchKind),
    Apply,
}

impl PatchType {
    /// The route refuses other types before any handler runs.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Change(patch::PatchKind::Json)),
            "application/merge-patch+json" => Ok(Self::Change(patch::PatchKind::Merge)),
            "application/strategic-merge-patch+json" => Ok(Self::Change(patch::PatchKind::Strategic)),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(ApiError::new(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type")
                .with_details(Default::default())),
        }
    }

    /// Custom resources have no strategies to merge by.
    pub(crate) fn check(self, row: &Resource) -> Result<(), ApiError> {
        if self == Self::Change(patch::PatchKind::Strategic) && codec::is_custom(row) {
            let types = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            return Err(negotiate::unsupported_media_type(types));
        }
        Ok(())
    }
}

pub(crate) enum Patch {
    /// Merged into the live object; the body is read each time, since directives are taken out as they are carried out.
    Change(patch::PatchKind, Bytes),
    /// The configuration, and keys that stand in it twice.
    Apply(Value, Vec<String>),
}

impl Patch {
    pub(crate) fn read(context: &RequestContext, of: PatchType, body: &Bytes) -> Result<Self, ApiError> {
        let kind = match of {
            PatchType::Change(kind) => kind,
            PatchType::Apply => {
                let (config, duplicates) = read_apply(body)?;
                if let Some(record) = &context.audit {
                    record.request_patch(|| config.clone());
                }
                return Ok(Self::Apply(config, duplicates));
            }
        };
        // Whether it can be read at all is asked before the object is.
        if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_err() {
            return Err(ApiError::bad_request("invalid JSON patch"));
        }
        if let Some(record) = &context.audit {
            record.request_patch(|| serde_json::from_slice(body).unwrap_or_default());
        }
        Ok(Self::Change(kind, body.clone()))
    }

    /// The live object as the patch wants it: decoded, not yet defaulted. Managed fields are the caller's to track,
    /// except for an apply, which is all about them.
    pub(crate) fn apply(&self, write: &Write<'_>, live: Option<&Value>) -> Result<Value, ApiError> {
        let (row, options) = (write.row, write.options);
        if live.is_none() && matches!(self, Self::Change(..)) {
            return Err(ApiError::not_found(&row.group_resource(), write.name));
        }
        let ty = codec::row_type(row)?;
        let subresource = write.subresource.as_str();
        let reset = row.strategy.reset_fields(subresource);
        let table = write.core.table();
        let versions = codec::OtherVersions { table: &table, row };
        let tracked = managed::Write {
            gvk: &row.gvk,
            manager: &options.field_manager,
            subresource,
            reset: &reset,
            now: time::now(),
            versions: versions.known(),
        };
        self.apply_to(write.context, &ty, &tracked, live, options, write.name, Some(&versions))
    }

    /// The same for an object of any type, such as a Scale. `of` is known where the object is one of a row.
    pub(crate) fn apply_to(
        &self,
        context: &RequestContext,
        ty: &Type,
        write: &managed::Write<'_>,
        live: Option<&Value>,
        options: &WriteOptions,
        name: &str,
        of: Option<&codec::OtherVersions<'_>>,
    ) -> Result<Value, ApiError> {
        let gvk = write.gvk;
        match self {
            Self::Change(kind, body) => {
                let Some(live) = live else { return Err(ApiError::internal(format!("{name} does not exist"))) };
                let read = |meta: &TypeMeta| said::reading(meta, gvk, of);
                let fields = codec::validation(options.field_validation);
                let decoded = patch::apply_read(*kind, ty, live, body, fields, &read)?;
                for warning in decoded.warnings {
                    context.warn(warning);
                }
                let mut object = decoded.object;
                // A strategic merge works on the object's own type, whatever the patch calls it.
                if *kind != patch::PatchKind::Strategic {
                    said::turn(&mut object, gvk, of)?;
                }
                if let Some(map) = object.as_object_mut() {
                    map.insert("kind".into(), gvk.kind.clone().into());
                    map.insert("apiVersion".into(), gvk.api_version().into());
                }
                Ok(object)
            }
            Self::Apply(config, duplicates) => {
                let applied = managed::apply(ty, write, live, config, options.force == Some(true))?;
                // Whether it applies is found out first.
                strictly(context, duplicates, options.field_validation)?;
                Ok(applied)
            }
        }
    }
}

fn read_apply(body: &[u8]) -> Result<(Value, Vec<String>), ApiError> {
    // What begins as JSON does is taken for it.
    let json = body.trim_ascii_start().starts_with(b"{");
    let step = if json { "error decoding patch: error converting YAML to JSON" } else { "error encoding patch" };
    let (value, duplicates) =
        ferry_schema::yaml::parse_value(body).map_err(|e| ApiError::bad_request(format!("{step}: {e}")))?;
    let found = match &value {
        Value::Object(_) | Value::Null => "",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
    };
    if !found.is_empty() {
        return Err(ApiError::bad_request(format!(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go \
             value of type map[string]interface {{}}"
        )));
    }
    Ok((value, duplicates))
}

/// Keys that stand twice in what was applied.
fn strictly(context: &RequestContext, duplicates: &[String], fields: FieldValidation) -> Result<(), ApiError> {
    match fields {
        FieldValidation::Strict if !duplicates.is_empty() => Err(ApiError::bad_request(format!(
            "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
            duplicates.join("\n  ")
        ))),
        FieldValidation::Warn => {
            duplicates.iter().for_each(|d| context.warn(d.clone()));
            Ok(())
        }
        _ => Ok(()),
    }
}

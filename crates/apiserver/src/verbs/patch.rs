//! PATCH of one object: JSON patch, merge patch, strategic merge patch, or server-side apply.

use bytes::Bytes;
use ferry_meta::{ApiError, Reason};
use ferry_registry::Resource;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::match_name;
use crate::answer::Answer;
use crate::context::{RequestContext, Stage};
use crate::objects::Stored;
use crate::options::WriteOptions;
use crate::patching::Patch;
use crate::renewal::{self, Wanted};
use crate::server::Core;
use crate::write::Write;
use crate::{codec, render};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// The route refuses other types before any handler runs.
pub(crate) fn check_route(headers: &HeaderMap) -> Result<PatchKind, ApiError> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        _ => Err(ApiError::new(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type")
            .with_details(Default::default())),
    }
}

/// Custom resources have no strategies to merge by.
pub(crate) fn check_kind(row: &Resource, kind: PatchKind) -> Result<(), ApiError> {
    if kind == PatchKind::Strategic && codec::is_custom(row) {
        let types = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        return Err(crate::negotiate::unsupported_media_type(types));
    }
    Ok(())
}

pub(crate) async fn handle(
    core: &Core,
    context: &RequestContext,
    row: &Resource,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let kind = check_route(&context.headers)?;
    check_kind(row, kind)?;
    let info = &context.info;
    let mut options = WriteOptions::read(&context.query, "PatchOptions", Some(kind == PatchKind::Apply))?;
    let patch = Patch::read(context, kind, &body)?;
    context.stages.done(Stage::Decode);
    if let Patch::Apply(config, _) = &patch {
        options.bare_labels = ferry_meta::object::labels(config).is_empty();
    }
    let write = Write {
        core,
        context,
        row,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: &info.name,
        options: &options,
        admits: true,
    };
    if kind == PatchKind::Merge
        && let Some(json) = renewal::renew(&write, Wanted::Merge(&body)).await?
    {
        return render::object(context, row, 200, &row.gvk, json);
    }
    let written = write
        .update(kind == PatchKind::Apply, |live| {
            let mut object = changed(&write, &patch, live)?;
            match_name(&object, &info.name)?;
            write.match_namespace(&mut object)?;
            Ok(object)
        })
        .await?;
    let code = if written.created { 201 } else { 200 };
    render::object(context, row, code, &row.gvk, written.json(row)?)
}

/// The live object with the patch applied, defaulted, its managed fields up to date.
fn changed(write: &Write<'_>, patch: &Patch, live: Option<&Stored>) -> Result<Value, ApiError> {
    let live = live.map(|l| &l.object);
    let mut object = patch.apply(
        write.context,
        &write.core.table(),
        write.row,
        write.subresource,
        live,
        write.options,
        write.name,
    )?;
    if matches!(patch, Patch::Apply(..)) {
        write.row.strategy.default_applied(&mut object);
    } else {
        write.row.strategy.default(&mut object);
        write.track_fields(&mut object, live)?;
    }
    Ok(object)
}

//! PUT of one object, or of its status.

use bytes::Bytes;
use ferry_meta::ApiError;
use ferry_registry::Resource;

use super::match_name;
use crate::answer::Answer;
use crate::context::{RequestContext, Stage};
use crate::options::WriteOptions;
use crate::renewal::{self, Wanted};
use crate::server::Core;
use crate::write::Write;
use crate::{codec, negotiate, render};

pub(crate) async fn handle(
    core: &Core,
    context: &RequestContext,
    row: &Resource,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let encoding = negotiate::input(&context.headers)?;
    let options = WriteOptions::read(&context.query, "UpdateOptions", None)?;
    let mut object = codec::decode_row(context, row, encoding, &body, options.field_validation)?;
    row.strategy.default(&mut object);
    context.stages.done(Stage::Decode);
    let info = &context.info;
    match_name(&object, &info.name)?;
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
    write.match_namespace(&mut object)?;
    if let Some(json) = renewal::renew(&write, Wanted::Whole(&object)).await? {
        return render::object(context, row, 200, &row.gvk, json);
    }
    let written = write
        .update(false, |live| {
            write.check_uid(&object, live)?;
            let mut new = object.clone();
            write.track_fields(&mut new, live.map(|l| &l.object))?;
            Ok(new)
        })
        .await?;
    let code = if written.created { 201 } else { 200 };
    render::object(context, row, code, &row.gvk, written.json(row)?)
}

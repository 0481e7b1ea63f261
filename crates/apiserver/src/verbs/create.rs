//! POST to a collection.

use bytes::Bytes;
use ferry_meta::{ApiError, object};
use ferry_registry::Resource;

use crate::answer::Answer;
use crate::context::{RequestContext, Stage};
use crate::options::WriteOptions;
use crate::server::Core;
use crate::write::Write;
use crate::{codec, negotiate, render};

pub(crate) async fn handle(
    core: &Core,
    context: &RequestContext,
    row: &Resource,
    body: Bytes,
) -> Result<Answer, ApiError> {
    core.definitions.check_create(row)?;
    let encoding = negotiate::input(&context.headers)?;
    let mut options = WriteOptions::read(&context.query, "CreateOptions", None)?;
    let mut object = codec::decode_row(context, row, encoding, &body, options.field_validation)?;
    options.bare_labels = object::labels(&object).is_empty();
    row.strategy.default(&mut object);
    context.stages.done(Stage::Decode);
    let info = &context.info;
    let write = Write {
        core,
        context,
        row,
        subresource: "",
        namespace: &info.namespace,
        name: "",
        options: &options,
        admits: true,
    };
    let written = write.create(object).await?;
    render::object(context, row, 201, &row.gvk, written.json(row)?)
}

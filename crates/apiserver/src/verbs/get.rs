//! GET of one object.

use ferry_meta::ApiError;
use ferry_registry::Resource;

use crate::answer::Answer;
use crate::context::RequestContext;
use crate::server::Core;
use crate::{reads, render};

pub(crate) async fn handle(core: &Core, context: &RequestContext, row: &Resource) -> Result<Answer, ApiError> {
    let info = &context.info;
    let json = reads::get(core, row, &info.namespace, &info.name, context.query.text("resourceVersion")).await?;
    render::object(context, row, 200, &row.gvk, json)
}

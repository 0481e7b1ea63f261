//! GET of one object.

use ferry_meta::ApiError;
use ferry_registry::Resource;

use crate::answer::Answer;
use crate::context::RequestContext;
use crate::server::Core;
use crate::{reads, render};

pub(crate) async fn handle(core: &Core, context: &RequestContext, row: &Resource) -> Result<Answer, ApiError> {
    let info = &context.info;
    if context.query.flag("export") {
        return Err(ApiError::bad_request("the export parameter, deprecated since v1.14, is no longer supported"));
    }
    let json = reads::get(core, row, &info.namespace, &info.name, context.query.text("resourceVersion")).await?;
    render::object(context, row, 200, &row.gvk, json)
}

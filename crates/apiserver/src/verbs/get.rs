//! GET of one object.

use ferry_meta::ApiError;

use crate::read;
use crate::request::call::Call;
use crate::response::answer::Answer;
use crate::response::render;

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, .. } = call;
    let info = &context.info;
    if context.query.flag("export") {
        return Err(ApiError::bad_request("the export parameter, deprecated since v1.14, is no longer supported"));
    }
    let json = read::get(core, row, &info.namespace, &info.name, context.query.text("resourceVersion")).await?;
    render::object(context, row, 200, &row.gvk, json)
}

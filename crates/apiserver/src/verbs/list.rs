//! GET of a collection.

use ferry_meta::ApiError;

use crate::read;
use crate::read::selection::Selection;
use crate::request::call::Call;
use crate::request::options::ListOptions;
use crate::response::answer::Answer;
use crate::response::{list_body, render};

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, .. } = call;
    let options = ListOptions::read(&context.query, false)?;
    let selection = Selection::new(row, &options, "")?;
    let page = read::list(core, row, &context.info.namespace, &options, &selection).await?;
    match list_body::answer(context, row, page) {
        Ok(answer) => Ok(answer),
        Err(page) => render::list(context, row, &page.meta, &page.json(core, row).await?),
    }
}

//! GET of a collection.

use ferry_meta::ApiError;
use ferry_registry::Resource;

use crate::answer::Answer;
use crate::context::RequestContext;
use crate::options::ListOptions;
use crate::selection::Selection;
use crate::server::Core;
use crate::{list_body, reads, render};

pub(crate) async fn handle(core: &Core, context: &RequestContext, row: &Resource) -> Result<Answer, ApiError> {
    let options = ListOptions::read(&context.query, false)?;
    let selection = Selection::new(row, &options, "")?;
    let page = reads::list(core, row, &context.info.namespace, &options, &selection).await?;
    match list_body::answer(context, row, page) {
        Ok(answer) => Ok(answer),
        Err(page) => render::list(context, row, &page.meta, &page.json(core, row).await?),
    }
}

//! GET of a collection.

use ferry_meta::ApiError;
use ferry_registry::Resource;

use crate::answer::Answer;
use crate::context::RequestContext;
use crate::options::ListOptions;
use crate::selection::Selection;
use crate::server::Core;
use crate::{reads, render};

pub(crate) async fn handle(core: &Core, context: &RequestContext, row: &Resource) -> Result<Answer, ApiError> {
    let options = ListOptions::read(&context.query, false)?;
    let selection = Selection::new(row, &options, "")?;
    let page = reads::list(core, row, &context.info.namespace, &options, &selection).await?;
    render::list(context, row, &page.meta, &page.json(core, row).await?)
}

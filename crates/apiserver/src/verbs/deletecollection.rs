//! DELETE of a collection: each selected object in turn, by the same rules as one alone.

use bytes::Bytes;
use ferry_meta::{ApiError, Reason};
use ferry_registry::Resource;

use super::delete;
use crate::answer::Answer;
use crate::context::RequestContext;
use crate::options::ListOptions;
use crate::selection::Selection;
use crate::server::Core;
use crate::{reads, render};

pub(crate) async fn handle(
    core: &Core,
    context: &RequestContext,
    row: &Resource,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let list = ListOptions::read(&context.query, false)?;
    let selection = Selection::new(row, &list, "")?;
    let options = delete::read_options(context, &body)?;
    delete::warn_of_orphans(context, row, &options);
    let page = reads::list(core, row, &context.info.namespace, &list, &selection).await?;
    for item in &page.items {
        let outcome = delete::delete(core, context, row, item.namespace(), item.name(), &options).await;
        // Whoever else deleted it first did our work.
        if let Err(error) = outcome
            && !error.is(Reason::NotFound)
        {
            return Err(error);
        }
    }
    render::list(context, row, &page.meta, &page.json(core, row).await?)
}

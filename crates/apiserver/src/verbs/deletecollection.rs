//! DELETE of a collection: each selected object by the same rules as one alone, several at a time.

use ferry_meta::{ApiError, FieldError, GroupKind, Path, Reason};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::delete;
use crate::read;
use crate::read::selection::Selection;
use crate::request::call::Call;
use crate::request::context::RequestContext;
use crate::request::options::{IGNORE_READ_ERROR, ListOptions, Match};
use crate::response::answer::Answer;
use crate::response::render;

/// So many objects are read at once where no limit is asked for.
const PAGE: usize = 10_000;
/// So many are on their way at once: a store that is far away makes them durable together.
const AT_ONCE: usize = 16;

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, body } = call;
    let mut list = ListOptions::read(&context.query, false)?;
    let selection = Selection::new(row, &list, "")?;
    let options = delete::read_options(context, &body)?;
    if options.unreadable_only {
        return Err(refusal());
    }
    delete::warn_of_orphans(context, row, &options);
    // A deletion reads pages, so that a version that is asked for is meant exactly. All of them are done unless one was.
    let all = list.limit == 0;
    if all {
        list.limit = PAGE;
    }
    let mut page = read::list(core, row, &context.info.namespace, &list, &selection).await?;
    while let Some(token) = page.meta.continue_token.take_if(|_| all) {
        list.continue_token = token;
        list.resource_version.clear();
        list.resource_version_match = Match::Unset;
        let next = read::list(core, row, &context.info.namespace, &list, &selection).await?;
        page.items.extend(next.items);
        page.meta.continue_token = next.meta.continue_token;
        page.meta.remaining = None;
    }
    // What cannot be read is told before anything goes.
    let shown = page.json(core, row).await?;
    // Where a namespace belongs, an empty one is none: what is in all of them does not go by it.
    if lacks_namespace(context) && !page.items.is_empty() {
        return Err(ApiError::bad_request("Namespace parameter required."));
    }
    let mut rest = page.items.iter();
    let mut under_way = FuturesUnordered::new();
    let mut failed = None;
    loop {
        // After a failure no other is begun, and those that are under way are waited for.
        while under_way.len() < AT_ONCE
            && failed.is_none()
            && let Some(item) = rest.next()
        {
            under_way.push(delete::delete(core, context, row, item.namespace(), item.name(), "", &options));
        }
        match under_way.next().await {
            Some(Ok(_)) => {}
            // Whoever else deleted it first did our work.
            Some(Err(error)) if error.is(Reason::NotFound) => {}
            Some(Err(error)) => drop(failed.get_or_insert(error)),
            None => break,
        }
    }
    match failed {
        Some(error) => Err(error),
        None => render::list(context, row, &page.meta, &shown),
    }
}

fn lacks_namespace(context: &RequestContext) -> bool {
    context.info.in_namespace && context.info.namespace.is_empty()
}

/// What cannot be read is named when it is to go.
fn refusal() -> ApiError {
    let detail = "is not allowed with DELETECOLLECTION, try again after removing the option";
    let errors = FieldError::invalid(&Path::new(IGNORE_READ_ERROR), true, detail).into();
    ApiError::invalid(&GroupKind { group: "meta.k8s.io".into(), kind: "DeleteOptions".into() }, "", &errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::options::DeleteOptions;

    #[test]
    fn what_cannot_be_read_is_deleted_one_by_one() {
        for (body, wanted) in [("{}", false), (r#"{"ignoreStoreReadErrorWithClusterBreakingPotential":true}"#, true)] {
            let body = serde_json::from_str(body).expect("JSON");
            assert_eq!(DeleteOptions::from_object(&body).map(|options| options.unreadable_only).ok(), Some(wanted));
        }
        assert_eq!(
            refusal().0.message,
            "DeleteOptions.meta.k8s.io \"\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: \
             true: is not allowed with DELETECOLLECTION, try again after removing the option"
        );
    }
}

//! What is behind a subresource with a kind of its own, or a kind that is answered and never stored.

mod binding;
mod components;
mod connect;
mod eviction;
mod kubelets;
mod log_socket;
mod placing;
mod proxy;
mod review_selectors;
mod reviews;
mod rewrite;
mod scale;
mod token;

use std::sync::Arc;

use bytes::Bytes;
use ferry_meta::{ApiError, GroupVersionKind, Status};
use ferry_registry::Resource;

pub(crate) use connect::connect;

use crate::answer::Answer;
use crate::context::RequestContext;
use crate::route::not_found;
use crate::server::Core;

/// Subresources with a body of their own kind.
pub(crate) async fn handle(
    core: &Arc<Core>,
    context: &RequestContext,
    row: &Arc<Resource>,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let info = &context.info;
    match (&*info.resource, &*info.subresource) {
        (_, "scale") => scale::handle(core, context, row, body).await,
        ("pods", "binding") => binding::handle(core, context, &info.name, body).await,
        ("pods", "eviction") => eviction::handle(core, context, row, body).await,
        ("serviceaccounts", "token") => token::handle(core, context, row, body).await,
        _ => Err(not_found()),
    }
}

/// Kinds that are answered: reviews, and the old collection of bindings.
pub(crate) async fn answered(
    core: &Arc<Core>,
    context: &RequestContext,
    row: &Arc<Resource>,
    body: Bytes,
) -> Result<Answer, ApiError> {
    if row.gvk.kind == "ComponentStatus" {
        return components::handle(core, context, row).await;
    }
    if row.gvk.kind == "Binding" {
        return binding::handle(core, context, "", body).await;
    }
    reviews::handle(core, context, row, body).await
}

fn status(status: &Status) -> Result<Answer, ApiError> {
    let json = serde_json::to_vec(status).map_err(ApiError::internal)?;
    let code = if status.code == 0 { 200 } else { status.code };
    Ok(Answer::Json { code, kind: GroupVersionKind::new("", "v1", "Status"), json: json.into() })
}

/// An object that names a namespace names that of the path.
fn same_namespace(object: &serde_json::Value, namespace: &str) -> Result<(), ApiError> {
    let given = ferry_meta::object::namespace(object);
    if given.is_empty() || given == namespace {
        return Ok(());
    }
    Err(ApiError::bad_request("the namespace of the provided object does not match the namespace sent on the request"))
}

//! What is behind a subresource with a kind of its own, or a kind that is answered and never stored.

mod binding;
mod binding_fast_path;
mod components;
mod connect;
mod eviction;
mod kubelets;
mod log_socket;
mod proxy;
mod review_selectors;
mod reviews;
mod rewrite;
mod scale;
mod token;

use ferry_meta::{ApiError, GroupVersionKind, Status};

pub(crate) use connect::connect;
pub(crate) use kubelets::kubelet as kubelet_of;

use crate::request::call::Call;
use crate::request::route::not_found;
use crate::request::verb::Subresource;
use crate::resource_metrics;
use crate::response::answer::Answer;

/// Subresources with a body of their own kind.
pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let info = &call.context.info;
    match (&*info.resource, &info.subresource) {
        (_, Subresource::Scale) => scale::handle(call).await,
        ("pods", Subresource::Binding) => binding::handle(call, &info.name).await,
        ("pods", Subresource::Eviction) => eviction::handle(call).await,
        ("serviceaccounts", Subresource::Token) => token::handle(call).await,
        _ => Err(not_found()),
    }
}

/// Kinds that are answered: reviews, the old collection of bindings, what nodes and pods use.
pub(crate) async fn answered(call: Call<'_>) -> Result<Answer, ApiError> {
    match &*call.row.gvk.kind {
        "ComponentStatus" => components::handle(call).await,
        "Binding" => binding::handle(call, "").await,
        "NodeMetrics" | "PodMetrics" => resource_metrics::handle(call).await,
        _ => reviews::handle(call).await,
    }
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

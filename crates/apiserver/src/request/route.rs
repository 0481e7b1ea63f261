//! From the parts of a path to a row of the table: 404 and 405 as upstream's router answers them.

use std::sync::Arc;

use ferry_meta::error::StatusDetails;
use ferry_meta::{ApiError, Reason};
use ferry_registry::{Resource, ResourceTable};
use http::Method;

use crate::request::context::RequestContext;
use crate::request::verb::{Subresource, Verb};
use crate::storage::codec;

pub(crate) enum Route {
    Resource(Arc<Resource>),
    /// Health, version, discovery, OpenAPI, metrics.
    Path,
    /// Plain text, as for anything outside the API.
    NoSuchPage,
}

pub(crate) fn not_found() -> ApiError {
    ApiError::new(404, Reason::NotFound, "the server could not find the requested resource")
        .with_details(Default::default())
}

/// Subresources that are tunnels or streams to a kubelet or a Service.
pub(crate) fn is_stream(row: &Resource, subresource: &Subresource) -> bool {
    row.gvk.group.is_empty() && subresource.is_stream()
}

/// What users of an old API are told with every answer.
pub(crate) fn deprecation(row: &Resource) -> Option<&str> {
    if let Some(text) = row.strategy.deprecation() {
        return Some(text);
    }
    match (&*row.gvk.group, &*row.gvk.version, &*row.gvk.kind) {
        ("", "v1", "Endpoints") => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ("", "v1", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}

pub(crate) fn find(table: &ResourceTable, context: &RequestContext) -> Result<Route, ApiError> {
    let route = of_path(table, context)?;
    let name = context.info.path_name();
    if matches!((&route, name), (Route::Resource(_), "." | "..")) {
        return Err(ApiError::bad_request(format!("Name parameter invalid: {name:?}: may not be '{name}'")));
    }
    Ok(route)
}

fn of_path(table: &ResourceTable, context: &RequestContext) -> Result<Route, ApiError> {
    let info = &context.info;
    if !info.is_resource {
        return Ok(Route::Path);
    }
    if context.info.path.starts_with("//") {
        return Ok(Route::NoSuchPage);
    }
    let Some(row) = table.find(&info.group, &info.version, &info.resource) else {
        // Groups that are not built in, and versions of theirs, are there with their definitions alone.
        let mut in_group = table.rows().iter().filter(|r| r.gvk.group == info.group);
        let known = in_group.any(|r| !codec::is_custom(r));
        return if known { Err(not_found()) } else { Ok(Route::NoSuchPage) };
    };
    let named = !info.path_name().is_empty();
    if row.namespaced != info.in_namespace {
        // All namespaces at once can be listed and watched, nothing else.
        if info.in_namespace || named {
            return if codec::is_custom(row) { Ok(Route::NoSuchPage) } else { Err(not_found()) };
        }
        if !["list", "watch"].iter().any(|verb| row.has_verb(verb)) {
            return Err(not_found());
        }
        let reads = matches!(info.verb, Verb::List | Verb::Watch) && context.method == Method::GET;
        return if reads && row.has_verb(info.verb.as_str()) {
            Ok(Route::Resource(row.clone()))
        } else if codec::is_custom(row) {
            Ok(Route::NoSuchPage)
        } else {
            Err(ApiError::method_not_allowed())
        };
    }
    if !info.subresource.is_main() {
        let Some(subresource) = row.subresource(info.subresource.as_str()) else {
            // Old versions of custom resources are warned of before all else.
            if let Some(warning) = row.strategy.deprecation() {
                context.warn(warning);
            }
            return Err(if codec::is_custom(row) {
                ApiError::not_found(&row.group_resource(), &info.name)
            } else {
                not_found()
            });
        };
        let proxies = info.subresource == Subresource::Proxy;
        if !info.rest.is_empty() && !proxies {
            return Err(not_found());
        }
        let allowed = if is_stream(row, &info.subresource) {
            proxies || matches!(context.method, Method::GET | Method::POST)
        } else {
            context.method != Method::HEAD && subresource.verbs.iter().any(|verb| *verb == info.verb.as_str())
        };
        if !allowed && codec::is_custom(row) {
            let what = format!("{} is not supported on resources of kind \"{}\"", info.verb, row.group_resource());
            let details =
                StatusDetails { group: row.gvk.group.clone(), kind: row.plural.clone(), ..StatusDetails::default() };
            return Err(ApiError::new(405, Reason::MethodNotAllowed, what).with_details(details));
        }
        return if allowed { Ok(Route::Resource(row.clone())) } else { Err(ApiError::method_not_allowed()) };
    }
    if context.method == Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    // A row without any verb for this shape of path has no such path at all.
    let shapes: &[&str] =
        if named { &["get", "update", "patch", "delete"] } else { &["list", "create", "deletecollection"] };
    if !shapes.iter().any(|verb| row.has_verb(verb)) {
        return Err(not_found());
    }
    // Rows name the verbs; the method must also fit the shape of the path.
    let fits = match info.verb {
        Verb::List | Verb::Create | Verb::DeleteCollection => !named,
        Verb::Watch => context.method == Method::GET,
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => named,
        _ => false,
    };
    if fits && row.has_verb(info.verb.as_str()) {
        Ok(Route::Resource(row.clone()))
    } else {
        Err(ApiError::method_not_allowed())
    }
}

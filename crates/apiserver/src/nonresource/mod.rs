//! Everything that is no resource: health, version, discovery, OpenAPI, metrics.

pub(crate) mod health;
mod local_volumes;
pub(crate) mod pages;

use std::sync::Arc;

use bytes::Bytes;
use ferry_meta::{ApiError, GroupVersionKind};
use ferry_metrics::{Page, Scrape};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, VARY};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::discovery;
use crate::discovery::openapi;
use crate::observe::gauges;
use crate::request::context::RequestContext;
use crate::request::negotiate::{self, Encoding};
use crate::request::route::not_found;
use crate::response::answer::{Answer, full};
use crate::server::Core;
use crate::storage::codec;

const AGGREGATED_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(crate) async fn handle(core: &Arc<Core>, context: &mut RequestContext) -> Result<Answer, ApiError> {
    let path = context.info.path.clone();
    let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(&path).split('/').collect();
    if path.starts_with("//") {
        return Ok(Answer::no_such_page());
    }
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", rest @ ..] => health::handle(core, context, parts[0], rest).await,
        ["version"] | ["version", ""] => {
            only_get(context)?;
            context.negotiated = negotiate::json_only(&context.headers, &context.query)?;
            Ok(document("", &version()))
        }
        ["metrics"] if context.method == Method::DELETE => {
            core.metrics.reset();
            Ok(Answer::text(200, "metrics reset\n"))
        }
        ["metrics"] => {
            let scrape = scrape(context);
            Ok(scraped(&scrape, gauges::page(core, &scrape)))
        }
        ["metrics", "slis"] => {
            let scrape = scrape(context);
            Ok(scraped(&scrape, gauges::service_levels(core, &scrape).await))
        }
        ["api"] | ["api", ""] => discovery_document(core, context, true),
        ["apis"] | ["apis", ""] => discovery_document(core, context, false),
        ["api", version] | ["api", version, ""] => resource_list(core, context, "", version),
        ["apis", group] | ["apis", group, ""] => {
            let Some(found) = discovery::group(&core.table(), &core.aggregation.remotes(), group) else {
                return Ok(Answer::no_such_page());
            };
            negotiate_handler(context)?;
            Ok(document("APIGroup", &found))
        }
        ["apis", group, version] | ["apis", group, version, ""] => resource_list(core, context, group, version),
        ["openapi", rest @ ..] => openapi::handle(core, context, rest).await,
        [".well-known", "openid-configuration"] => {
            only_get(context)?;
            negotiate::only(&context.headers, "application/json")?;
            Ok(core.openid_configuration())
        }
        ["openid", "v1", "jwks"] => {
            only_get(context)?;
            negotiate::only(&context.headers, "application/jwk-set+json")?;
            Ok(core.jwks())
        }
        ["ferry", "v1", "secrets", "rotate"] => rotate_secrets(core, context).await,
        ["ferry", "v1", "local-volumes", node] => local_volumes::handle(core, context, node, None).await,
        ["ferry", "v1", "local-volumes", node, name] => local_volumes::handle(core, context, node, Some(*name)).await,
        ["statusz"] => pages::statusz(core, context),
        ["flagz"] => pages::flagz(core, context),
        ["debug", "pprof", rest @ ..] => Ok(pages::profiles(context, rest)),
        ["debug", "flight", rest @ ..] => crate::observe::flight::page(core, context, rest).await,
        ["debug", "verdicts", namespace, name] => crate::observe::flight::verdict(core, context, namespace, name).await,
        ["debug", "flags", rest @ ..] => Ok(pages::flags(context, rest)),
        ["debug", "api_priority_and_fairness", page] => Ok(crate::filters::fairness::page(core, page)
            .map_or_else(Answer::no_such_page, |text| Answer::text(200, text))),
        // The index is the same to everybody, whatever they accept.
        [""] | ["index.html"] => {
            let paths = ferry_schema::encode::indent(json!({"paths": root_paths(core)}).to_string().as_bytes());
            Ok(Answer::Plain { code: 200, content_type: "application/json", body: paths.into() })
        }
        _ => Ok(Answer::no_such_page()),
    }
}

/// A new key for what is encrypted at rest.
async fn rotate_secrets(core: &Core, context: &RequestContext) -> Result<Answer, ApiError> {
    if context.method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    let Some(rotation) = &core.secret_rotation else { return Ok(Answer::no_such_page()) };
    let count = rotation.rotate().await.map_err(ApiError::internal)?;
    Ok(Answer::text(200, format!("{count}\n")))
}

fn scrape(context: &RequestContext) -> Scrape {
    Scrape::new(&negotiate::accept(&context.headers), context.query.all("name[]").map(str::to_owned))
}

fn scraped(scrape: &Scrape, page: Page) -> Answer {
    let (content_type, body) = scrape.answer(page);
    Answer::Plain { code: 200, content_type, body: body.into() }
}

fn only_get(context: &RequestContext) -> Result<(), ApiError> {
    if context.method == Method::GET { Ok(()) } else { Err(ApiError::method_not_allowed()) }
}

fn route_and_negotiate(context: &mut RequestContext) -> Result<(), ApiError> {
    negotiate::check_route(&context.headers, false)?;
    negotiate_handler(context)
}

fn negotiate_handler(context: &mut RequestContext) -> Result<(), ApiError> {
    context.negotiated = negotiate::output(&context.headers, &context.query, negotiate::Offer::PLAIN)?;
    Ok(())
}

fn document(kind: &str, value: &Value) -> Answer {
    let kind = GroupVersionKind::new("", "v1", kind);
    Answer::Json { code: 200, json: codec::encode(&kind, value).into(), kind }
}

fn resource_list(core: &Core, context: &mut RequestContext, group: &str, version: &str) -> Result<Answer, ApiError> {
    let table = core.table();
    let Some(list) = discovery::resource_list(&table, group, version) else {
        let known = table.rows().iter().any(|r| r.gvk.group == group && !codec::is_custom(r));
        return if known { Err(not_found()) } else { Ok(Answer::no_such_page()) };
    };
    only_get(context)?;
    route_and_negotiate(context)?;
    Ok(document("APIResourceList", &list))
}

/// The aggregated form wherever it is accepted at all, the old one otherwise.
fn discovery_document(core: &Core, context: &mut RequestContext, is_core: bool) -> Result<Answer, ApiError> {
    let accept = context.header("accept").to_owned();
    let wanted = accept.split(',').find_map(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next()?;
        let parameters: Vec<&str> = parts.collect();
        let fits = ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"].iter().all(|p| parameters.contains(p));
        match media {
            "application/json" if fits => Some(Encoding::Json),
            "application/vnd.kubernetes.protobuf" if fits => Some(Encoding::Protobuf),
            _ => None,
        }
    });
    let table = core.table();
    if let Some(encoding) = wanted {
        let documents = core.discovery.aggregated(&table, &core.aggregation.remotes());
        let (body, tag) = if is_core { documents.core } else { documents.groups };
        return Ok(aggregated(context, encoding, body, &tag));
    }
    if is_core {
        negotiate::check_route(&context.headers, false)?;
    }
    negotiate_handler(context)?;
    let value = if is_core {
        only_get(context)?;
        discovery::core_versions(&core.advertised)
    } else {
        discovery::group_list(&table, &core.aggregation.remotes())
    };
    Ok(document(if is_core { "APIVersions" } else { "APIGroupList" }, &value))
}

fn aggregated(context: &RequestContext, encoding: Encoding, body: Bytes, tag: &str) -> Answer {
    let kind = GroupVersionKind::new("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList");
    let protobuf = (encoding == Encoding::Protobuf).then(|| codec::to_protobuf(&kind, &body)).flatten();
    let (content_type, body) = match protobuf {
        Some(bytes) => (AGGREGATED_PROTOBUF, bytes),
        None => (AGGREGATED_TYPE, body),
    };
    tagged_response(context, content_type, body, tag, "public")
}

/// A document that clients keep: an unchanged one is answered with 304.
pub(crate) fn tagged_response(
    context: &RequestContext,
    content_type: &str,
    body: Bytes,
    tag: &str,
    cache_control: &'static str,
) -> Answer {
    let unchanged = context.header("if-none-match").split(',').any(|t| t.trim() == tag);
    let gzipped = (!unchanged && body.len() >= 128 * 1024 && crate::response::answer::accepts_gzip(context))
        .then(|| crate::response::answer::compress(&body))
        .flatten();
    let encoded = gzipped.is_some();
    let body = if unchanged { Bytes::new() } else { gzipped.unwrap_or(body) };
    let mut response = Response::new(full(body));
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
    if let Ok(value) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, value);
    }
    if encoded {
        headers.insert(http::header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Ok(value) = HeaderValue::from_str(content_type) {
        headers.insert(CONTENT_TYPE, value);
    }
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    Answer::Ready(response)
}

/// What the versions of Go, of this program and of its API are called.
pub(crate) const RUNTIME: &str = "go0";
pub(crate) const BINARY_VERSION: &str = "1.37.0";
pub(crate) const EMULATED_VERSION: &str = "1.37";

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "37",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "gitVersion": format!("v{BINARY_VERSION}"),
        "gitCommit": option_env!("FERRY_COMMIT").unwrap_or("unknown"),
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": RUNTIME,
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, platform()),
    })
}

fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn root_paths(core: &Core) -> Vec<String> {
    let table = core.table();
    let mut paths: Vec<String> =
        ["/.well-known/openid-configuration", "/api", "/api/v1", "/apis", "/apis/"].map(String::from).into();
    for (group, versions) in table.groups() {
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
            paths.extend(versions.iter().map(|v| format!("/apis/{group}/{v}")));
        }
    }
    for root in ["healthz", "livez", "readyz"] {
        paths.push(format!("/{root}"));
        paths.extend(health::checks(root).map(|check| format!("/{root}/{check}")));
    }
    paths.extend(
        [
            "/flagz",
            "/metrics",
            "/metrics/slis",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/",
            "/openid/v1/jwks",
            "/statusz",
            "/version",
        ]
        .map(String::from),
    );
    paths.sort();
    paths
}

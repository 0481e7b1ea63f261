//! Streams and tunnels: log, exec, attach, portforward and proxy, forwarded to where the pod is.

use std::fmt::Write as _;
use std::sync::Arc;

use ferry_admission::Operation;
use ferry_meta::{ApiError, FieldError, GroupKind, GroupVersionKind, Path, Reason, object};
use ferry_registry::Resource;
use http::header::{HOST, LOCATION, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::rewrite::{self, ProxyRoot};
use super::{kubelets, log_socket, proxy};
use crate::filters::rights;
use crate::request::context::RequestContext;
use crate::request::query::Query;
use crate::request::verb::Subresource;
use crate::response::answer::{Answer, Body, full};
use crate::server::Core;
use crate::storage::objects;
use crate::transport::kubelet::{self, Target};
use crate::transport::websocket;
use crate::write::admission::{self, Attributes};

/// A kubelet's refusal is a line or two.
const LONGEST_REFUSAL: usize = 64 * 1024;

pub(crate) async fn connect(
    core: &Arc<Core>,
    context: &RequestContext,
    row: &Arc<Resource>,
    request: Request<Body>,
) -> Result<Answer, ApiError> {
    let info = &context.info;
    if info.subresource == Subresource::Log {
        return log(core, context, row, request).await;
    }
    // A browser opens a WebSocket with GET; what it opens is not for readers. A kubelet opens the same sessions, and knows
    // this server, not the user.
    let is_session = info.resource == "nodes" && request.headers().contains_key(UPGRADE);
    if info.subresource != Subresource::Proxy || is_session {
        rights::must_create(core, context).await?;
    }
    let options = options_kind(&info.resource, &info.subresource);
    if info.subresource == Subresource::PortForward
        && let Some(port) = context.query.all("ports").find(|port| port.parse::<u64>().is_err())
    {
        let why = format!("cannot convert to []int32: strconv.ParseUint: parsing {port:?}: invalid syntax");
        return Err(ApiError::bad_request(why));
    }
    let seen = options_object(&options.kind, &context.query, &info.rest);
    let attributes = Attributes {
        operation: Operation::Connect,
        row,
        kind: &options,
        subresource: info.subresource.as_str(),
        namespace: &info.namespace,
        name: &info.name,
        dry_run: false,
        options: &seen,
    };
    let mut object = seen.clone();
    admission::mutate(core, context, &attributes, Some(&mut object), None).await?;
    admission::validate(core, context, &attributes, Some(&mut object), None).await?;
    let mut target = match (&*info.resource, &info.subresource) {
        ("pods", Subresource::Exec | Subresource::Attach) => streams(core, context, row).await?,
        ("pods", Subresource::PortForward) => {
            let pod = objects::must_load(core, row, &info.namespace, &info.name).await?.object;
            let ports: Vec<(&str, String)> = context.query.all("ports").map(|p| ("port", p.to_owned())).collect();
            kubelets::of_pod(core, &pod, &format!("/portForward/{}/{}", info.namespace, info.name), &ports)?
        }
        ("nodes", Subresource::Proxy) => kubelets::node_proxy(core, context)?,
        ("pods", Subresource::Proxy) => proxy::pod(core, context, row).await?,
        ("services", Subresource::Proxy) => proxy::service(core, context)?,
        _ => return Err(crate::request::route::not_found()),
    };
    if info.subresource != Subresource::Proxy && !request.headers().contains_key(UPGRADE) {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    if info.subresource != Subresource::Proxy {
        return kubelet::forward(&core.tasks, &target, request).await.map(Answer::Ready);
    }
    if let Some(redirect) = to_root(context, &request) {
        return Ok(Answer::Ready(redirect));
    }
    keep_slash(&mut target.path, request.uri().path());
    let asked = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    let prefix = match &*info.namespace {
        "" => format!("/api/v1/{}/{}/proxy", info.resource, info.name),
        namespace => format!("/api/v1/namespaces/{namespace}/{}/{}/proxy", info.resource, info.name),
    };
    let place =
        ProxyRoot { prefix, hosts: vec![asked, format!("{}:{}", target.host, target.port), target.host.clone()] };
    let answer = kubelet::forward(&core.tasks, &target, request).await?;
    Ok(Answer::Ready(rewrite::rewritten(answer, place)))
}

/// Without the slash at the end, relative links of the page would lead elsewhere.
fn to_root(context: &RequestContext, request: &Request<Body>) -> Option<Response<Body>> {
    let path = request.uri().path();
    let reads = matches!(context.method, Method::GET | Method::HEAD) && !request.headers().contains_key(UPGRADE);
    if !reads || !context.info.rest.is_empty() || path.ends_with('/') {
        return None;
    }
    let query = context.raw_query.as_deref().filter(|query| !query.is_empty());
    let location = format!("{path}/{}", query.map(|query| format!("?{query}")).unwrap_or_default());
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(LOCATION, HeaderValue::from_str(&location).ok()?);
    Some(response)
}

/// Folders of many servers are there with the slash at the end only.
fn keep_slash(path: &mut String, asked: &str) {
    let end = path.find('?').unwrap_or(path.len());
    if asked.ends_with('/') && !path.get(..end).is_some_and(|path| path.ends_with('/')) {
        path.insert(end, '/');
    }
}

fn options_kind(resource: &str, subresource: &Subresource) -> GroupVersionKind {
    let kind = match (resource, subresource) {
        ("pods", Subresource::Exec) => "PodExecOptions",
        ("pods", Subresource::Attach) => "PodAttachOptions",
        ("pods", Subresource::PortForward) => "PodPortForwardOptions",
        ("nodes", _) => "NodeProxyOptions",
        ("services", _) => "ServiceProxyOptions",
        _ => "PodProxyOptions",
    };
    GroupVersionKind::new("", "v1", kind)
}

/// What was asked for, as the object that admission looks at.
fn options_object(kind: &str, query: &Query, rest: &[String]) -> Value {
    let mut object = json!({"kind": kind, "apiVersion": "v1"});
    match kind {
        "PodExecOptions" | "PodAttachOptions" => {
            for flag in ["stdin", "stdout", "stderr", "tty"].into_iter().filter(|flag| query.flag(flag)) {
                object[flag] = true.into();
            }
            if let Some(container) = query.get("container").filter(|name| !name.is_empty()) {
                object["container"] = container.into();
            }
            let command: Vec<&str> = query.all("command").collect();
            if kind == "PodExecOptions" {
                object["command"] = json!(command);
            }
        }
        "PodPortForwardOptions" => {
            let ports: Vec<i64> = query.all("ports").filter_map(|port| port.parse().ok()).collect();
            if !ports.is_empty() {
                object["ports"] = json!(ports);
            }
        }
        _ => {
            if !rest.is_empty() {
                object["path"] = format!("/{}", rest.join("/")).into();
            }
        }
    }
    object
}

async fn log(
    core: &Arc<Core>,
    context: &RequestContext,
    row: &Resource,
    request: Request<Body>,
) -> Result<Answer, ApiError> {
    if context.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    let info = &context.info;
    check_log_options(context)?;
    let pod = objects::must_load(core, row, &info.namespace, &info.name).await?.object;
    let container = container_of(context, &pod)?;
    if object::text(&pod, "/spec/nodeName").is_empty() {
        // Nothing runs yet, so nothing was said yet.
        return Ok(Answer::Plain { code: 204, content_type: "", body: Default::default() });
    }
    let mut parameters: Vec<(&str, String)> = Vec::new();
    for flag in ["follow", "previous", "timestamps"] {
        if context.query.flag(flag) {
            parameters.push((flag, "true".into()));
        }
    }
    for key in ["sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"] {
        if let Some(value) = context.query.get(key) {
            parameters.push((key, value.to_owned()));
        }
    }
    let path = format!("/containerLogs/{}/{}/{container}", info.namespace, info.name);
    let target = kubelets::of_pod(core, &pod, &path, &parameters)?;
    let answer = if websocket::is_wanted(request.headers()) {
        log_socket::open(core, &target, request).await?
    } else {
        kubelet::forward(&core.tasks, &target, request).await?
    };
    let good = answer.status().is_success() || answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if good { Ok(Answer::Ready(answer)) } else { Err(refusal(answer).await) }
}

/// What a kubelet said in plain text, as a Status: clients show nothing else.
async fn refusal(answer: Response<Body>) -> ApiError {
    let code = answer.status().as_u16();
    let mut body = answer.into_body();
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            text.extend_from_slice(&data);
        }
        if text.len() > LONGEST_REFUSAL {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text).trim_end().to_owned();
    match code {
        400 => ApiError::bad_request(text),
        404 => {
            ApiError::new(404, Reason::NotFound, format!("the server could not find the requested resource: {text}"))
        }
        _ => ApiError::new(code, Reason::InternalError, format!("Internal error occurred: {text}")),
    }
}

fn check_log_options(context: &RequestContext) -> Result<(), ApiError> {
    if let Some(since) = context.query.get("sinceTime") {
        ferry_schema::go_time::time(since).map_err(|why| ApiError::bad_request(why.to_string()))?;
    }
    let mut errors = ferry_meta::FieldErrors::new();
    for (key, least, why) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        if let Some(value) = context.query.integer(key)?.filter(|v| *v < least) {
            errors.push(FieldError::invalid(&Path::new(key), value, why));
        }
    }
    if context.query.has("sinceSeconds") && context.query.has("sinceTime") {
        errors.push(FieldError::forbidden(
            &Path::new("[]"),
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ));
    }
    // Choosing one of the two streams is behind a gate that is off by default.
    if context.query.has("stream") {
        errors.push(FieldError::forbidden(&Path::new("stream"), "may not be specified"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(
        &GroupKind { group: String::new(), kind: "PodLogOptions".into() },
        &context.info.name,
        &errors,
    ))
}

/// The container that is meant: the named one, or the only one.
fn container_of(context: &RequestContext, pod: &Value) -> Result<String, ApiError> {
    let name = object::name(pod);
    let all: Vec<&str> = ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"]
        .into_iter()
        .flat_map(|list| object::items(pod, list))
        .map(|c| object::text(c, "/name"))
        .collect();
    let wanted = context.query.text("container");
    if !wanted.is_empty() {
        return if all.contains(&wanted) {
            Ok(wanted.to_owned())
        } else {
            Err(ApiError::bad_request(format!("container {wanted} is not valid for pod {name}")))
        };
    }
    match object::items(pod, "/spec/containers") {
        [one] => Ok(object::text(one, "/name").to_owned()),
        [] => Err(ApiError::bad_request(format!("a container name must be specified for pod {name}"))),
        _ => {
            let message =
                format!("a container name must be specified for pod {name}, choose one of: [{}]", all.join(" "));
            Err(ApiError::bad_request(message))
        }
    }
}

async fn streams(core: &Core, context: &RequestContext, row: &Resource) -> Result<Target, ApiError> {
    let info = &context.info;
    let pod = objects::must_load(core, row, &info.namespace, &info.name).await?.object;
    let container = container_of(context, &pod)?;
    let mut parameters: Vec<(&str, String)> = Vec::new();
    for (theirs, ours) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if context.query.flag(theirs) {
            parameters.push((ours, "1".into()));
        }
    }
    parameters.extend(context.query.all("command").map(|c| ("command", c.to_owned())));
    let path = format!("/{}/{}/{}/{container}", info.subresource, info.namespace, info.name);
    kubelets::of_pod(core, &pod, &path, &parameters)
}

pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(byte as char);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// What stands behind `proxy` in the path, with the query.
pub(super) fn rest(context: &RequestContext) -> String {
    let mut path = String::new();
    for part in &context.info.rest {
        path.push('/');
        path.push_str(&part.split('/').map(escape).collect::<Vec<_>>().join("/"));
    }
    if path.is_empty() {
        path.push('/');
    }
    if let Some(query) = context.raw_query.as_deref() {
        path.push('?');
        path.push_str(query);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slash_at_the_end_is_kept() {
        for (path, asked, want) in [
            ("/logs", "/api/v1/nodes/n/proxy/logs/", "/logs/"),
            ("/logs?a=b/", "/api/v1/nodes/n/proxy/logs/", "/logs/?a=b/"),
            ("/logs", "/api/v1/nodes/n/proxy/logs", "/logs"),
            ("/?a", "/api/v1/nodes/n/proxy/", "/?a"),
        ] {
            let mut path = path.to_owned();
            keep_slash(&mut path, asked);
            assert_eq!(path, want);
        }
    }

    #[test]
    fn admission_sees_what_a_connection_asks_for() {
        for (kind, query, rest, want) in [
            ("PodAttachOptions", "stdin=true&container=c&tty=false", "", json!({"stdin": true, "container": "c"})),
            ("PodExecOptions", "command=sh&command=-c&stdout=1", "", json!({"command": ["sh", "-c"], "stdout": true})),
            ("PodPortForwardOptions", "ports=80&ports=x", "", json!({"ports": [80]})),
            ("ServiceProxyOptions", "", "a", json!({"path": "/a"})),
            ("NodeProxyOptions", "", "", json!({})),
        ] {
            let rest: Vec<String> = rest.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
            let mut want = want;
            want["kind"] = kind.into();
            want["apiVersion"] = "v1".into();
            assert_eq!(options_object(kind, &Query::parse(query), &rest), want);
        }
    }
}

//! The pages for people who look after a server: `/statusz`, `/flagz`, and what is left of `/debug/pprof`.

use std::fmt::Write;

use ferry_meta::{ApiError, GroupVersionKind, Reason, time};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, LOCATION};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::request::context::RequestContext;
use crate::request::negotiate::{Encoding, Negotiated};
use crate::response::answer::{Answer, full};
use crate::server::Core;

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.";
const GROUP: &str = "config.k8s.io";
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];
/// What a status page names as worth a look.
const PATHS: [&str; 7] = ["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"];

/// What the process was started with, and when.
pub(crate) struct Started {
    at: jiff::Timestamp,
    /// Flags by name, with their values.
    pub flags: arc_swap::ArcSwap<Vec<(String, String)>>,
}

impl Default for Started {
    fn default() -> Self {
        Self { at: time::now(), flags: Default::default() }
    }
}

/// The text for people, or an object of a version.
enum Form {
    Text,
    Object(Encoding, &'static str),
}

/// Text is what anybody gets who does not ask for the object by name.
fn form(context: &RequestContext, kind: &str) -> Result<Form, ApiError> {
    let headers = context.headers.get_all(ACCEPT);
    let accept: Vec<&str> = headers.iter().filter_map(|value| value.to_str().ok()).collect();
    let accept = accept.join(",");
    if accept.trim().is_empty() {
        return Ok(Form::Text);
    }
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        let has = |key: &str, value: &str| parameters.contains(&&*format!("{key}={value}"));
        let version = VERSIONS.into_iter().find(|version| has("v", version));
        let encoding = match media {
            "text/plain" | "text/*" | "*/*" => return Ok(Form::Text),
            "application/json" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            _ => continue,
        };
        if let (true, true, Some(version)) = (has("g", GROUP), has("as", kind), version) {
            return Ok(Form::Object(encoding, version));
        }
    }
    let message = "only the following media types are accepted: application/json, application/yaml, text/plain";
    Err(ApiError::new(406, Reason::NotAcceptable, message))
}

fn object(context: &mut RequestContext, kind: &str, encoding: Encoding, version: &str, fields: &str) -> Answer {
    if version == VERSIONS[0] {
        let page = kind.to_lowercase();
        context.warn(format!("This version of the {page} endpoint is deprecated. Please use a newer version."));
    }
    let pretty = crate::request::negotiate::wants_pretty(&context.headers, &context.query, false);
    context.negotiated = Negotiated { encoding, pretty, ..Negotiated::default() };
    let json = format!(
        "{{\"kind\":\"{kind}\",\"apiVersion\":\"{GROUP}/{version}\",\"metadata\":{{\"name\":\"apiserver\"}},{fields}}}"
    );
    Answer::Json { code: 200, kind: GroupVersionKind::new(GROUP, version, kind), json: json.into() }
}

pub(crate) fn statusz(core: &Core, context: &mut RequestContext) -> Result<Answer, ApiError> {
    let began = core.started.at;
    let up = (time::now().as_second() - began.as_second()).max(0);
    match form(context, "Statusz")? {
        Form::Text => Ok(Answer::text(
            200,
            format!(
                "\napiserver statusz\n{WARNING}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: {}\nBinary version: {}\nEmulation version: {}\nPaths: {}\n",
                began.strftime("%a %b %e %H:%M:%S UTC %Y"),
                up / 3600,
                up / 60 % 60,
                up % 60,
                crate::nonresource::RUNTIME,
                crate::nonresource::BINARY_VERSION,
                crate::nonresource::EMULATED_VERSION,
                PATHS.join(" ")
            ),
        )),
        Form::Object(encoding, version) => {
            let fields = format!(
                "\"startTime\":{},\"uptimeSeconds\":{up},\"goVersion\":\"{}\",\"binaryVersion\":\"{}\",\"emulationVersion\":\"{}\",\"paths\":{}",
                json!(time::time(began)),
                crate::nonresource::RUNTIME,
                crate::nonresource::BINARY_VERSION,
                crate::nonresource::EMULATED_VERSION,
                json!(PATHS)
            );
            Ok(object(context, "Statusz", encoding, version, &fields))
        }
    }
}

pub(crate) fn flagz(core: &Core, context: &mut RequestContext) -> Result<Answer, ApiError> {
    let flags = core.started.flags.load_full();
    match form(context, "Flagz")? {
        Form::Text => {
            let mut text = format!("\napiserver flagz\n{WARNING}\n");
            for (name, value) in flags.iter() {
                let _ = writeln!(text, "{name}: {value}");
            }
            Ok(Answer::text(200, text))
        }
        Form::Object(encoding, version) => {
            let map: serde_json::Map<String, Value> =
                flags.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
            Ok(object(context, "Flagz", encoding, version, &format!("\"flags\":{}", Value::Object(map))))
        }
    }
}

/// What can be changed while the server runs. The verbosity of Go's logs is not that of these: it is not taken.
pub(crate) fn flags(context: &RequestContext, rest: &[&str]) -> Answer {
    if rest != ["v"] {
        let text = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n<table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";
        return Answer::Plain { code: 200, content_type: "text/html; charset=utf-8", body: text.into() };
    }
    let (code, text) = match context.method {
        Method::PUT => (405, "the verbosity of the logs is set by RUST_LOG when the server starts\n"),
        _ => (406, "unsupported http method\n"),
    };
    Answer::Plain { code, content_type: "text/plain", body: text.into() }
}

/// Profiles are Go's: there are none here, and none is known by name.
pub(crate) fn profiles(context: &RequestContext, rest: &[&str]) -> Answer {
    let html = |code: StatusCode, text: &'static str| {
        let mut response = Response::new(full(text));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        response
    };
    match rest {
        [] => {
            // Go's redirection shows a link to who can follow one.
            let read = matches!(context.method, Method::GET | Method::HEAD);
            let text = if read { "<a href=\"/debug/pprof/\">Found</a>.\n\n" } else { "" };
            let mut response = html(StatusCode::FOUND, text);
            if !read {
                response.headers_mut().remove(CONTENT_TYPE);
            }
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("/debug/pprof/"));
            Answer::Ready(response)
        }
        [""] => Answer::Ready(html(
            StatusCode::OK,
            "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/\n<br>\nTypes of profiles available:\n<table>\n<thead><td>Count</td><td>Profile</td></thead>\n</table>\n</body>\n</html>\n",
        )),
        ["symbol"] => Answer::text(200, "num_symbols: 0\n"),
        _ => Answer::text(404, "Unknown profile\n"),
    }
}

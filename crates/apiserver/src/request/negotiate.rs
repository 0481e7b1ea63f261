//! Which representation the answer takes, and which the body came in.

use ferry_meta::{ApiError, Reason};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::request::query::Query;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// What the objects of an answer are turned into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transform {
    #[default]
    None,
    /// With the version of `meta.k8s.io` that was asked for.
    Table(String),
    PartialMetadata(String),
    /// The same for a list, where each item is one.
    PartialMetadataList(String),
}

/// What a resource can be shown as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Whether anything but the kind itself can be had: of documents and errors it cannot.
    pub transforms: bool,
    pub tables: bool,
    /// Custom resources have no protobuf form; their metadata has.
    pub protobuf: bool,
}

impl Offer {
    pub(crate) const PLAIN: Self = Self { transforms: false, tables: false, protobuf: true };
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Negotiated {
    pub encoding: Encoding,
    pub transform: Transform,
    pub pretty: bool,
}

const REPRESENTATIONS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    weight: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept
        .split(',')
        .filter_map(|text| {
            let mut parts = text.split(';').map(str::trim);
            let (kind, subtype) =
                parts.next()?.split_once('/').or(if text.trim() == "*" { Some(("*", "*")) } else { None })?;
            let mut weight = 1.0;
            let mut parameters = Vec::new();
            for part in parts {
                let (key, value) = part.split_once('=').unwrap_or((part, ""));
                match key {
                    "q" => weight = value.parse().unwrap_or(1.0),
                    _ => parameters.push((key, value)),
                }
            }
            Some(Clause { kind, subtype, weight, parameters })
        })
        .collect();
    clauses.sort_by(|a, b| b.weight.total_cmp(&a.weight).then((a.kind == "*").cmp(&(b.kind == "*"))));
    clauses
}

/// The whole header `Accept`, however many lines it has.
pub(crate) fn accept(headers: &HeaderMap) -> String {
    let all: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|v| v.to_str().ok()).collect();
    all.join(",")
}

/// What a plain-text answer costs: browsers and curl get JSON that people can read.
pub(crate) fn wants_pretty(headers: &HeaderMap, query: &Query, parameter: bool) -> bool {
    if parameter {
        return true;
    }
    // A bare `pretty` counts as not given.
    match query.get("pretty").unwrap_or_default() {
        "" => {
            let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
            !query.has("pretty") && ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
        }
        text => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
}

/// What the route itself offers, before any handler runs: only exact media types and `*/*` pass.
pub(crate) fn check_route(headers: &HeaderMap, streams: bool) -> Result<(), ApiError> {
    let accept = accept(headers);
    let offered = |media: &str| {
        matches!(media, "*/*" | "application/json" | "application/yaml" | "application/vnd.kubernetes.protobuf")
    };
    let fits = accept.is_empty() || accept.split(',').any(|c| offered(c.split(';').next().unwrap_or_default().trim()));
    if fits {
        return Ok(());
    }
    let streams = if streams { format!(", {STREAMS}") } else { String::new() };
    let message = format!("406: Not Acceptable\n\nAvailable representations: {REPRESENTATIONS}{streams}");
    Err(ApiError::new(406, Reason::NotAcceptable, message).with_details(Default::default()))
}

/// What a document that exists as JSON only answers with: other types may be named beside it.
pub(crate) fn json_only(headers: &HeaderMap, query: &Query) -> Result<Negotiated, ApiError> {
    only(headers, "application/json")?;
    Ok(Negotiated { pretty: wants_pretty(headers, query, false), ..Negotiated::default() })
}

/// That a document which exists as one type is accepted as that.
pub(crate) fn only(headers: &HeaderMap, media: &str) -> Result<(), ApiError> {
    let accept = accept(headers);
    let fits = |clause: &str| ["*/*", media].contains(&clause.split(';').next().unwrap_or_default().trim());
    if accept.trim().is_empty() || accept.split(',').any(fits) {
        return Ok(());
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {media}");
    Err(ApiError::new(406, Reason::NotAcceptable, message).with_details(Default::default()))
}

/// What the handler of an object or list answers with.
pub(crate) fn output(headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Negotiated, ApiError> {
    find(headers, query, offer, false).ok_or_else(|| not_acceptable(REPRESENTATIONS))
}

/// The same for a watch, whose events are JSON or protobuf.
pub(crate) fn stream(headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Negotiated, ApiError> {
    // A watch is a list first: what a list cannot be is told in its words.
    output(headers, query, offer)?;
    find(headers, query, offer, true).ok_or_else(|| not_acceptable(STREAMS))
}

/// The encoding of an error: whatever can be had, JSON otherwise. The flag tells that nothing fitted.
pub(crate) fn for_errors(headers: &HeaderMap, query: &Query) -> Negotiated {
    find(headers, query, Offer::PLAIN, false).unwrap_or(Negotiated { pretty: true, ..Negotiated::default() })
}

fn not_acceptable(types: &str) -> ApiError {
    let message = format!("only the following media types are accepted: {types}");
    ApiError::new(406, Reason::NotAcceptable, message)
}

fn find(headers: &HeaderMap, query: &Query, offer: Offer, stream: bool) -> Option<Negotiated> {
    let accept = accept(headers);
    if accept.trim().is_empty() {
        return Some(Negotiated { pretty: wants_pretty(headers, query, false), ..Negotiated::default() });
    }
    for clause in clauses(&accept) {
        let candidates = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];
        for encoding in candidates.into_iter().filter(|e| !(stream && *e == Encoding::Yaml)) {
            let (kind, subtype) = encoding.media_type().split_once('/').unwrap_or_default();
            let fits = (clause.kind == kind && (clause.subtype == subtype || clause.subtype == "*"))
                || (clause.kind == "*" && clause.subtype == "*");
            if fits && let Some(transform) = transform(&clause, encoding, offer, stream) {
                let parameter = clause.parameters.contains(&("pretty", "1"));
                return Some(Negotiated { encoding, transform, pretty: wants_pretty(headers, query, parameter) });
            }
        }
    }
    None
}

/// None when this clause asks for what the encoding cannot give.
fn transform(clause: &Clause<'_>, encoding: Encoding, offer: Offer, stream: bool) -> Option<Transform> {
    let parameter = |key: &str| clause.parameters.iter().find(|(k, _)| *k == key).map_or("", |(_, v)| *v);
    let wanted_stream = parameter("stream");
    if !wanted_stream.is_empty() && (encoding == Encoding::Yaml || wanted_stream != "watch") {
        return None;
    }
    let _ = stream;
    let (kind, group, version) = (parameter("as"), parameter("g"), parameter("v"));
    if kind.is_empty() && group.is_empty() && version.is_empty() {
        let known = encoding != Encoding::Protobuf || offer.protobuf;
        return known.then_some(Transform::None);
    }
    if !offer.transforms || group != "meta.k8s.io" || !matches!(version, "v1" | "v1beta1") {
        return None;
    }
    match kind {
        "Table" if offer.tables && encoding != Encoding::Protobuf => Some(Transform::Table(version.to_owned())),
        "PartialObjectMetadata" => Some(Transform::PartialMetadata(version.to_owned())),
        "PartialObjectMetadataList" => Some(Transform::PartialMetadataList(version.to_owned())),
        _ => None,
    }
}

/// The encoding of a request's body; an absent type means JSON.
pub(crate) fn input(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let mut parts = content_type.split(';');
    let media_type = parts.next().unwrap_or_default().trim();
    // A parameter has a value; only the last one may be missing altogether.
    let parameters: Vec<&str> = parts.map(str::trim).collect();
    let (last, others) = parameters.split_last().unwrap_or((&"", &[]));
    let named = |parameter: &str| parameter.split_once('=').is_some_and(|(name, _)| !name.is_empty());
    if !(others.iter().all(|parameter| named(parameter)) && (last.is_empty() || named(last))) {
        return Err(unsupported_media_type(REPRESENTATIONS));
    }
    match media_type {
        "" if content_type.is_empty() => Ok(Encoding::Json),
        "application/json" => Ok(Encoding::Json),
        "application/yaml" => Ok(Encoding::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Encoding::Protobuf),
        _ => Err(unsupported_media_type(REPRESENTATIONS)),
    }
}

pub(crate) fn unsupported_media_type(types: &str) -> ApiError {
    let message = format!("the body of the request was in an unknown format - accepted media types include: {types}");
    ApiError::new(415, Reason::UnsupportedMediaType, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().expect("a header"));
        headers
    }

    #[test]
    fn parameters_of_a_content_type_have_values() {
        for (content_type, fits) in [
            ("application/json", true),
            ("application/json;", true),
            ("application/json; charset=utf-8", true),
            ("application/json; x", false),
            ("application/json;; charset=utf-8", false),
            (";", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, content_type.parse().expect("a header"));
            assert_eq!(input(&headers).is_ok(), fits, "{content_type}");
        }
    }

    #[test]
    fn a_watch_is_a_list_first() {
        let offer = Offer { transforms: true, tables: true, protobuf: true };
        for (accept, want) in [
            ("application/json;as=Table;v=v1;g=meta.k8s.io", None),
            ("application/json;as=Table;v=v2;g=meta.k8s.io", Some(REPRESENTATIONS)),
            ("text/html", Some(REPRESENTATIONS)),
            ("application/yaml", Some(STREAMS)),
        ] {
            let said = stream(&headers(accept), &Query::default(), offer).err().map(|error| error.0.message);
            assert_eq!(said, want.map(|types| not_acceptable(types).0.message), "{accept}");
        }
    }

    #[test]
    fn a_client_that_prefers_protobuf_gets_what_is_json_only() {
        for (accept, fits) in [
            ("application/vnd.kubernetes.protobuf,application/json", true),
            ("application/vnd.kubernetes.protobuf, */*", true),
            ("application/json;q=0.5", true),
            ("application/vnd.kubernetes.protobuf", false),
            ("application/yaml", false),
        ] {
            let got = json_only(&headers(accept), &Query::default()).map(|n| n.encoding).ok();
            assert_eq!(got, fits.then_some(Encoding::Json), "{accept}");
        }
    }

    #[test]
    fn accept_is_read_as_upstream_reads_it() {
        let query = Query::default();
        for (accept, route, want) in [
            ("*/*", true, Some((Encoding::Json, Transform::None))),
            ("application/*", false, Some((Encoding::Json, Transform::None))),
            ("application/JSON", false, None),
            ("application/json;q=0", true, Some((Encoding::Json, Transform::None))),
            ("application/yaml;q=0.5,application/json;q=0.9", true, Some((Encoding::Json, Transform::None))),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                true,
                Some((Encoding::Json, Transform::Table("v1".into()))),
            ),
            ("application/json;as=Table;v=v7;g=meta.k8s.io", true, None),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", true, None),
        ] {
            let headers = headers(accept);
            assert_eq!(check_route(&headers, false).is_ok(), route, "{accept}");
            let got = output(&headers, &query, Offer { transforms: true, tables: true, protobuf: true })
                .ok()
                .map(|n| (n.encoding, n.transform));
            assert_eq!(got, want, "{accept}");
        }
    }
}

//! The routes: HTTPRoute, GRPCRoute, and TLSRoute, TCPRoute and UDPRoute, which differ in their hostnames alone.

use serde::{Deserialize, Serialize};

use super::{ObjectRef, gateway_group, gateway_kind, service_kind};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    #[serde(default = "gateway_group")]
    pub group: String,
    #[serde(default = "gateway_kind")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendRef {
    #[serde(default)]
    pub group: String,
    #[serde(default = "service_kind")]
    pub kind: String,
    pub name: String,
    #[serde(default)]
    pub namespace: Option<String>,
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub weight: Option<u32>,
    #[serde(default)]
    pub filters: Vec<RouteFilter>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HTTPRouteSpec {
    pub parent_refs: Vec<ParentRef>,
    pub hostnames: Vec<String>,
    pub rules: Vec<HTTPRouteRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HTTPRouteRule {
    pub name: Option<String>,
    pub matches: Vec<HTTPRouteMatch>,
    pub filters: Vec<RouteFilter>,
    pub backend_refs: Vec<BackendRef>,
    pub timeouts: Option<Timeouts>,
    pub retry: Option<Retry>,
    pub session_persistence: Option<SessionPersistence>,
}

/// Of the experimental channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionPersistence {
    pub session_name: Option<String>,
    #[serde(rename = "type")]
    pub type_: Option<String>,
    pub absolute_timeout: Option<String>,
    pub idle_timeout: Option<String>,
    pub cookie_config: Option<CookieConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CookieConfig {
    pub lifetime_type: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    pub request: Option<String>,
    pub backend_request: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retry {
    pub attempts: Option<u32>,
    pub codes: Vec<u16>,
    pub backoff: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HTTPRouteMatch {
    pub path: Option<PathMatch>,
    pub headers: Vec<ValueMatch>,
    pub query_params: Vec<ValueMatch>,
    pub method: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathMatch {
    #[serde(rename = "type")]
    pub type_: Option<String>,
    pub value: Option<String>,
}

/// A header or a query parameter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ValueMatch {
    #[serde(rename = "type")]
    pub type_: Option<String>,
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteFilter {
    #[serde(rename = "type")]
    pub type_: String,
    pub request_header_modifier: Option<HeaderFilter>,
    pub response_header_modifier: Option<HeaderFilter>,
    pub request_mirror: Option<RequestMirror>,
    pub request_redirect: Option<RequestRedirect>,
    pub url_rewrite: Option<UrlRewrite>,
    pub cors: Option<Cors>,
    pub extension_ref: Option<ObjectRef>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeaderFilter {
    pub set: Vec<HeaderValue>,
    pub add: Vec<HeaderValue>,
    pub remove: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeaderValue {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestMirror {
    pub backend_ref: BackendRef,
    pub percent: Option<u32>,
    pub fraction: Option<Fraction>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fraction {
    pub numerator: u32,
    pub denominator: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestRedirect {
    pub scheme: Option<String>,
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
    pub port: Option<u16>,
    pub status_code: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UrlRewrite {
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PathModifier {
    #[serde(rename = "type")]
    pub type_: String,
    pub replace_full_path: Option<String>,
    pub replace_prefix_match: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cors {
    pub allow_origins: Vec<String>,
    pub allow_credentials: Option<bool>,
    pub allow_methods: Vec<String>,
    pub allow_headers: Vec<String>,
    pub expose_headers: Vec<String>,
    pub max_age: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GRPCRouteSpec {
    pub parent_refs: Vec<ParentRef>,
    pub hostnames: Vec<String>,
    pub rules: Vec<GRPCRouteRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GRPCRouteRule {
    pub name: Option<String>,
    pub matches: Vec<GRPCRouteMatch>,
    pub filters: Vec<RouteFilter>,
    pub backend_refs: Vec<BackendRef>,
    pub session_persistence: Option<SessionPersistence>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GRPCRouteMatch {
    pub method: Option<MethodMatch>,
    pub headers: Vec<ValueMatch>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MethodMatch {
    #[serde(rename = "type")]
    pub type_: Option<String>,
    pub service: Option<String>,
    pub method: Option<String>,
}

/// Of TLSRoute, TCPRoute and UDPRoute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamRouteSpec {
    pub parent_refs: Vec<ParentRef>,
    pub hostnames: Vec<String>,
    pub rules: Vec<StreamRouteRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamRouteRule {
    pub name: Option<String>,
    pub backend_refs: Vec<BackendRef>,
}

/// Lists that are read from JSON have room for more than what is in them. Of routes there are many, and they stay.
fn shrink_backends(backends: &mut Vec<BackendRef>) {
    backends.iter_mut().for_each(|backend| shrink_filters(&mut backend.filters));
    backends.shrink_to_fit();
}

fn shrink_filters(filters: &mut Vec<RouteFilter>) {
    for filter in &mut *filters {
        for edit in [&mut filter.request_header_modifier, &mut filter.response_header_modifier].into_iter().flatten() {
            edit.set.shrink_to_fit();
            edit.add.shrink_to_fit();
            edit.remove.shrink_to_fit();
        }
    }
    filters.shrink_to_fit();
}

impl HTTPRouteSpec {
    pub fn shrink(&mut self) {
        for rule in &mut self.rules {
            for one in &mut rule.matches {
                one.headers.shrink_to_fit();
                one.query_params.shrink_to_fit();
            }
            rule.matches.shrink_to_fit();
            shrink_filters(&mut rule.filters);
            shrink_backends(&mut rule.backend_refs);
        }
        self.rules.shrink_to_fit();
        self.hostnames.shrink_to_fit();
        self.parent_refs.shrink_to_fit();
    }
}

impl GRPCRouteSpec {
    pub fn shrink(&mut self) {
        for rule in &mut self.rules {
            rule.matches.iter_mut().for_each(|one| one.headers.shrink_to_fit());
            rule.matches.shrink_to_fit();
            shrink_filters(&mut rule.filters);
            shrink_backends(&mut rule.backend_refs);
        }
        self.rules.shrink_to_fit();
        self.hostnames.shrink_to_fit();
        self.parent_refs.shrink_to_fit();
    }
}

impl StreamRouteSpec {
    pub fn shrink(&mut self) {
        self.rules.iter_mut().for_each(|rule| shrink_backends(&mut rule.backend_refs));
        self.rules.shrink_to_fit();
        self.hostnames.shrink_to_fit();
        self.parent_refs.shrink_to_fit();
    }
}

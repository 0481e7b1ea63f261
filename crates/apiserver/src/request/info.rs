//! What a request asks for, read from its method, path and query by upstream's rules.

use ferry_meta::names;
use ferry_meta::selector::FieldSelector;
use http::Method;

use crate::request::query::Query;
use crate::request::verb::{Subresource, Verb};

/// The parts of `/api/v1/namespaces/<namespace>/<resource>/<name>/<subresource>` and its like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// False for `/healthz`, `/version`, discovery and the like: then only `path` and `verb` are set.
    pub is_resource: bool,
    /// The decoded path.
    pub path: String,
    pub verb: Verb,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub subresource: Subresource,
    pub name: String,
    /// What follows the subresource: the path behind `proxy/`.
    pub rest: Vec<String>,
    /// The old `/watch/` prefix was used.
    pub watch_prefix: bool,
    /// The name came from a `metadata.name` field selector, for authorization alone.
    pub name_from_selector: bool,
    /// The path had `/namespaces/<namespace>/` before the resource.
    pub in_namespace: bool,
}

impl RequestInfo {
    pub(crate) fn read(method: &Method, raw_path: &str, query: &Query) -> Self {
        let path = crate::request::query::decode(raw_path, false);
        let mut info =
            Self { path: path.clone(), verb: Verb::from(&*method.as_str().to_lowercase()), ..Self::default() };
        let all: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (groupless, mut parts) = match all.as_slice() {
            ["api", rest @ ..] if all.len() >= 3 => (true, rest),
            ["apis", rest @ ..] if all.len() >= 4 => (false, rest),
            _ => return info,
        };
        if !groupless {
            info.group = parts[0].to_owned();
            parts = &parts[1..];
        }
        info.is_resource = true;
        info.version = parts[0].to_owned();
        parts = &parts[1..];
        info.verb = match *method {
            Method::POST => Verb::Create,
            Method::GET | Method::HEAD => Verb::Get,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ => Verb::default(),
        };
        if matches!(parts, ["watch" | "proxy"]) {
            info.watch_prefix = true;
            return info;
        }
        if parts.len() >= 2 && matches!(parts[0], "watch" | "proxy") {
            info.verb = Verb::from(parts[0]);
            info.watch_prefix = parts[0] == "watch";
            parts = &parts[1..];
        }
        if parts[0] == "namespaces" {
            if parts.len() > 1 {
                info.namespace = parts[1].to_owned();
                if parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
                    info.in_namespace = true;
                    parts = &parts[2..];
                }
            }
        } else {
            info.namespace.clear();
        }
        info.resource = parts[0].to_owned();
        if let Some(name) = parts.get(1) {
            info.name = (*name).to_owned();
        }
        if let Some(subresource) = parts.get(2).filter(|_| info.verb != Verb::Proxy && !info.watch_prefix) {
            info.subresource = Subresource::from(*subresource);
            info.rest = parts[3..].iter().map(|p| (*p).to_owned()).collect();
        }
        if info.name.is_empty() && info.verb == Verb::Get {
            info.verb = if query.flag("watch") { Verb::Watch } else { Verb::List };
        }
        if info.name.is_empty() && info.verb == Verb::Delete {
            info.verb = Verb::DeleteCollection;
        }
        if info.name.is_empty()
            && matches!(info.verb, Verb::List | Verb::Watch)
            && let Ok(selector) = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())
            && let Some(name) = selector.required("metadata.name")
            && names::path_segment(name).is_empty()
        {
            info.name = name.to_owned();
            info.name_from_selector = true;
        }
        info
    }

    /// The name in the path itself.
    pub(crate) fn path_name(&self) -> &str {
        if self.name_from_selector { "" } else { &self.name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, uri: &str, want: [&str; 7]) {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let info = RequestInfo::read(&method, path, &Query::parse(query));
        let got = [
            info.verb.as_str(),
            &*info.group,
            &*info.version,
            &*info.namespace,
            &*info.resource,
            &*info.name,
            info.subresource.as_str(),
        ];
        assert_eq!(got, want, "{method} {uri}");
    }

    #[test]
    fn paths_read_as_upstream() {
        check("GET", "/api/v1/namespaces", ["list", "", "v1", "", "namespaces", "", ""]);
        check("GET", "/api/v1/namespaces/a", ["get", "", "v1", "a", "namespaces", "a", ""]);
        check("PUT", "/api/v1/namespaces/a/finalize", ["update", "", "v1", "a", "namespaces", "a", "finalize"]);
        check("GET", "/api/v1/namespaces/a/pods?watch=1", ["watch", "", "v1", "a", "pods", "", ""]);
        check("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", ["list", "", "v1", "", "pods", "x", ""]);
        check("GET", "/api/v1/namespaces/a/pods/p/log", ["get", "", "v1", "a", "pods", "p", "log"]);
        check(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            ["deletecollection", "apps", "v1", "a", "deployments", "", ""],
        );
        check("GET", "/api/v1/watch/namespaces/a/pods/p", ["watch", "", "v1", "a", "pods", "p", ""]);
        check("GET", "/apis/apps/v1", ["get", "", "", "", "", "", ""]);
        check("POST", "/healthz", ["post", "", "", "", "", "", ""]);
        check("GET", "/api/v1/namespaces/n/configmaps/..%2Fx", ["get", "", "v1", "n", "configmaps", "..", "x"]);
    }
}

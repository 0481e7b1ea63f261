//! The paths that are no resources: what discovery answers, the version, the keys of issued tokens.

use serde_json::{Value, json};

use super::naming;
use super::operations::{ANSWERS, Dialect, reference};
use crate::catalogue::META;

/// Groups whose kinds travel but are served by nobody: they are spoken of in no document.
const UNSPOKEN: [&str; 6] =
    ["", "apidiscovery.k8s.io", "audit.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io", "meta.k8s.io"];

/// Groups that the server of custom resources does not know.
const NOT_FOR_CUSTOM: [&str; 4] =
    ["admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"];

/// Every group and version that options of requests are known in.
pub(super) fn known_groups(custom: bool) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = crate::builtin()
        .types()
        .iter()
        .map(|known| (known.group.to_string(), known.version.to_string()))
        .filter(|(group, _)| !UNSPOKEN.contains(&&**group) && group != "metrics.k8s.io")
        .filter(|(group, _)| !custom || !NOT_FOR_CUSTOM.contains(&&**group))
        .collect();
    all.push((String::new(), "v1".to_owned()));
    all.sort();
    all.dedup();
    all
}

/// The path of a document that is no resource's: `apis/apps` tells of the group, `apis/apps/v1` of its resources.
pub(super) fn path(name: &str, dialect: Dialect) -> Option<(String, Value)> {
    let meta = |leaf: &str| Some(format!("{META}.{leaf}"));
    let parts: Vec<&str> = name.split('/').collect();
    let versions = "get available API versions";
    let resources = "get available resources";
    let (tag, description, identifier, answer) = match parts.as_slice() {
        ["version"] => (
            "version".to_owned(),
            "get the version information for this server",
            "getCodeVersion".to_owned(),
            Some("io.k8s.apimachinery.pkg.version.Info".to_owned()),
        ),
        [".well-known", "openid-configuration"] => (
            "WellKnown".to_owned(),
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            "getServiceAccountIssuerOpenIDConfiguration".to_owned(),
            None,
        ),
        ["openid", "v1", "jwks"] => (
            "openid".to_owned(),
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            "getServiceAccountIssuerOpenIDKeyset".to_owned(),
            None,
        ),
        ["api"] => ("core".to_owned(), versions, "getCoreAPIVersions".to_owned(), meta("APIVersions")),
        ["apis"] => ("apis".to_owned(), versions, "getAPIVersions".to_owned(), meta("APIGroupList")),
        ["apis", group] => (
            naming::tag(group, ""),
            "get information of a group",
            format!("get{}APIGroup", naming::group_words(group)),
            meta("APIGroup"),
        ),
        ["api", version] => (
            naming::tag("", version),
            resources,
            format!("getCore{}APIResources", version.to_uppercase()),
            meta("APIResourceList"),
        ),
        ["apis", group, version] => (
            naming::tag(group, version),
            resources,
            format!("get{}{}APIResources", naming::group_words(group), version.replacen('v', "V", 1)),
            meta("APIResourceList"),
        ),
        _ => return None,
    };
    let types: &[&str] = match parts[0] {
        "openid" => &["application/jwk-set+json"],
        "version" | ".well-known" => &["application/json"],
        _ => &ANSWERS,
    };
    let schema = answer.as_ref().map_or_else(|| json!({"type": "string"}), |name| reference(name, dialect));
    let mut operation = json!({
        "tags": [tag],
        "description": description,
        "operationId": identifier,
        "responses": {"401": {"description": "Unauthorized"}},
    });
    operation["responses"]["200"] = match dialect {
        Dialect::V2 => json!({"description": "OK", "schema": schema}),
        Dialect::V3 => {
            let content: serde_json::Map<String, Value> =
                types.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
            json!({"description": "OK", "content": content})
        }
    };
    if dialect == Dialect::V2 {
        operation["produces"] = json!(types);
        operation["schemes"] = json!(["https"]);
        if answer.is_some() {
            operation["consumes"] = json!(types);
        }
    }
    Some((format!("/{name}/"), json!({"get": operation})))
}

//! One rule of a role: what it allows, and how it reads in messages.

use std::fmt::Write;

use ferry_meta::field::quote;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::authorize::Attributes;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicyRule {
    #[serde(deserialize_with = "nullable")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

fn nullable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::<Vec<String>>::deserialize(deserializer)?.unwrap_or_default())
}

/// The rules of a Role or ClusterRole. One that cannot be read allows nothing.
pub fn rules_of(role: &Value) -> Vec<PolicyRule> {
    let rules = ferry_meta::object::items(role, "/rules");
    rules.iter().filter_map(|rule| PolicyRule::deserialize(rule).ok()).collect()
}

impl PolicyRule {
    pub fn new(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Self {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self { verbs: own(verbs), api_groups: own(groups), resources: own(resources), ..Self::default() }
    }

    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !listed(&self.verbs, attributes.verb) {
            return false;
        }
        if !attributes.is_resource {
            return self.non_resource_urls.iter().any(|url| url_matches(url, attributes.path));
        }
        listed(&self.api_groups, attributes.group)
            && self.resources.iter().any(|r| resource_matches(r, attributes.resource, attributes.subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == attributes.name))
    }

    /// `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`: as upstream writes rules into messages.
    pub fn compact(&self) -> String {
        let mut out = String::from("{");
        for (title, list) in [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ] {
            if !list.is_empty() {
                let lead = if out.len() > 1 { ", " } else { "" };
                let texts: Vec<String> = list.iter().map(|text| quote(text)).collect();
                let _ = write!(out, "{lead}{title}:[{}]", texts.join(" "));
            }
        }
        out.push('}');
        out
    }
}

fn listed(list: &[String], wanted: &str) -> bool {
    list.iter().any(|text| text == "*" || text == wanted)
}

/// `*` is every resource and subresource, `*/scale` that subresource of every resource.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    rule.split_once('/').is_some_and(|(r, s)| s == subresource && (r == "*" || r == resource))
}

pub(super) fn url_matches(rule: &str, path: &str) -> bool {
    rule == "*" || rule == path || rule.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_meta::UserInfo;

    #[test]
    fn rules_allow_what_they_name() {
        let user = UserInfo::default();
        let base = PolicyRule::new(&["get"], &[""], &["pods/log", "*/scale", "secrets"]);
        let check = |rule: &PolicyRule, verb: &str, resource: &str, subresource: &str, want: bool| {
            let attributes = Attributes { subresource, name: "x", ..Attributes::resource(&user, verb, "", resource) };
            assert_eq!(rule.allows(&attributes), want, "{verb} {resource}/{subresource}");
        };
        check(&base, "get", "pods", "log", true);
        check(&base, "get", "pods", "", false);
        check(&base, "get", "anything", "scale", true);
        check(&base, "get", "secrets", "", true);
        check(&base, "get", "secrets", "status", false);
        check(&base, "list", "secrets", "", false);
        check(&PolicyRule::new(&["*"], &["*"], &["*"]), "list", "pods", "status", true);
        check(&PolicyRule::new(&["*"], &["apps"], &["*"]), "list", "pods", "", false);
        let named = PolicyRule { resource_names: vec!["y".into()], ..base };
        check(&named, "get", "secrets", "", false);
    }

    #[test]
    fn rules_for_paths_allow_no_resource_without_a_name() {
        let user = UserInfo::default();
        let rule = PolicyRule {
            verbs: vec!["get".into()],
            non_resource_urls: vec!["/apis/*".into()],
            ..PolicyRule::default()
        };
        let path = "/apis/example.com/v1//namespaces/x/things";
        assert!(!rule.allows(&Attributes { path, ..Attributes::resource(&user, "get", "example.com", "") }));
        assert!(rule.allows(&Attributes::path(&user, "get", path)));
    }

    #[test]
    fn paths_match_by_prefix() {
        let user = UserInfo::default();
        for (rule, path, want) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/", false),
            ("/api/*", "/api/v1", true),
            ("/api/*", "/api", false),
            ("*", "/x", true),
        ] {
            let rule =
                PolicyRule { verbs: vec!["get".into()], non_resource_urls: vec![rule.into()], ..PolicyRule::default() };
            assert_eq!(rule.allows(&Attributes::path(&user, "get", path)), want, "{rule:?} {path}");
        }
    }
}

//! The policy: a list of rules, of which the first that fits a request says how much of it is written.

use ferry_meta::UserInfo;
use serde::Deserialize;
use serde_json::Value;

use crate::event::{Level, Stage};

/// Why a policy file cannot be used.
#[derive(Debug)]
pub struct PolicyError(String);

impl std::fmt::Display for PolicyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the audit policy cannot be used: {}", self.0)
    }
}

impl std::error::Error for PolicyError {}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: Value,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// What rules look at.
pub struct Subject<'a> {
    /// None where nobody was authenticated.
    pub user: Option<&'a UserInfo>,
    pub verb: &'a str,
    /// False for `/healthz` and the like: then only `path` counts.
    pub is_resource: bool,
    pub namespace: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub name: &'a str,
    pub path: &'a str,
}

/// What a policy says of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestAuditConfig {
    pub level: Level,
    pub omit_stages: Vec<Stage>,
    pub omit_managed_fields: bool,
}

impl Policy {
    /// From the file's content.
    pub fn parse(file: Value) -> Result<Self, PolicyError> {
        let policy: Self = serde_json::from_value(file).map_err(|error| PolicyError(error.to_string()))?;
        if policy.api_version != "audit.k8s.io/v1" || policy.kind != "Policy" {
            let have = format!("{} {}", policy.api_version, policy.kind);
            return Err(PolicyError(format!("it is a {have}, not an audit.k8s.io/v1 Policy")));
        }
        if policy.rules.is_empty() {
            return Err(PolicyError("loaded illegal policy with 0 rules".into()));
        }
        for (index, rule) in policy.rules.iter().enumerate() {
            let resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
            if resources && !rule.non_resource_urls.is_empty() {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                return Err(PolicyError(format!("rules[{index}].nonResourceURLs: {why}")));
            }
            for url in &rule.non_resource_urls {
                let stars = url.matches('*').count();
                if url != "*" && (!url.starts_with('/') || stars > 1 || (stars == 1 && !url.ends_with('*'))) {
                    let why = "must be \"*\", or begin with a \"/\" and have no \"*\" but at its end";
                    return Err(PolicyError(format!("rules[{index}].nonResourceURLs: {url:?} {why}")));
                }
            }
            let names_alone = |group: &&GroupResources| group.resources.is_empty() && !group.resource_names.is_empty();
            if let Some(group) = rule.resources.iter().find(names_alone) {
                let why = "using resourceNames requires at least one resource";
                return Err(PolicyError(format!("rules[{index}].resources: {why}: {:?}", group.resource_names)));
            }
        }
        Ok(policy)
    }

    pub(crate) fn judge(&self, subject: &Subject<'_>) -> RequestAuditConfig {
        let Some(rule) = self.rules.iter().find(|rule| rule.fits(subject)) else {
            return RequestAuditConfig {
                level: Level::None,
                omit_stages: self.omit_stages.clone(),
                omit_managed_fields: self.omit_managed_fields,
            };
        };
        let mut omit_stages = self.omit_stages.clone();
        omit_stages.extend(&rule.omit_stages);
        RequestAuditConfig {
            level: rule.level,
            omit_stages,
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

fn lists(list: &[String], what: &str) -> bool {
    list.iter().any(|one| one == what)
}

impl Rule {
    fn fits(&self, subject: &Subject<'_>) -> bool {
        if !self.users.is_empty() && !subject.user.is_some_and(|user| lists(&self.users, &user.name)) {
            return false;
        }
        let in_group = |user: &UserInfo| user.groups.iter().any(|group| lists(&self.user_groups, group));
        if !self.user_groups.is_empty() && !subject.user.is_some_and(in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !lists(&self.verbs, subject.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return self.fits_resource(subject);
        }
        self.non_resource_urls.is_empty() || self.fits_path(subject)
    }

    fn fits_path(&self, subject: &Subject<'_>) -> bool {
        let path = subject.path;
        !subject.is_resource
            && self.non_resource_urls.iter().any(|url| match url.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => path == url,
            })
    }

    fn fits_resource(&self, subject: &Subject<'_>) -> bool {
        if !subject.is_resource || (!self.namespaces.is_empty() && !lists(&self.namespaces, subject.namespace)) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|group| group.fits(subject))
    }
}

impl GroupResources {
    fn fits(&self, subject: &Subject<'_>) -> bool {
        if self.group != subject.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !lists(&self.resource_names, subject.name) {
            return false;
        }
        self.resources.iter().any(|pattern| match pattern.split_once('/') {
            None if pattern == "*" => true,
            None => subject.subresource.is_empty() && pattern == subject.resource,
            Some((resource, subresource)) => {
                !subject.subresource.is_empty()
                    && (resource == "*" || resource == subject.resource)
                    && (subresource == "*" || subresource == subject.subresource)
                    || (subresource == "*" && resource == subject.resource)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(rules: Value) -> Policy {
        let file = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules,
        });
        Policy::parse(file).expect("a policy")
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy = policy(json!([
            {"level": "None", "users": ["system:kube-proxy"], "verbs": ["watch"],
             "resources": [{"group": "", "resources": ["endpoints", "services"]}]},
            {"level": "None", "userGroups": ["system:authenticated"], "nonResourceURLs": ["/api*", "/version"]},
            {"level": "Request", "resources": [{"resources": ["configmaps"]}], "namespaces": ["kube-system"]},
            {"level": "Metadata", "resources": [{"resources": ["secrets", "pods/*", "*/scale"]}]},
            {"level": "None", "resources": [{"resources": ["configmaps"], "resourceNames": ["leader"]}]},
            {"level": "RequestResponse", "resources": [{"group": "apps"}], "omitStages": ["ResponseStarted"]},
            {"level": "Request", "resources": [{"group": "batch", "resources": ["*"]}]},
        ]));
        let proxy = UserInfo::new("system:kube-proxy", &["system:authenticated"]);
        let bob = UserInfo::new("bob", &["system:authenticated"]);
        let check = |user: Option<&UserInfo>, verb: &str, place: [&str; 5], want: Level| {
            let [namespace, group, resource, subresource, name] = place;
            let path = if resource.starts_with('/') { resource } else { "/api/v1/x" };
            let is_resource = !resource.starts_with('/');
            let subject = Subject { user, verb, is_resource, namespace, group, resource, subresource, name, path };
            assert_eq!(policy.judge(&subject).level, want, "{verb} {place:?}");
        };
        check(Some(&proxy), "watch", ["", "", "services", "", ""], Level::None);
        check(Some(&bob), "get", ["", "", "/apis", "", ""], Level::None);
        check(None, "get", ["", "", "/apis", "", ""], Level::None);
        check(Some(&bob), "get", ["kube-system", "", "configmaps", "", "leader"], Level::Request);
        check(Some(&bob), "get", ["a", "", "configmaps", "", "leader"], Level::None);
        check(Some(&bob), "get", ["a", "", "configmaps", "", "other"], Level::None);
        check(Some(&bob), "get", ["a", "", "secrets", "", "s"], Level::Metadata);
        check(Some(&bob), "get", ["a", "", "pods", "log", "p"], Level::Metadata);
        check(Some(&bob), "get", ["a", "apps", "deployments", "scale", "d"], Level::RequestResponse);
        check(Some(&bob), "get", ["a", "", "replicationcontrollers", "scale", "d"], Level::Metadata);
        check(Some(&bob), "get", ["a", "batch", "jobs", "status", "d"], Level::Request);
        let subject = Subject {
            user: Some(&bob),
            verb: "get",
            is_resource: true,
            namespace: "a",
            group: "apps",
            resource: "deployments",
            subresource: "",
            name: "d",
            path: "/",
        };
        assert_eq!(policy.judge(&subject).omit_stages, [Stage::RequestReceived, Stage::ResponseStarted]);
    }

    #[test]
    fn policies_that_mean_nothing_are_refused() {
        let file = |kind: &str, rules: Value| json!({"apiVersion": "audit.k8s.io/v1", "kind": kind, "rules": rules});
        for (file, want) in [
            (file("Policy", json!([])), "0 rules"),
            (file("Pod", json!([{"level": "None"}])), "not an audit.k8s.io/v1 Policy"),
            (file("Policy", json!([{"level": "Everything"}])), "unknown variant"),
            (file("Policy", json!([{"level": "None", "nope": 1}])), "unknown field"),
            (file("Policy", json!([{"level": "None", "omitStages": ["Never"]}])), "unknown variant"),
            (file("Policy", json!([{"level": "None", "nonResourceURLs": ["/a*b"]}])), "nonResourceURLs"),
            (file("Policy", json!([{"level": "None", "nonResourceURLs": ["/a"], "namespaces": ["x"]}])), "both"),
        ] {
            let error = Policy::parse(file).expect_err("refused").to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}

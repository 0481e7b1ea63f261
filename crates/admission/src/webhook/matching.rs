//! Which webhooks a request goes to; policies share the rules.

use std::sync::Arc;

use ferry_meta::object::{items, labels, text};
use ferry_meta::{GroupVersionResource, ObjectReader};
use serde_json::{Map, Value};

use super::config::Hook;
use crate::Request;
use crate::equivalents::Version;
use crate::resources::NAMESPACES;

pub(crate) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
    /// Names of resources; none means all.
    names: Vec<String>,
}

fn texts(rule: &Value, pointer: &str) -> Vec<String> {
    items(rule, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn listed(list: &[String], wanted: &str) -> bool {
    list.iter().any(|text| text == "*" || text == wanted)
}

impl Rule {
    pub(crate) fn read(rule: &Value) -> Self {
        Self {
            operations: texts(rule, "/operations"),
            groups: texts(rule, "/apiGroups"),
            versions: texts(rule, "/apiVersions"),
            resources: texts(rule, "/resources"),
            scope: text(rule, "/scope").to_owned(),
            names: texts(rule, "/resourceNames"),
        }
    }

    /// Whether it matches a request as if it were for this resource.
    fn matches(&self, request: &Request<'_>, resource: &GroupVersionResource) -> bool {
        listed(&self.operations, request.operation.as_str())
            && listed(&self.groups, &resource.group)
            && listed(&self.versions, &resource.version)
            && (self.names.is_empty() || self.names.iter().any(|name| name == request.name))
            && self.resources.iter().any(|rule| resource_matches(rule, &resource.resource, request.subresource))
            && match self.scope.as_str() {
                "Namespaced" => is_namespaced(request),
                "Cluster" => !is_namespaced(request),
                _ => true,
            }
    }
}

/// The version in which some rule matches: that of the request, or the first of the others where these count too.
pub(crate) fn matching_version(rules: &[Rule], equivalent: bool, request: &Request<'_>) -> Option<Version> {
    let matches = |resource: &GroupVersionResource| rules.iter().any(|rule| rule.matches(request, resource));
    if matches(request.resource) {
        return Some(Version::Requested);
    }
    let others = request.equivalents.filter(|_| equivalent && !rules.is_empty())?;
    others.list().iter().find(|other| matches(&other.resource)).cloned().map(Version::Other)
}

/// A Namespace is not in a namespace, although requests for it name one.
fn is_namespaced(request: &Request<'_>) -> bool {
    !request.namespace.is_empty() && !request.concerns("", "namespaces")
}

/// `*` is every resource, `*/*` every subresource too, `pods/*` those of pods.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    let (rule, rule_subresource) = rule.split_once('/').unwrap_or((rule, ""));
    (rule_subresource == "*" || rule_subresource == subresource) && (rule == "*" || rule == resource)
}

/// The configurations of admission itself are never admitted by webhooks: a broken one could not be removed.
pub(super) fn is_exempt(request: &Request<'_>) -> bool {
    request.resource.group == "admissionregistration.k8s.io"
}

/// The hooks of the list that the request goes to, and the version that each sees it in.
pub(super) fn matching(
    reader: &dyn ObjectReader,
    hooks: &[Arc<Hook>],
    request: &Request<'_>,
) -> Vec<(Arc<Hook>, Version)> {
    if hooks.is_empty() || is_exempt(request) {
        return Vec::new();
    }
    let mut namespace = None;
    hooks
        .iter()
        .filter_map(|hook| Some((hook.clone(), matching_version(&hook.rules, hook.equivalent, request)?)))
        .filter(|(hook, _)| {
            if hook.namespaces.is_everything() {
                return true;
            }
            let labels = namespace.get_or_insert_with(|| namespace_labels(reader, request));
            labels.as_ref().is_none_or(|labels| hook.namespaces.matches(labels))
        })
        .filter(|(hook, _)| {
            hook.objects.is_everything()
                || [request.object.as_deref(), request.old]
                    .into_iter()
                    .flatten()
                    .any(|object| hook.objects.matches(labels(object)))
        })
        .collect()
}

/// `None` for what is in no namespace: namespace selectors say nothing about it.
pub(crate) fn namespace_labels(reader: &dyn ObjectReader, request: &Request<'_>) -> Option<Map<String, Value>> {
    if request.concerns("", "namespaces") {
        let own = request.object.as_deref().filter(|_| request.subresource.is_empty()).or(request.old);
        return Some(own.map(labels).cloned().unwrap_or_default());
    }
    if request.namespace.is_empty() {
        return None;
    }
    let namespace = reader.get(&NAMESPACES, "", request.namespace);
    Some(namespace.map(|namespace| labels(&namespace).clone()).unwrap_or_default())
}

//! Which webhooks a request goes to; policies share the rules.

use std::sync::Arc;

use ferry_meta::ObjectReader;
use ferry_meta::object::{items, labels, text};
use serde_json::{Map, Value};

use super::config::Hook;
use crate::Request;
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

    pub(crate) fn matches(&self, request: &Request<'_>) -> bool {
        self.matches_equivalent(request) && listed(&self.versions, &request.resource.version)
    }

    /// Whether it matches in some version of the resource.
    pub(crate) fn matches_equivalent(&self, request: &Request<'_>) -> bool {
        listed(&self.operations, request.operation.as_str())
            && listed(&self.groups, &request.resource.group)
            && (self.names.is_empty() || self.names.iter().any(|name| name == request.name))
            && self.resources.iter().any(|rule| resource_matches(rule, request))
            && match self.scope.as_str() {
                "Namespaced" => is_namespaced(request),
                "Cluster" => !is_namespaced(request),
                _ => true,
            }
    }
}

/// A Namespace is not in a namespace, although requests for it name one.
fn is_namespaced(request: &Request<'_>) -> bool {
    !request.namespace.is_empty() && !request.concerns("", "namespaces")
}

/// `*` is every resource, `*/*` every subresource too, `pods/*` those of pods.
fn resource_matches(rule: &str, request: &Request<'_>) -> bool {
    let (resource, subresource) = rule.split_once('/').unwrap_or((rule, ""));
    let sub = match (subresource, request.subresource) {
        ("*", _) => true,
        (rule, own) => rule == own,
    };
    sub && (resource == "*" || resource == request.resource.resource)
}

/// The configurations of admission itself are never admitted by webhooks: a broken one could not be removed.
pub(super) fn is_exempt(request: &Request<'_>) -> bool {
    request.resource.group == "admissionregistration.k8s.io"
}

/// The hooks of the list that the request goes to.
pub(super) fn matching(reader: &dyn ObjectReader, hooks: &[Arc<Hook>], request: &Request<'_>) -> Vec<Arc<Hook>> {
    if hooks.is_empty() || is_exempt(request) {
        return Vec::new();
    }
    let mut namespace = None;
    hooks
        .iter()
        .filter(|hook| hook.rules.iter().any(|rule| rule.matches(request)))
        .filter(|hook| {
            if hook.namespaces.is_everything() {
                return true;
            }
            let labels = namespace.get_or_insert_with(|| namespace_labels(reader, request));
            labels.as_ref().is_none_or(|labels| hook.namespaces.matches(labels))
        })
        .filter(|hook| {
            hook.objects.is_everything()
                || [request.object.as_deref(), request.old]
                    .into_iter()
                    .flatten()
                    .any(|object| hook.objects.matches(labels(object)))
        })
        .cloned()
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

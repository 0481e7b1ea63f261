//! Which requests a policy or binding sees.

use ferry_meta::ObjectReader;
use ferry_meta::object::{items, labels, text};
use ferry_meta::selector::LabelSelector;
use serde_json::{Map, Value};

use crate::Request;
use crate::equivalents::Version;
use crate::webhook::matching::{Rule, matching_version, namespace_labels};

pub(super) struct Constraints {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    namespaces: LabelSelector,
    objects: LabelSelector,
    /// Requests in other versions of a resource count too.
    equivalent: bool,
}

/// The labels of the request's namespace, read once.
pub(super) type NamespaceLabels = Option<Option<Map<String, Value>>>;

impl Constraints {
    pub fn read(constraints: &Value) -> Self {
        let rules = |pointer: &str| items(constraints, pointer).iter().map(Rule::read).collect();
        let selector = |field: &str| {
            let selector = constraints.get(field).filter(|selector| !selector.is_null());
            selector.map_or_else(LabelSelector::default, |selector| {
                LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing())
            })
        };
        Self {
            rules: rules("/resourceRules"),
            excluded: rules("/excludeResourceRules"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            equivalent: text(constraints, "/matchPolicy") != "Exact",
        }
    }

    /// The version in which the request is seen, if it is; without rules, every resource is.
    pub fn match_request(
        &self,
        reader: &dyn ObjectReader,
        request: &Request<'_>,
        cached: &mut NamespaceLabels,
    ) -> Option<Version> {
        let version = match self.rules.as_slice() {
            [] => Version::Requested,
            rules => matching_version(rules, self.equivalent, request)?,
        };
        if matching_version(&self.excluded, self.equivalent, request).is_some() {
            return None;
        }
        if !self.namespaces.is_everything() {
            let labels = cached.get_or_insert_with(|| namespace_labels(reader, request));
            if labels.as_ref().is_some_and(|labels| !self.namespaces.matches(labels)) {
                return None;
            }
        }
        let selected = self.objects.is_everything()
            || [request.object.as_deref(), request.old]
                .into_iter()
                .flatten()
                .any(|object| self.objects.matches(labels(object)));
        selected.then_some(version)
    }
}

//! The parameters of a policy: objects of the kind it names, chosen by its binding.

use std::sync::Arc;

use ferry_meta::object::{items, labels, name, text};
use ferry_meta::{GroupResource, GroupVersionKind};
use serde_json::Value;

use super::Shared;
use super::compiled::{Binding, Policy};
use crate::Request;
use crate::resources::DEFINITIONS;

impl Shared {
    /// Where objects of a kind are, and whether they are in namespaces; custom kinds are looked up in their definitions.
    fn resource_of(&self, kind: &GroupVersionKind) -> Option<(GroupResource, bool)> {
        if let Some(known) = (self.kinds)(kind) {
            return Some(known);
        }
        let definitions = self.reader.list(&DEFINITIONS, "");
        let definition = definitions.iter().find(|definition| {
            text(definition, "/spec/group") == kind.group
                && text(definition, "/spec/names/kind") == kind.kind
                && items(definition, "/spec/versions").iter().any(|version| text(version, "/name") == kind.version)
        })?;
        let resource = GroupResource::new(&*kind.group, text(definition, "/spec/names/plural"));
        Some((resource, text(definition, "/spec/scope") == "Namespaced"))
    }

    /// Why no parameters of a policy can be had, whatever its bindings say.
    pub(super) fn unknown_params(&self, policy: &Policy) -> Option<String> {
        let kind = policy.param_kind.as_ref()?;
        self.resource_of(kind).is_none().then(|| unknown_kind(kind))
    }

    /// One evaluation for each parameter; None is one without.
    pub(super) fn params(
        &self,
        policy: &Policy,
        binding: &Binding,
        request: &Request<'_>,
    ) -> Result<Vec<Option<Arc<Value>>>, String> {
        let (Some(kind), Some(reference)) = (&policy.param_kind, &binding.params) else { return Ok(vec![None]) };
        let Some((resource, namespaced)) = self.resource_of(kind) else {
            return Err(unknown_kind(kind));
        };
        let namespace = match (namespaced, reference.namespace.as_str(), request.namespace) {
            (false, "", _) => "",
            (false, _, _) => {
                return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
            }
            (true, "", "") => {
                let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Err(why.to_owned());
            }
            (true, "", own) => own,
            (true, given, _) => given,
        };
        let mut params: Vec<Option<Arc<Value>>> = match (&reference.selector, reference.name.as_str()) {
            (_, wanted) if !wanted.is_empty() => {
                self.reader.get(&resource, namespace, wanted).into_iter().map(Some).collect()
            }
            (Some(selector), _) => {
                let mut found = self.reader.list(&resource, namespace);
                found.retain(|object| selector.matches(labels(object)));
                found.sort_by(|a, b| name(a).cmp(name(b)));
                found.into_iter().map(Some).collect()
            }
            (None, _) => return Err("one of name or selector must be provided".to_owned()),
        };
        if params.is_empty() && reference.deny_if_missing {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
        }
        params.shrink_to_fit();
        Ok(params)
    }
}

fn unknown_kind(kind: &GroupVersionKind) -> String {
    // The core group stands there too, as nothing before the slash.
    format!("failed to find resource referenced by paramKind: '{}/{}, Kind={}'", kind.group, kind.version, kind.kind)
}

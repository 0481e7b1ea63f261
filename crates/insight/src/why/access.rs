//! Bindings of roles that grant nothing: the role or the ServiceAccount that they name is not there.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, in_namespace, named, title_with_group};
use crate::world::{Presence, World, word};

/// ServiceAccounts of bindings are known under this name and `namespace/name`.
pub(crate) const ACCOUNTS: &str = "serviceaccounts of bindings";

/// The plural of the role that a binding names.
pub(crate) fn role_plural(binding: &Value) -> &'static str {
    if object::text(binding, "/roleRef/kind") == "Role" { "roles" } else { "clusterroles" }
}

/// The ServiceAccounts among the subjects, as namespace and name.
pub(crate) fn accounts(binding: &Value) -> impl Iterator<Item = (&str, &str)> {
    object::items(binding, "/subjects").iter().filter_map(|subject| {
        let (kind, name) = (object::text(subject, "/kind"), object::text(subject, "/name"));
        let namespace = match object::text(subject, "/namespace") {
            "" => object::namespace(binding),
            namespace => namespace,
        };
        match kind {
            "ServiceAccount" => Some((namespace, name)),
            // The name under which an account acts.
            "User" => name.strip_prefix("system:serviceaccount:")?.split_once(':'),
            _ => None,
        }
    })
}

pub(super) fn binding(world: &World, binding: &Value) -> Vec<Finding> {
    let (kind, role) = (object::text(binding, "/roleRef/kind"), object::text(binding, "/roleRef/name"));
    let finding = |reason: Reason, cause: String| Finding::new(reason, binding, cause);
    let (own, what) = (in_namespace(binding), title_with_group(binding));
    let mut found = Vec::new();
    if *world.presence(role_plural(binding), role) == Presence::Absent {
        let place =
            if kind == "Role" { format!(" in namespace {}", object::namespace(binding)) } else { String::new() };
        let create = kind.to_lowercase();
        let space = if kind == "Role" { own.clone() } else { String::new() };
        found.push(
            finding(Reason::RoleMissing, format!("it grants nothing: the {kind} {role:?} does not exist{place}"))
                .detail("it counts as soon as there is one of that name")
                .advise(format!("create it with the rights that are meant, as in: kubectl create {create} {space}{} --verb=get,list,watch --resource=pods", word(role)))
                .advise(format!("a binding's roleRef cannot be changed; to name another role, delete it and create it anew: kubectl delete {own}{what}")),
        );
    }
    let subjects = object::items(binding, "/subjects");
    if subjects.is_empty() {
        found.push(
            finding(Reason::NoSubjects, "it grants its rights to nobody: it has no subjects".into())
                .note()
                .advise(format!("name those who are meant: kubectl edit {own}{what}")),
        );
    }
    let gone: Vec<String> = accounts(binding)
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .filter(|name| *world.presence(ACCOUNTS, name) == Presence::Absent)
        .collect();
    if let Some((namespace, name)) = gone.first().and_then(|first| first.split_once('/')) {
        let which = if gone.len() == 1 { "the ServiceAccount" } else { "the ServiceAccounts" };
        let does = if gone.len() == 1 { "does not exist" } else { "do not exist" };
        found.push(
            finding(Reason::SubjectMissing, format!("{which} {} {does}: nobody can act as that", named(&gone)))
                .advise(format!("create it: kubectl create serviceaccount -n {} {}", word(namespace), word(name)))
                .advise(format!("or name another: kubectl edit {own}{what}")),
        );
    }
    found
}

//! Admission policies that are in force nowhere, or whose expressions cannot work.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, said, title_with_group};
use crate::named::{Found, Named};
use crate::world::{World, number};

/// The list of bindings for a kind of policy.
pub(crate) fn bindings_of(kind: &str) -> &'static str {
    if kind.starts_with("Mutating") { "mutatingadmissionpolicybindings" } else { "validatingadmissionpolicybindings" }
}

fn policies_of(kind: &str) -> &'static str {
    if kind.starts_with("Mutating") { "mutatingadmissionpolicies" } else { "validatingadmissionpolicies" }
}

pub(super) fn policy(world: &World, policy: &Value) -> Vec<Finding> {
    let (kind, name) = (object::text(policy, "/kind"), object::name(policy));
    let mut found = Vec::new();
    let current = number(policy, "/status/observedGeneration") >= number(policy, "/metadata/generation");
    let warnings = object::items(policy, "/status/typeChecking/expressionWarnings");
    if let Some(first) = warnings.first().filter(|_| current) {
        let effect = match object::text(policy, "/spec/failurePolicy") {
            "Ignore" => "where it fails, requests pass (failurePolicy Ignore)",
            _ => "where it fails, requests are refused (failurePolicy Fail)",
        };
        let place = object::text(first, "/fieldRef");
        found.push(
            Finding::new(Reason::PolicyTypes, policy, format!("its expression {place} does not fit what it is about"))
                .probably()
                .detail(object::text(first, "/warning"))
                .detail(effect)
                .advise(format!("correct the expression: kubectl edit {}", title_with_group(policy))),
        );
    }
    let bindings = world.seen(bindings_of(kind));
    if bindings.is_some_and(|all| !all.iter().any(|one| object::text(one, "/spec/policyName") == name)) {
        let cause = format!("it is in force nowhere: no {kind}Binding names it");
        found.push(Finding::new(Reason::PolicyUnbound, policy, cause).advise(format!(
            "create a {kind}Binding with spec.policyName: {name}, and validationActions: [Deny] where it is to refuse"
        )));
    }
    found
}

/// The object with the parameters that a binding names.
pub(super) fn parameters(world: &World, binding: &Value) -> Option<Named> {
    let kind = object::text(binding, "/kind").trim_end_matches("Binding");
    let policy = world.find(policies_of(kind), object::text(binding, "/spec/policyName"))?;
    let (of, reference) = (policy.pointer("/spec/paramKind")?, binding.pointer("/spec/paramRef")?);
    let (name, version) = (object::text(reference, "/name"), object::text(of, "/apiVersion"));
    let group = version.split_once('/').map(|(group, _)| group).unwrap_or_default();
    let namespace = object::text(reference, "/namespace");
    // Without a namespace, parameters of a kind that has namespaces are those of each object's own one.
    let of_cluster = namespace.is_empty() && matches!((group, object::text(of, "/kind")), ("", "ConfigMap" | "Secret"));
    (!name.is_empty() && !of_cluster).then(|| Named {
        group: group.to_owned(),
        kind: object::text(of, "/kind").to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Parameters that are not there: the binding says what happens then.
fn unparametrised(world: &World, binding: &Value) -> Option<Finding> {
    let named = parameters(world, binding)?;
    let gone = match named.find(world) {
        Found::Absent => "does not exist",
        Found::Unserved => "cannot exist: no server of the cluster has that kind",
        Found::There(_) | Found::Unknown => return None,
    };
    let denies = object::text(binding, "/spec/paramRef/parameterNotFoundAction") == "Deny";
    let effect = match denies {
        true => "every request that the policy is about is refused (parameterNotFoundAction Deny)",
        false => "the policy lets everything pass (parameterNotFoundAction Allow)",
    };
    let place = if named.namespace.is_empty() { String::new() } else { format!(" of namespace {}", named.namespace) };
    let cause = format!("the parameters that it names, the {} {:?}{place}, {gone}: {effect}", named.kind, named.name);
    Some(
        Finding::new(Reason::PolicyParameters, binding, cause)
            .advise(format!("create the {} {}", named.kind, named.name))
            .advise(format!("or name another in spec.paramRef: kubectl edit {}", title_with_group(binding))),
    )
}

pub(super) fn binding(world: &World, binding: &Value) -> Vec<Finding> {
    let kind = object::text(binding, "/kind").trim_end_matches("Binding");
    let name = object::text(binding, "/spec/policyName");
    let Some(policies) = world.seen(policies_of(kind)) else { return Vec::new() };
    match policies.iter().find(|policy| object::name(policy) == name) {
        None => {
            let cause = format!("it puts nothing in force: the {kind} {name:?} does not exist");
            let names: Vec<&str> = policies.iter().map(object::name).collect();
            let there = if names.is_empty() {
                "there is none at all".to_owned()
            } else {
                format!("there are {}", super::named(&names))
            };
            vec![Finding::new(Reason::PolicyMissing, binding, cause).detail(there).advise(format!(
                "create it, or name another in spec.policyName: kubectl edit {}",
                title_with_group(binding)
            ))]
        }
        Some(policy) => {
            let wants = policy.pointer("/spec/paramKind").is_some();
            let has = binding.pointer("/spec/paramRef").is_some();
            if wants && !has {
                let cause = format!(
                    "the {kind} {name:?} takes parameters (spec.paramKind), and the binding names none (spec.paramRef)"
                );
                return vec![
                    Finding::new(Reason::PolicyMissing, binding, cause)
                        .detail(said(&policy["spec"]["paramKind"]))
                        .advise(format!("add spec.paramRef: kubectl edit {}", title_with_group(binding))),
                ];
            }
            unparametrised(world, binding).into_iter().collect()
        }
    }
}

//! What a workload needs beside its pods and the API server refuses: claims of a StatefulSet, ReplicaSets of a Deployment.

use ferry_meta::object;
use serde_json::Value;

use super::admission::{Refusal, usage};
use super::{Finding, Reason, in_namespace, webhook};
use crate::world::{World, standing, title, word};

/// A StatefulSet makes the claims of a pod before the pod.
pub(super) fn claim_refused(world: &World, owner: &Value, claim: &str, message: &str, refusal: &Refusal) -> Finding {
    let finding = |cause: String| Finding::new(Reason::ClaimRefused, owner, cause).detail(message);
    match refusal {
        Refusal::QuotaExceeded { quota } => {
            let cause = format!(
                "its claim {claim} is refused, and so its pod is not made: {}",
                not_allowed(quota, object::namespace(owner))
            );
            with_quota(world, owner, quota, finding(cause))
        }
        Refusal::LimitRange => {
            let of_claims = |range: &&Value| {
                let mut limits = object::items(range, "/spec/limits").iter();
                limits.any(|limit| object::text(limit, "/type") == "PersistentVolumeClaim")
            };
            let namespace = object::namespace(owner);
            let range = world.all("limitranges").iter().find(of_claims).map(object::name);
            let which = range.map(|name| format!(" {name}")).unwrap_or_default();
            let found = finding(format!(
                "its claim {claim} is refused, and so its pod is not made: it asks for more or less than the LimitRange{which} of namespace {namespace} allows"
            ));
            let anew = format!(
                "volumeClaimTemplates cannot be changed: to ask for another size, delete it, correct its manifest and create it again: kubectl delete {}{}",
                in_namespace(owner),
                title(owner)
            );
            match range {
                Some(name) => {
                    found.advise(format!("change the limits: kubectl edit -n {namespace} limitrange/{name}")).advise(format!("or {anew}"))
                }
                None => found.advise(anew),
            }
        }
        _ => finding(format!("its claim {claim} is refused by the API server, and so its pod is not made")).advise(
            format!(
                "volumeClaimTemplates cannot be changed: delete it, correct its manifest and create it again: kubectl delete {}{}",
                in_namespace(owner),
                title(owner)
            ),
        ),
    }
}

/// A Deployment whose ReplicaSet could not be made says so itself.
pub(super) fn set_refused(world: &World, target: &Value) -> Option<Finding> {
    let failed = standing(target, "Progressing", "False")
        .filter(|condition| object::text(condition, "/reason") == "ReplicaSetCreateError")?;
    let message = object::text(failed, "/message");
    let finding = |cause: &str| Finding::new(Reason::SetRefused, target, cause).detail(message);
    let edit = format!("kubectl edit {}{}", in_namespace(target), title(target));
    Some(match Refusal::read(message) {
        Refusal::QuotaExceeded { quota } => {
            let cause = format!(
                "its ReplicaSet is refused, and so its pods are not made: {}",
                not_allowed(&quota, object::namespace(target))
            );
            with_quota(world, target, &quota, finding(&cause))
        }
        Refusal::WebhookFails { hook } => {
            let cause = format!("its ReplicaSet is refused: the admission webhook {hook:?} cannot be called");
            webhook::explain(world, &hook, message, finding(&cause))
        }
        Refusal::WebhookDenies { hook } => {
            finding(&format!("its ReplicaSet is refused by the admission webhook {hook:?}"))
                .advise(format!("change the Deployment as the webhook's message says: {edit}"))
        }
        Refusal::Policy { policy } => {
            finding(&format!("its ReplicaSet is refused by the ValidatingAdmissionPolicy {policy:?}"))
                .advise(format!("change the Deployment as the message says: {edit}"))
        }
        _ => finding("its ReplicaSet is refused by the API server, and so its pods are not made")
            .advise(format!("correct what the message names: {edit}")),
    })
}

fn not_allowed(quota: &str, namespace: &str) -> String {
    format!("the ResourceQuota {quota:?} of namespace {namespace} does not allow it")
}

fn with_quota(world: &World, owner: &Value, quota: &str, finding: Finding) -> Finding {
    let full = world.find("resourcequotas", quota).map(usage).unwrap_or_default();
    let raise = format!("raise it: kubectl edit {}resourcequota/{}", in_namespace(owner), word(quota));
    full.into_iter().fold(finding, Finding::detail).advise(raise)
}

/// Which pods a quota counts, where it is not all of them, and how others are none of these.
pub(super) fn scope(quota: &Value) -> (String, Option<&'static str>) {
    let plain = object::items(quota, "/spec/scopes").iter().filter_map(Value::as_str).map(str::to_owned);
    let selected = object::items(quota, "/spec/scopeSelector/matchExpressions").iter().map(|one| {
        let values: Vec<&str> = object::items(one, "/values").iter().filter_map(Value::as_str).collect();
        let (name, operator) = (object::text(one, "/scopeName"), object::text(one, "/operator"));
        match operator {
            "Exists" => name.to_owned(),
            operator => format!("{name} {operator} {}", values.join(",")).trim_end().to_owned(),
        }
    });
    let scopes: Vec<String> = plain.chain(selected).collect();
    let outside = match scopes.as_slice() {
        [one] if one == "BestEffort" => Some("name requests in resources of a container: then it does not count them"),
        [one] if one.starts_with("PriorityClass In ") => {
            Some("use another priorityClassName: then it does not count them")
        }
        _ => None,
    };
    match scopes.as_slice() {
        [] => (String::new(), None),
        scopes => (format!("it counts only pods of the scope {}", scopes.join(" and ")), outside),
    }
}

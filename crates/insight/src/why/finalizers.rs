//! Finalizers of Kubernetes and of the helpers of its storage: what each waits for, and who lets go of it. Their controllers
//! are not called after them.

use ferry_meta::object;
use serde_json::Value;

use super::named;
use crate::gather::ALL_PODS;
use crate::world::{World, known_kind};

/// What it waits for, and what to do; None for a finalizer of somebody else.
pub(super) fn known(world: &World, target: &Value, finalizer: &str) -> Option<(Vec<String>, Vec<String>)> {
    let namespace = object::namespace(target);
    let driver = object::text(target, "/spec/csi/driver");
    let one = |detail: String, advice: String| Some((vec![detail], vec![advice]));
    if let Some(attacher) = finalizer.strip_prefix("external-attacher/") {
        let driver = [driver, object::text(target, "/spec/attacher")].into_iter().find(|name| !name.is_empty());
        let driver = driver.unwrap_or(attacher);
        return one(
            format!("the attacher of {driver} takes the volume off its nodes first"),
            format!("see where it still is (kubectl get volumeattachments), and that the attacher of {driver} runs"),
        );
    }
    let (mut details, advice) = match finalizer {
        "external-provisioner.volume.kubernetes.io/finalizer" => {
            let driver = match (driver, object::annotations(target).get("pv.kubernetes.io/provisioned-by")) {
                ("", Some(by)) => by.as_str().unwrap_or_default(),
                ("", None) => "its class",
                (driver, _) => driver,
            };
            let claim = target.pointer("/spec/claimRef").filter(|_| object::text(target, "/status/phase") == "Bound");
            let bound = claim.map(|claim| {
                format!("the claim {}/{} is bound to it", object::text(claim, "/namespace"), object::text(claim, "/name"))
            });
            Some((
                vec![
                    format!("the provisioner of {driver} deletes what is behind it first"),
                    bound.unwrap_or_default(),
                    object::text(target, "/status/message").to_owned(),
                ],
                vec![format!("see that the provisioner of {driver} runs, and what it logs")],
            ))
        }
        "resource.kubernetes.io/delete-protection" => {
            let users = object::items(target, "/status/reservedFor").iter();
            let users: Vec<&str> = users.map(|user| object::text(user, "/name")).collect();
            match users.first() {
                Some(first) => one(
                    format!("it is reserved for {}", named(&users.iter().map(|name| format!("pod/{name}")).collect::<Vec<_>>())),
                    format!("end what uses it: kubectl delete -n {namespace} pod/{first}"),
                ),
                None => one("no pod uses it: the controller removes the finalizer".into(), "see that the controllers run".into()),
            }
        }
        "kubernetes.io/vac-protection" => one(
            "claims or volumes have these attributes".into(),
            "see which: kubectl get pvc,pv -A -o custom-columns=KIND:.kind,NAME:.metadata.name,ATTRIBUTES:.spec.volumeAttributesClassName"
                .into(),
        ),
        "networking.k8s.io/service-cidr-finalizer" => one(
            "addresses of it are in use by Services".into(),
            "see which: kubectl get ipaddresses".into(),
        ),
        "gateway-exists-finalizer.gateway.networking.k8s.io" => one(
            "Gateways are of this class".into(),
            "see which, and delete them first: kubectl get gateways -A".into(),
        ),
        name if name.starts_with("snapshot.storage.kubernetes.io/") => {
            let from = match known_source(name) {
                true => "a snapshot is being made of it",
                false => "the snapshot controller has work to do on it first",
            };
            one(
                format!("{from}: the snapshot controller lets go of it when that is done"),
                format!("see what is left (kubectl get volumesnapshots{}), and that the snapshot controller runs", place(namespace)),
            )
        }
        _ => None,
    }?;
    details.extend(super::warning(world, target).map(super::said));
    Some((details, advice))
}

/// Whether it protects what a snapshot is made of.
fn known_source(finalizer: &str) -> bool {
    finalizer.ends_with("-as-source-protection")
}

fn place(namespace: &str) -> String {
    if namespace.is_empty() { " -A".to_owned() } else { format!(" -n {namespace}") }
}

/// Those that keep a claim from going: pods that have a node, also those that have ended.
pub(super) fn users_of_claim<'a>(world: &'a World, claim: &Value) -> Option<Vec<&'a Value>> {
    // Who may not look at the pods of the cluster sees of those around a pod only that one.
    if known_kind(&world.target) == "Pod" && world.seen(ALL_PODS).is_none() {
        return None;
    }
    let users = super::claim::users(world, claim)?.into_iter();
    Some(users.filter(|pod| !object::text(pod, "/spec/nodeName").is_empty()).collect())
}

/// A pod that is over holds what it used all the same.
pub(super) fn ended(users: &[&Value]) -> String {
    let over = |pod: &&&Value| matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
    let first = users.iter().find(over).map(|pod| object::name(pod));
    first.map(|name| format!("pod/{name} has ended, and keeps what it used until it is deleted")).unwrap_or_default()
}

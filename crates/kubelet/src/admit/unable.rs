//! What a pod asks for and this node cannot do, whatever room it has.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod};

use crate::pod;
use crate::runtime::Abilities;
use crate::spec::apparmor;
use crate::status::WaitReason;

/// Why the node cannot run the pod at all. `apparmor` is whether the kernel enforces such profiles.
pub(crate) fn unable(new: &Pod, abilities: &Abilities, apparmor: bool) -> Option<WaitReason> {
    let no = |reason: &str, message: &str| Some(WaitReason { reason: reason.into(), message: message.into() });
    let spec = pod::spec(new);
    if new.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/os")).is_some_and(|os| os != "linux") {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return no("PodOSSelectorNodeLabelDoesNotMatch", message);
    }
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        return no("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    }
    let policy = spec.security_context.as_ref().and_then(|context| context.supplemental_groups_policy.as_deref());
    if policy == Some("Strict") && !abilities.supplemental_groups_policy {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return no("SupplementalGroupsPolicyNotSupported", message);
    }
    if wants_apparmor(new) && !apparmor {
        return no("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host");
    }
    let nameless = |container: &&Container| {
        let profile = apparmor::profile(new, container);
        let name = profile.as_ref().and_then(|profile| profile.localhost_profile.as_deref()).unwrap_or_default();
        profile.as_ref().is_some_and(|profile| profile.type_ == "Localhost") && name.trim().is_empty()
    };
    if all_containers(new).iter().any(|container| nameless(&container)) {
        return no("AppArmor", "Cannot enforce AppArmor: invalid empty AppArmor profile name");
    }
    None
}

fn all_containers(pod: &Pod) -> Vec<Container> {
    let ephemeral = pod::ephemeral_containers(pod);
    pod::init_containers(pod).iter().chain(pod::containers(pod)).cloned().chain(ephemeral).collect()
}

/// Whether a profile other than none at all is asked for, anywhere in the pod.
fn wants_apparmor(pod: &Pod) -> bool {
    let confines = |profile: Option<&AppArmorProfile>| profile.is_some_and(|profile| profile.type_ != "Unconfined");
    let of_pod = pod::spec(pod).security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    confines(of_pod) || all_containers(pod).iter().any(|container| confines(apparmor::profile(pod, container).as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_cannot_be_done_is_refused() {
        const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
        let able = Abilities { supplemental_groups_policy: true, ..Abilities::default() };
        let check = |metadata: Value, mut spec: Value, able_to: (&Abilities, bool), want: Option<(&str, &str)>| {
            if spec.get("containers").is_none() {
                spec["containers"] = json!([{"name": "c"}]);
            }
            let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod");
            let got = unable(&pod, able_to.0, able_to.1).map(|why| (why.reason, why.message));
            let want = want.map(|(reason, message)| (reason.to_owned(), message.to_owned()));
            assert_eq!(got, want, "{metadata} {spec}");
        };
        let none = Abilities::default();
        let strict = json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}});
        let unsupported = "SupplementalGroupsPolicy=Strict is not supported in this node";
        check(json!({}), json!({}), (&none, false), None);
        check(json!({}), strict.clone(), (&able, false), None);
        check(json!({}), strict, (&none, false), Some(("SupplementalGroupsPolicyNotSupported", unsupported)));
        let merge = json!({"securityContext": {"supplementalGroupsPolicy": "Merge"}});
        check(json!({}), merge, (&none, false), None);

        let windows = "Failed to admit pod as the OS field doesn't match node OS";
        check(json!({}), json!({"os": {"name": "linux"}}), (&none, false), None);
        check(json!({}), json!({"os": {"name": "windows"}}), (&none, false), Some(("PodOSNotSupported", windows)));
        let label = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        let labelled = json!({"labels": {"kubernetes.io/os": "windows"}});
        check(labelled, json!({}), (&none, false), Some(("PodOSSelectorNodeLabelDoesNotMatch", label)));

        let refused = Some(("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"));
        let of_pod =
            |kind: &str| json!({"securityContext": {"appArmorProfile": {"type": kind, "localhostProfile": "p"}}});
        let of_container = |list: &str, kind: &str| {
            let profile = json!({"appArmorProfile": {"type": kind, "localhostProfile": "p"}});
            json!({list: [{"name": "x", "securityContext": profile}], "containers": [{"name": "c"}]})
        };
        check(json!({}), of_pod("RuntimeDefault"), (&none, false), refused);
        check(json!({}), of_pod("RuntimeDefault"), (&none, true), None);
        check(json!({}), of_pod("Unconfined"), (&none, false), None);
        for list in ["initContainers", "ephemeralContainers"] {
            check(json!({}), of_container(list, "Localhost"), (&none, false), refused);
            check(json!({}), of_container(list, "Unconfined"), (&none, false), None);
        }
        for (value, want) in [("runtime/default", refused), ("localhost/p", refused), ("unconfined", None)] {
            check(json!({"annotations": {format!("{PREFIX}c"): value}}), json!({}), (&none, false), want);
        }
        let empty = json!({"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": " "}}});
        let nameless = "Cannot enforce AppArmor: invalid empty AppArmor profile name";
        check(json!({}), empty, (&none, true), Some(("AppArmor", nameless)));
    }
}

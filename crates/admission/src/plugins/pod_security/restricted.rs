//! The controls that only the restricted level has.

use std::collections::BTreeSet;

use ferry_meta::object::{items, text};
use serde_json::Value;

use super::checks::{Pod, Violation, flag, plural, quoted, setters, titled, violation};

pub(super) const CHECKS: [fn(&Pod<'_>) -> Option<Violation>; 6] =
    [privilege_escalation, capabilities, volumes, non_root, user, seccomp];

/// Windows has neither capabilities nor seccomp; since 1.25 a pod that says it is for Windows is not asked for them.
fn is_windows(pod: &Pod<'_>) -> bool {
    pod.version.has(25) && text(pod.spec, "/os/name") == "windows"
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if !pod.version.has(8) || is_windows(pod) {
        return None;
    }
    let bad = pod.bad_containers(|c| flag(c, "/securityContext/allowPrivilegeEscalation") != Some(false));
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", titled(&bad));
    violation("allowPrivilegeEscalation != false", detail)
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if !pod.version.has(22) || is_windows(pod) {
        return None;
    }
    let list = |container: &Value, field: &str| -> Vec<String> {
        let found = items(container, &format!("/securityContext/capabilities/{field}"));
        found.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let undropped = pod.bad_containers(|c| !list(c, "drop").iter().any(|capability| capability == "ALL"));
    let mut forbidden = BTreeSet::new();
    let adding = pod.bad_containers(|c| {
        let bad: Vec<String> = list(c, "add").into_iter().filter(|added| added != "NET_BIND_SERVICE").collect();
        let any = !bad.is_empty();
        forbidden.extend(bad);
        any
    });
    let mut details = Vec::new();
    if !undropped.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", titled(&undropped)));
    }
    if !adding.is_empty() {
        let what = quoted(forbidden);
        details.push(format!("{} must not include {what} in securityContext.capabilities.add", titled(&adding)));
    }
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    const KNOWN: [&str; 21] = [
        "hostPath",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "gitRepo",
        "nfs",
        "iscsi",
        "glusterfs",
        "rbd",
        "flexVolume",
        "cinder",
        "cephfs",
        "flocker",
        "fc",
        "azureFile",
        "vsphereVolume",
        "quobyte",
        "azureDisk",
        "portworxVolume",
        "scaleIO",
        "storageos",
        "photonPersistentDisk",
    ];
    let is = |volume: &Value, kind: &str| volume.get(kind).is_some_and(|source| !source.is_null());
    let mut names = Vec::new();
    let mut kinds = BTreeSet::new();
    for volume in items(pod.spec, "/volumes") {
        if !ALLOWED.iter().any(|kind| is(volume, kind)) {
            names.push(text(volume, "/name"));
            kinds.insert(KNOWN.into_iter().find(|kind| is(volume, kind)).unwrap_or("unknown"));
        }
    }
    if names.is_empty() {
        return None;
    }
    let (word, uses) = (plural("volume", "volumes", names.len()), plural("uses", "use", names.len()));
    let what = plural("restricted volume type", "restricted volume types", kinds.len());
    violation("restricted volume types", format!("{word} {} {uses} {what} {}", quoted(names), quoted(kinds)))
}

fn non_root(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() {
        return None;
    }
    const FIELD: &str = "/securityContext/runAsNonRoot";
    let of_pod = flag(pod.spec, FIELD);
    let explicit = pod.bad_containers(|container| flag(container, FIELD) == Some(false));
    let setters = setters(of_pod == Some(false), &explicit);
    if !setters.is_empty() {
        let who = setters.join(" and ");
        return violation("runAsNonRoot != true", format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let implicit = pod.bad_containers(|container| flag(container, FIELD).is_none() && of_pod != Some(true));
    if implicit.is_empty() {
        return None;
    }
    let detail = format!("pod or {} must set securityContext.runAsNonRoot=true", titled(&implicit));
    violation("runAsNonRoot != true", detail)
}

fn user(pod: &Pod<'_>) -> Option<Violation> {
    if !pod.version.has(23) || pod.has_user_namespace() {
        return None;
    }
    let root = |holder: &Value| holder.pointer("/securityContext/runAsUser").and_then(Value::as_i64) == Some(0);
    let setters = setters(root(pod.spec), &pod.bad_containers(|container| root(container)));
    if setters.is_empty() {
        return None;
    }
    violation("runAsUser=0", format!("{} must not set runAsUser=0", setters.join(" and ")))
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if !pod.version.has(19) || is_windows(pod) {
        return None;
    }
    let kind = |holder: &Value| {
        let profile = holder.pointer("/securityContext/seccompProfile").filter(|profile| !profile.is_null())?;
        Some(text(profile, "/type").to_owned())
    };
    let good = |kind: &str| matches!(kind, "RuntimeDefault" | "Localhost");
    let mut values = BTreeSet::new();
    let of_pod = kind(pod.spec);
    let by_pod = of_pod.as_deref().is_some_and(|kind| !good(kind));
    values.extend(of_pod.clone().filter(|_| by_pod));
    let explicit = pod.bad_containers(|container| match kind(container) {
        Some(own) if !good(&own) => {
            values.insert(own);
            true
        }
        _ => false,
    });
    let setters = setters(by_pod, &explicit);
    if !setters.is_empty() {
        let who = setters.join(" and ");
        let what = quoted(values);
        return violation(
            "seccompProfile",
            format!("{who} must not set securityContext.seccompProfile.type to {what}"),
        );
    }
    let implicit = pod.bad_containers(|container| kind(container).is_none() && of_pod.is_none());
    if implicit.is_empty() {
        return None;
    }
    violation(
        "seccompProfile",
        format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            titled(&implicit)
        ),
    )
}

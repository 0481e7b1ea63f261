//! What a pod asks of its volumes: SELinux labels, and how they are to be put on; pure functions.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, SELinuxOptions};

/// A label in its parts: user, role, type, level. Empty parts are filled in on the node.
pub(super) type Label = [String; 4];

fn label(options: &SELinuxOptions) -> Label {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    [part(&options.user), part(&options.role), part(&options.type_), part(&options.level)]
}

/// As events and figures show it; nothing at all for a label without parts.
pub(super) fn text(label: &Label) -> String {
    if label.iter().all(String::is_empty) { String::new() } else { label.join(":") }
}

/// The level is never filled in, so that it must be the same; of the others two that are given.
pub(super) fn conflict(one: &Label, other: &Label) -> bool {
    let differ = |index: usize| one[index] != other[index] && !one[index].is_empty() && !other[index].is_empty();
    one[3] != other[3] || (0..3).any(differ)
}

/// Of each volume that containers mount: the labels these run with, where they or the pod say any.
pub(super) fn of_mounts(pod: &Pod) -> BTreeMap<&str, BTreeSet<Label>> {
    let mut all = BTreeMap::<&str, BTreeSet<Label>>::new();
    let Some(spec) = &pod.spec else { return all };
    let of_pod = spec.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref());
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let containers =
        containers.map(|container| (container.volume_mounts.as_ref(), container.security_context.as_ref()));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|container| (container.volume_mounts.as_ref(), container.security_context.as_ref()));
    for (mounts, context) in containers.chain(ephemeral) {
        let options = context.and_then(|context| context.se_linux_options.as_ref()).or(of_pod);
        for mount in mounts.into_iter().flatten() {
            all.entry(mount.name.as_str()).or_default().extend(options.map(label));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parts(label: &str) -> Label {
        let mut parts = label.splitn(4, ':').map(str::to_owned);
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }

    fn check(one: &str, other: &str, wanted: bool) {
        assert_eq!(conflict(&parts(one), &parts(other)), wanted, "{one} {other}");
        assert_eq!(conflict(&parts(other), &parts(one)), wanted, "{other} {one}");
    }

    #[test]
    fn only_what_a_node_fills_in_may_be_left_out() {
        check("u:r:t:s0:c1,c2", "u:r:t:s0:c1,c2", false);
        check("u:r:t:s0:c1,c2", ":::s0:c1,c2", false);
        check("u:r:t:s0:c1,c2", ":::s0:c98,c99", true);
        check("u:r:t:s0", "u:r:other:s0", true);
        check(":::s0:c1,c2", "", true);
        check("", ":::", false);
        assert_eq!(text(&parts(":::")), "");
        assert_eq!(text(&parts(":::s0:c1,c2")), ":::s0:c1,c2");
    }

    #[test]
    fn containers_have_the_label_of_the_pod_unless_they_have_their_own() {
        let mount = json!([{ "name": "v", "mountPath": "/v" }]);
        let pod: Pod = serde_json::from_value(json!({ "metadata": {}, "spec": {
            "securityContext": { "seLinuxOptions": { "level": "s0:c1" } },
            "initContainers": [{ "name": "a", "volumeMounts": mount }],
            "containers": [
                { "name": "b", "volumeMounts": mount, "securityContext": { "seLinuxOptions": { "level": "s0:c2" } } },
                { "name": "c", "volumeMounts": [{ "name": "w", "mountPath": "/w" }] },
            ],
        } }))
        .expect("a pod");
        let labels = of_mounts(&pod);
        assert_eq!(labels["v"], BTreeSet::from([parts(":::s0:c1"), parts(":::s0:c2")]));
        assert_eq!(labels["w"], BTreeSet::from([parts(":::s0:c1")]));
    }
}

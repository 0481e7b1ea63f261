//! Names that are commands: what is to be copied into a shell holds them as words alone.

use serde_json::{Value, json};

use super::{crashing, findings, log, made, node, render, seen, waiting, warned};

const NAME: &str = "a;reboot #$(id)\u{1b}[2J\n`id`";

/// The text without what stands in single quotes, as a shell takes them.
fn bare(text: &str) -> String {
    text.replace(r"'\''", "").split('\'').step_by(2).collect()
}

fn owned_by(version: &str) -> Value {
    json!({ "metadata": { "ownerReferences": [
        { "apiVersion": version, "kind": NAME, "name": NAME, "uid": "u", "controller": true }] } })
}

#[test]
fn names_are_words_of_commands() {
    let refused = |message: &str| {
        let set = made(
            "ReplicaSet",
            "r",
            json!({ "spec": { "replicas": 1 }, "status": { "replicas": 0, "observedGeneration": 1 } }),
        );
        json!([set, warned("ReplicaSet/r", "FailedCreate", message)])
    };
    let hidden = NAME.replace([' ', '\n'], "");
    let cases = [
        ("pod/p", json!([waiting("InvalidImageName", "no name", owned_by("v1"))])),
        ("pod/p", json!([waiting("InvalidImageName", "no name", owned_by(NAME))])),
        ("pod/p", json!([waiting("InvalidImageName", "no name", owned_by(&format!("{NAME}/v1")))])),
        (
            "pod/p",
            json!([waiting(
                "CreateContainerConfigError",
                "",
                json!({ "spec": { "volumes": [
            { "name": "v", "configMap": { "name": NAME } }] } })
            )]),
        ),
        (
            "pod/p",
            json!([waiting(
                "CreateContainerConfigError",
                "",
                json!({ "spec": { "containers": [
            { "name": "c", "envFrom": [{ "secretRef": { "name": NAME } }] }] } })
            )]),
        ),
        (
            "pod/p",
            json!([
                crashing(json!({}), json!({})),
                log(
                    "p/c",
                    &format!(
                        "User \"system:serviceaccount:d:{hidden}\" cannot {hidden} resource \"{hidden}\" in API group \"\" at the cluster scope"
                    )
                )
            ]),
        ),
        ("replicaset/r", refused(&format!("pods \"w\" is forbidden: exceeded quota: {hidden}, requested: pods=1"))),
        (
            "replicaset/r",
            refused(&format!("error looking up service account d/x: serviceaccount \"{NAME}\" not found")),
        ),
        ("replicaset/r", refused(&format!("pods \"w\" is forbidden: no PriorityClass with name {hidden} was found"))),
        ("replicaset/r", refused(&format!("pods \"{NAME}\" already exists"))),
        (
            "replicaset/r",
            refused(&format!("pods is forbidden: User \"{NAME}\" cannot create resource \"{hidden}\" in API group")),
        ),
        (
            "statefulset/s",
            json!([made(
                "StatefulSet",
                "s",
                json!({ "spec": { "serviceName": NAME, "replicas": 1 }, "status": { "observedGeneration": 1, "readyReplicas": 1, "replicas": 1 } })
            )]),
        ),
        (
            "secret/s",
            json!([made(
                "Secret",
                "s",
                json!({ "type": "kubernetes.io/service-account-token",
            "metadata": { "annotations": { "kubernetes.io/service-account.name": NAME } } })
            )]),
        ),
        ("serviceaccount/a", json!([made("ServiceAccount", "a", json!({ "imagePullSecrets": [{ "name": NAME }] }))])),
    ];
    let mut silent = Vec::new();
    for (about, objects) in cases {
        let mut objects = objects;
        objects.as_array_mut().unwrap().push(node("n", "True"));
        let world = seen(about, &objects);
        let found = findings(&world);
        let shown = render(&world, &found);
        let advice: Vec<&String> = found.iter().flat_map(|finding| &finding.advice).collect();
        if !advice.iter().any(|text| text.contains("reboot")) {
            silent.push(shown.clone());
        }
        for text in advice {
            let bare = bare(text);
            assert!(!bare.contains("reboot") && !bare.contains("$(id)") && !text.contains('\n'), "{text}");
        }
    }
    // Each has a command with its name: what is not said proves nothing.
    assert!(silent.is_empty(), "{}", silent.join("\n---\n"));
}

/// Such a name read another object, or what the server does for another path.
#[test]
fn names_are_segments_of_paths() {
    for name in ["there?watch=true", "there#", "x/../there"] {
        let volume = json!([{ "name": "v", "configMap": { "name": name } }]);
        let waits = waiting("CreateContainerConfigError", "", json!({ "spec": { "volumes": volume } }));
        let objects = json!([waits, made("ConfigMap", "there", json!({ "data": { "k": "v" } })), node("n", "True")]);
        let world = seen("pod/p", &objects);
        let shown = render(&world, &findings(&world));
        assert!(shown.contains(&format!("needs the ConfigMap {name:?}, and there is none")), "{shown}");
    }
}

/// Whoever may write Events could ask an administrator for any right in their words.
#[test]
fn an_event_grants_no_rights() {
    let told = "pods is forbidden: User \"mallory\" cannot * resource \"*\" in API group \"*\" in the namespace \"d\"";
    let set = made(
        "ReplicaSet",
        "r",
        json!({ "spec": { "replicas": 1 }, "status": { "replicas": 0, "observedGeneration": 1 } }),
    );
    let world = seen("replicaset/r", &json!([set, warned("ReplicaSet/r", "FailedCreate", told), node("n", "True")]));
    let shown = render(&world, &findings(&world));
    assert!(
        shown.contains("its pods are refused by the API server") && !shown.contains("kubectl create role"),
        "{shown}"
    );
}

//! Leave to name objects of another namespace: a ReferenceGrant there.

use ferry_meta::object;
use serde_json::{Value, json};

use crate::world::{known_kind, word};

/// A command for every other namespace that these references of an object lead to. `kind`: what a reference without one means.
pub(super) fn advice<'a>(user: &Value, kind: &str, references: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for reference in references {
        let namespace = object::text(reference, "/namespace");
        if namespace.is_empty() || namespace == object::namespace(user) {
            continue;
        }
        let kind = match object::text(reference, "/kind") {
            "" => kind,
            kind => kind,
        };
        let text = command(user, object::text(reference, "/group"), kind, object::text(reference, "/name"), namespace);
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

/// How whoever owns a namespace lets an object of another one name something there.
pub(super) fn command(user: &Value, group: &str, kind: &str, name: &str, namespace: &str) -> String {
    let own = object::namespace(user);
    let from = match known_kind(user) {
        "PersistentVolumeClaim" => "",
        _ => "gateway.networking.k8s.io",
    };
    let grant = json!({
        "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": { "name": format!("from-{own}"), "namespace": namespace },
        "spec": {
            "from": [{ "group": from, "kind": object::text(user, "/kind"), "namespace": own }],
            "to": [{ "group": group, "kind": kind, "name": name }],
        },
    });
    format!(
        "whoever owns namespace {namespace} allows it with a ReferenceGrant: echo {} | kubectl apply -f -",
        word(&grant.to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_for_what_is_named_in_another_namespace() {
        let route = json!({ "kind": "HTTPRoute", "metadata": { "name": "r", "namespace": "d" } });
        let references = [
            json!({ "name": "own" }),
            json!({ "name": "same", "namespace": "d" }),
            json!({ "name": "api", "namespace": "back" }),
            json!({ "name": "api", "namespace": "back" }),
        ];
        let found = advice(&route, "Service", references.iter());
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert!(one.starts_with("whoever owns namespace back allows it with a ReferenceGrant: echo '{"), "{one}");
        assert!(one.ends_with("}' | kubectl apply -f -"), "{one}");
        assert!(
            one.contains(r#""from":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","namespace":"d"}]"#),
            "{one}"
        );
        assert!(one.contains(r#""to":[{"group":"","kind":"Service","name":"api"}]"#), "{one}");
    }
}

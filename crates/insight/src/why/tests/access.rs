//! Bindings of roles, policies without bindings, accounts without their Secrets.

use serde_json::{Value, json};

use super::super::ACCOUNTS;
use super::{FINE, Reason, Situation, check_all, findings, one, world};
use crate::world::{Content, Presence, World};

fn binding(kind: &str, role: (&str, &str), subjects: Value, known: &[(&str, &str, bool)]) -> World {
    let version = "rbac.authorization.k8s.io/v1";
    let parts = json!({ "apiVersion": version, "roleRef": { "kind": role.0, "name": role.1 }, "subjects": subjects });
    let mut world = one(kind, parts, &[]);
    for (plural, name, there) in known {
        let presence = if *there { Presence::Present(Content::default()) } else { Presence::Absent };
        world.note(plural, name, presence);
    }
    world
}

#[test]
fn bindings() {
    let account = json!([{ "kind": "ServiceAccount", "name": "a", "namespace": "d" }]);
    let rows: Vec<Situation<'_>> = vec![
        (
            "no role",
            binding("RoleBinding", ("Role", "reader"), account.clone(), &[("roles", "reader", false)]),
            Reason::RoleMissing,
            &[
                "the Role \"reader\" does not exist in namespace d",
                "kubectl create role -n d reader --verb=get,list,watch --resource=pods",
                "kubectl delete -n d rolebinding.rbac.authorization.k8s.io/x",
            ],
        ),
        (
            "no cluster role",
            binding(
                "ClusterRoleBinding",
                ("ClusterRole", "r"),
                json!([{ "kind": "User", "name": "jane" }]),
                &[("clusterroles", "r", false)],
            ),
            Reason::RoleMissing,
            &["the ClusterRole \"r\" does not exist\n", "kubectl create clusterrole r "],
        ),
        (
            "no account",
            binding(
                "RoleBinding",
                ("ClusterRole", "view"),
                account.clone(),
                &[("clusterroles", "view", true), (ACCOUNTS, "d/a", false)],
            ),
            Reason::SubjectMissing,
            &["the ServiceAccount d/a does not exist", "kubectl create serviceaccount -n d a"],
        ),
        (
            "nobody",
            binding("RoleBinding", ("ClusterRole", "view"), json!([]), &[("clusterroles", "view", true)]),
            Reason::NoSubjects,
            &[FINE, "it has no subjects"],
        ),
    ];
    check_all(&rows);
    for known in [&[("clusterroles", "view", true), (ACCOUNTS, "d/a", true)][..], &[]] {
        let world = binding("RoleBinding", ("ClusterRole", "view"), account.clone(), known);
        assert_eq!(findings(&world), [], "what is there, or may not be read, is left alone");
    }
}

#[test]
fn policies() {
    let policy = |status: Value| json!({ "apiVersion": "admissionregistration.k8s.io/v1", "spec": { "failurePolicy": "Fail" }, "status": status });
    let bound = json!([{ "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": "b" }, "spec": { "policyName": "x" } }]);
    let warned = json!({ "observedGeneration": 1, "typeChecking": { "expressionWarnings": [{ "fieldRef": "spec.validations[0].expression", "warning": "undefined field 'replicsa'" }] } });
    let bindings = "validatingadmissionpolicybindings";
    let spec = json!({ "apiVersion": "admissionregistration.k8s.io/v1", "spec": { "policyName": "p" } });
    let taking = json!([{ "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "p" }, "spec": { "paramKind": { "kind": "Limit" } } }]);
    let rows: Vec<Situation<'_>> = vec![
        (
            "unbound",
            one("ValidatingAdmissionPolicy", policy(json!({})), &[(bindings, json!([]))]),
            Reason::PolicyUnbound,
            &["no ValidatingAdmissionPolicyBinding names it", "spec.policyName: x"],
        ),
        (
            "types",
            one("ValidatingAdmissionPolicy", policy(warned), &[(bindings, bound.clone())]),
            Reason::PolicyTypes,
            &["probably", "undefined field 'replicsa'", "requests are refused"],
        ),
        (
            "no policy",
            one("ValidatingAdmissionPolicyBinding", spec.clone(), &[("validatingadmissionpolicies", json!([]))]),
            Reason::PolicyMissing,
            &["the ValidatingAdmissionPolicy \"p\" does not exist", "there is none at all"],
        ),
        (
            "no parameters",
            one("ValidatingAdmissionPolicyBinding", spec.clone(), &[("validatingadmissionpolicies", taking)]),
            Reason::PolicyMissing,
            &["takes parameters", "spec.paramRef"],
        ),
    ];
    check_all(&rows);
    assert_eq!(findings(&one("ValidatingAdmissionPolicy", policy(json!({})), &[(bindings, bound)])), []);
    assert_eq!(findings(&one("ValidatingAdmissionPolicy", policy(json!({})), &[])), [], "not seen is not absent");
}

#[test]
fn accounts_and_definitions() {
    let mut account = one("ServiceAccount", json!({ "imagePullSecrets": [{ "name": "r" }, { "name": "there" }] }), &[]);
    account.note("secrets", "r", Presence::Absent);
    account.note("secrets", "there", Presence::Present(Content::default()));
    let service = json!({ "name": "conv", "namespace": "sys" });
    let definition = |versions: Value| {
        let webhook = json!({ "clientConfig": { "service": service } });
        let spec = json!({ "versions": versions, "conversion": { "strategy": "Webhook", "webhook": webhook } });
        let target =
            json!({ "kind": "CustomResourceDefinition", "metadata": { "name": "w.example.com" }, "spec": spec });
        let absent = json!([{ "absent": true, "metadata": { "name": "conv", "namespace": "sys" } }]);
        world(target, &[(crate::gather::BEHIND, absent)])
    };
    let dangling = json!({ "status": { "conditions": [{ "type": "Dangling", "status": "True", "reason": "NotFound", "message": "no such level" }] } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "no pull secret",
            account,
            Reason::PullSecretOfAccount,
            &["its pull Secret r does not exist in namespace d", "kubectl create secret docker-registry -n d r "],
        ),
        (
            "conversion",
            definition(json!([{ "name": "v1" }, { "name": "v2" }])),
            Reason::ConversionWebhook,
            &["its Service sys/conv does not exist", "kubectl edit crd w.example.com"],
        ),
        ("nothing to convert", definition(json!([{ "name": "v1" }])), Reason::ConversionWebhook, &[FINE]),
        ("dangling", one("FlowSchema", dangling, &[]), Reason::Condition, &["Dangling=True: NotFound: no such level"]),
    ];
    check_all(&rows);
}

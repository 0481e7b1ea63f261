//! What must not be learned or had by the shape of a request.

use std::sync::Arc;

use ferry_admission::{Chain, Dependencies, PolicyOptions};
use ferry_apiserver::{Body, Peer};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::Fixture;

/// Discovery is open to everyone by rules for paths; a resource whose name is empty is none of these.
#[tokio::test]
async fn a_resource_without_a_name_is_no_plain_path() {
    let fixture = Fixture::new().await;
    let (code, _) = fixture.call(&fixture.bob, "GET", "/apis/apps/v1", "", "").await;
    assert_eq!(code, 200);
    for path in ["/apis/apps/v1//namespaces/default/deployments", "/api/v1//namespaces/default/secrets"] {
        let (code, refused) = fixture.call(&fixture.bob, "GET", path, "", "").await;
        assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")), "{path}: {refused}");
    }
    fixture.stop().await;
}

/// A write that depends on a Lease tells who holds it, so whoever may not read the Lease is refused whatever it says.
#[tokio::test]
async fn leases_are_not_told_to_those_who_may_not_read_them() {
    let mut part = String::new();
    let fixture = Fixture::with(|_, tokens| {
        part = tokens.issue(ferry_meta::UserInfo::service_account("kube-system", "part", ""));
    })
    .await;
    let lease = json!({"metadata": {"name": "led"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    assert_eq!(fixture.json("POST", leases, &lease).await.0, 201);
    let writer = json!({"metadata": {"name": "writer"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]});
    let bound = json!({"metadata": {"name": "writer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"},
                     {"kind": "ServiceAccount", "namespace": "kube-system", "name": "part"}]});
    for (resource, object) in [("roles", writer), ("rolebindings", bound)] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/default/{resource}");
        assert_eq!(fixture.json("POST", &path, &object).await.0, 201);
    }
    for (user, token, holder, want) in [
        ("bob", &fixture.bob, None, 201),
        ("bob", &fixture.bob, Some("me"), 403),
        ("bob", &fixture.bob, Some("other"), 403),
        ("admin", &fixture.admin, Some("me"), 201),
        ("admin", &fixture.admin, Some("other"), 409),
        ("part", &part, Some("me"), 201),
        ("part", &part, Some("other"), 409),
    ] {
        let name = format!("{user}-{}", holder.unwrap_or("plain"));
        let body: Body = Full::new(bytes::Bytes::from(json!({"metadata": {"name": name}}).to_string()))
            .map_err(|never| match never {})
            .boxed_unsync();
        let mut request = Request::post("/api/v1/namespaces/default/configmaps")
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        if let Some(holder) = holder {
            request = request.header("ferry-leader-lease", format!("kube-system/led/{holder}"));
        }
        let answer = fixture.server.handle(request.body(body).expect("a request"), Peer::default()).await;
        assert_eq!(answer.status().as_u16(), want, "{name}");
    }
    fixture.stop().await;
}

/// Labels decide which roles take in the rules of another: whoever may write roles, and lacks the rights of one, labelled it, and had
/// its rights by a role that everybody may have.
#[tokio::test]
async fn a_label_on_a_role_is_for_those_who_have_its_rights() {
    let fixture = Fixture::new().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let writer = json!({"metadata": {"name": "writer"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["get", "create", "update", "patch"]}]});
    assert_eq!(fixture.json("POST", roles, &writer).await.0, 201);
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]);
    for role in ["writer", "view"] {
        let bound = json!({"metadata": {"name": format!("bob-{role}")}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        assert_eq!(fixture.json("POST", bindings, &bound).await.0, 201);
    }
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}).to_string();
    let apply = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cluster-admin",
        "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}})
    .to_string();
    for (kind, query, body) in [
        ("application/merge-patch+json", "", &label),
        ("application/strategic-merge-patch+json", "", &label),
        ("application/apply-patch+yaml", "?fieldManager=m&force=true", &apply),
    ] {
        let path = format!("{roles}/cluster-admin{query}");
        let (code, refused) = fixture.call(&fixture.bob, "PATCH", &path, kind, body.as_str()).await;
        assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")), "{kind}: {refused}");
    }
    let (code, _) = fixture.call(&fixture.bob, "GET", "/api/v1/secrets", "", "").await;
    assert_eq!(code, 403);
    // One's own rights may be given on.
    let path = format!("{roles}/writer");
    let (code, _) = fixture.call(&fixture.bob, "PATCH", &path, "application/merge-patch+json", label.as_str()).await;
    assert_eq!(code, 200);
    fixture.stop().await;
}

/// A policy tells those whom it refuses what it finds in its parameters, so whoever could write policies read every Secret.
#[tokio::test]
async fn the_parameters_of_a_policy_are_for_those_who_may_read_them() {
    let fixture = Fixture::new().await;
    let (rbac, admission) = ("/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1");
    let writer = json!({"metadata": {"name": "writer"}, "rules": [
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own"], "verbs": ["get"]}]});
    let bound = json!({"metadata": {"name": "writer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
    assert_eq!(fixture.json("POST", &format!("{rbac}/clusterroles"), &writer).await.0, 201);
    assert_eq!(fixture.json("POST", &format!("{rbac}/clusterrolebindings"), &bound).await.0, 201);
    let rules = json!({"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]});
    let policy = |name: &str, kind: &str| {
        let validations = json!([{"expression": "false", "messageExpression": "string(params.data['v'])"}]);
        json!({"metadata": {"name": name}, "spec": {"paramKind": {"apiVersion": "v1", "kind": kind},
            "matchConstraints": rules, "validations": validations}})
    };
    let mutating = |name: &str, kind: &str| {
        let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {
            "expression": "Object{metadata: Object.metadata{labels: {'v': string(params.data['v'])}}}"}});
        json!({"metadata": {"name": name}, "spec": {"paramKind": {"apiVersion": "v1", "kind": kind},
            "matchConstraints": rules, "reinvocationPolicy": "Never", "mutations": [mutation]}})
    };
    let binding = |policy: &str, param: &str, mutates: bool| {
        let reference = match param {
            "" => json!({"namespace": "default", "selector": {}, "parameterNotFoundAction": "Allow"}),
            name => json!({"namespace": "default", "name": name, "parameterNotFoundAction": "Allow"}),
        };
        let mut binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": policy, "paramRef": reference}});
        if !mutates {
            binding["spec"]["validationActions"] = json!(["Deny"]);
        }
        binding
    };
    for (mutates, kind) in [(false, "validatingadmissionpolicies"), (true, "mutatingadmissionpolicies")] {
        let made = |name: &str, kind: &str| if mutates { mutating(name, kind) } else { policy(name, kind) };
        let policies = format!("{admission}/{kind}");
        let bindings = policies.replace("policies", "policybindings");
        for name in ["secrets", "maps"] {
            let path = format!("{policies}?dryRun=All");
            let kind = if name == "maps" { "ConfigMap" } else { "Secret" };
            let body = made(name, kind).to_string();
            let (code, told) = fixture.call(&fixture.bob, "POST", &path, "application/json", body).await;
            assert_eq!(code, if name == "maps" { 201 } else { 422 }, "{told}");
            assert_eq!(fixture.json("POST", &policies, &made(name, kind)).await.0, 201);
        }
        let path = format!("{policies}/maps?dryRun=All");
        let turned = json!({"spec": {"paramKind": {"kind": "Secret"}}}).to_string();
        let (code, told) = fixture.call(&fixture.bob, "PATCH", &path, "application/merge-patch+json", turned).await;
        assert_eq!(code, 422, "{told}");
        let labelled = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
        let path = format!("{policies}/secrets?dryRun=All");
        let (code, told) = fixture.call(&fixture.bob, "PATCH", &path, "application/merge-patch+json", labelled).await;
        assert_eq!(code, 200, "what was there before is no matter: {told}");
        for (policy, param, want) in [
            ("maps", "any", 201),
            ("maps", "", 201),
            ("secrets", "own", 201),
            ("secrets", "other", 422),
            ("secrets", "", 422),
            ("unknown", "own", 422),
        ] {
            let path = format!("{bindings}?dryRun=All");
            let body = binding(policy, param, mutates).to_string();
            let (code, told) = fixture.call(&fixture.bob, "POST", &path, "application/json", body).await;
            assert_eq!(code, want, "{policy} {param}: {told}");
            if code == 422 {
                assert_eq!(told["details"]["causes"][0]["field"], "spec.paramRef", "{told}");
            }
        }
    }
    fixture.stop().await;
}

/// A policy for everything refused the questions by which components learn who somebody is and what they may do, or changed them: a
/// kubelet that asks what a user may do there heard of another user.
#[tokio::test]
async fn policies_do_not_see_questions_about_rights() {
    let fixture = Fixture::with(|config, _| {
        let dependencies = Dependencies {
            reader: config.cache.clone(),
            authorizer: config.authorization.clone(),
            quotas: None,
            node_labels: None,
        };
        let policies = PolicyOptions { defaulter: None, kinds: Arc::new(|_| None) };
        config.admission = Chain::new(dependencies).with_policies(&policies).plugins().to_vec();
    })
    .await;
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let everything = json!({"resourceRules": [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*/*"]}]});
    let bob = json!([{"name": "bob", "expression": "request.userInfo.username == 'bob'"}]);
    let refusing = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": everything, "matchConditions": bob,
        "validations": [{"expression": "false"}]}});
    let expression = "has(object.spec) && has(object.spec.user) ? [JSONPatch{op: 'replace', path: '/spec/user', value: 'admin'}] : []";
    let changing = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": everything, "matchConditions": bob,
        "reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]}});
    let asked = json!({"spec": {"user": "nobody", "nonResourceAttributes": {"path": "/secret", "verb": "get"}}});
    let grant = json!({"metadata": {"name": "ask"}, "rules": [{"apiGroups": ["authorization.k8s.io", "authentication.k8s.io", ""],
        "resources": ["subjectaccessreviews", "tokenreviews", "configmaps"], "verbs": ["create"]}]});
    let bound = json!({"metadata": {"name": "ask"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ask"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    assert_eq!(fixture.json("POST", &format!("{rbac}/clusterroles"), &grant).await.0, 201);
    assert_eq!(fixture.json("POST", &format!("{rbac}/clusterrolebindings"), &bound).await.0, 201);
    for (kind, policy, actions) in [("mutating", &changing, None), ("validating", &refusing, Some(json!(["Deny"])))] {
        let mut binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}});
        if let Some(actions) = actions {
            binding["spec"]["validationActions"] = actions;
        }
        let (code, told) = fixture.json("POST", &format!("{admission}/{kind}admissionpolicies"), policy).await;
        assert_eq!(code, 201, "{told}");
        let (code, told) = fixture.json("POST", &format!("{admission}/{kind}admissionpolicybindings"), &binding).await;
        assert_eq!(code, 201, "{told}");
    }
    let post = async |path: &str, body: &Value| {
        fixture.call(&fixture.bob, "POST", path, "application/json", body.to_string()).await
    };
    let map = json!({"metadata": {"name": "m"}});
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while post("/api/v1/namespaces/default/configmaps?dryRun=All", &map).await.0 == 201 {
        assert!(std::time::Instant::now() < deadline, "the policies are in force");
        tokio::task::yield_now().await;
    }
    let (code, answer) = post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &asked).await;
    assert_eq!((code, &answer["spec"]["user"]), (201, &json!("nobody")), "{answer}");
    let token = json!({"spec": {"token": "unknown"}});
    for (path, body) in [
        ("/apis/authentication.k8s.io/v1/tokenreviews", &token),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})),
        ("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &json!({"spec": {"namespace": "default"}})),
    ] {
        let (code, answer) = post(path, body).await;
        assert_eq!(code, 201, "{path}: {answer}");
    }
    fixture.stop().await;
}

/// Who gives a name and a prefix for a generated one is told to try again.
#[tokio::test]
async fn a_name_that_is_taken_beside_a_prefix_may_be_tried_again() {
    let fixture = Fixture::new().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "a", "generateName": "a-"}});
    assert_eq!(fixture.json("POST", maps, &map).await.0, 201);
    for path in [maps.to_owned(), format!("{maps}?dryRun=All")] {
        let (code, refused) = fixture.json("POST", &path, &map).await;
        assert_eq!(
            (code, &refused["reason"], &refused["details"]["retryAfterSeconds"]),
            (409, &json!("AlreadyExists"), &json!(1))
        );
        let message =
            "configmaps \"a\" already exists, the server was not able to generate a unique name for the object";
        assert_eq!(refused["message"], message);
    }
    let (_, refused) = fixture.json("POST", maps, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(refused["message"], "configmaps \"a\" already exists");
    fixture.stop().await;
}

/// What goes at once is shown with the finalizers that it had.
#[tokio::test]
async fn a_deleted_object_is_shown_as_it_was() {
    let fixture = Fixture::new().await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s", "finalizers": ["orphan"]}, "spec": {"ports": [{"port": 1}]}});
    assert_eq!(fixture.json("POST", services, &service).await.0, 201);
    for dry_run in [json!(["All"]), json!([])] {
        let background = json!({"propagationPolicy": "Background", "dryRun": dry_run});
        let (code, gone) = fixture.json("DELETE", &format!("{services}/s"), &background).await;
        assert_eq!((code, &gone["metadata"]["finalizers"]), (200, &json!(["orphan"])), "{dry_run}");
    }
    assert_eq!(fixture.json("GET", &format!("{services}/s"), &Value::Null).await.0, 404);
    fixture.stop().await;
}

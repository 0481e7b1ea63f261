use super::*;
use crate::authorize::AuthorizerChain;
use crate::testing::Objects;
use ferry_meta::GroupResource;
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

fn put(objects: &Objects, resource: &str, object: Value) {
    objects.put(GROUP, resource, object);
}

fn binding(namespace: &str, name: &str, kind: &str, role: &str, subjects: Value) -> Value {
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    json!({"metadata": metadata, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": subjects})
}

fn role(namespace: &str, name: &str, rules: Value) -> Value {
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    json!({"metadata": metadata, "rules": rules})
}

fn cluster() -> Arc<Objects> {
    let objects = Objects::default();
    for object in crate::bootstrap::objects() {
        let resource = match ferry_meta::object::text(&object, "/kind") {
            "ClusterRole" => "clusterroles",
            "ClusterRoleBinding" => "clusterrolebindings",
            "Role" => "roles",
            "RoleBinding" => "rolebindings",
            _ => continue,
        };
        put(&objects, resource, object);
    }
    Arc::new(objects)
}

fn bob() -> UserInfo {
    UserInfo::new("bob", &["devs", "system:authenticated"])
}

fn decide(rbac: &Rbac, user: &UserInfo, verb: &str, resource: &str, namespace: &str) -> Decision {
    let (group, resource) = resource.split_once(':').unwrap_or(("", resource));
    rbac.decide(&Attributes { namespace, ..Attributes::resource(user, verb, group, resource) })
}

#[test]
fn reasons_name_binding_role_and_subject() {
    let objects = cluster();
    let rbac = Rbac::new(objects.clone());
    put(&objects, "roles", role("a", "r", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}])));
    put(&objects, "rolebindings", binding("a", "b", "Role", "r", json!([{"kind": "User", "name": "bob"}])));
    put(
        &objects,
        "rolebindings",
        binding("a", "s", "ClusterRole", "view", json!([{"kind": "ServiceAccount", "name": "robot"}])),
    );
    let allowed = |user: &UserInfo, verb: &str, resource: &str, namespace: &str, want: &str| {
        assert_eq!(decide(&rbac, user, verb, resource, namespace), Decision::Allow { reason: want.into() });
    };
    allowed(&bob(), "get", "configmaps", "a", r#"RBAC: allowed by RoleBinding "b/a" of Role "r" to User "bob""#);
    let robot = UserInfo::service_account("a", "robot", "u");
    allowed(
        &robot,
        "list",
        "apps:deployments",
        "a",
        r#"RBAC: allowed by RoleBinding "s/a" of ClusterRole "view" to ServiceAccount "robot/a""#,
    );
    let healthz = rbac.decide(&Attributes::path(&bob(), "get", "/api/v1"));
    assert_eq!(
        healthz.reason(),
        r#"RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated""#
    );
    for (verb, resource, namespace) in
        [("get", "configmaps", "b"), ("get", "configmaps", ""), ("list", "configmaps", "a")]
    {
        assert_eq!(decide(&rbac, &bob(), verb, resource, namespace), Decision::no_opinion(""));
    }
}

#[test]
fn anonymous_reaches_health_and_version_only() {
    let rbac = Rbac::new(cluster());
    let anonymous = UserInfo::anonymous();
    for (path, want) in [
        ("/healthz", true),
        ("/livez", true),
        ("/readyz", true),
        ("/version", true),
        ("/version/", true),
        ("/livez/ping", false),
        ("/healthz/", false),
        ("/", false),
        ("/api", false),
        ("/metrics", false),
    ] {
        assert_eq!(rbac.decide(&Attributes::path(&anonymous, "get", path)).is_allowed(), want, "{path}");
    }
}

#[test]
fn a_missing_role_is_told_and_a_change_is_seen_at_once() {
    let objects = cluster();
    let rbac = Rbac::new(objects.clone());
    put(&objects, "rolebindings", binding("a", "b", "ClusterRole", "gone", json!([{"kind": "Group", "name": "devs"}])));
    assert_eq!(
        decide(&rbac, &bob(), "list", "secrets", "a"),
        Decision::no_opinion(r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#)
    );
    put(&objects, "clusterroles", role("", "gone", json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])));
    assert!(decide(&rbac, &bob(), "list", "secrets", "a").is_allowed());
    objects.remove(GROUP, "rolebindings", "a", "b");
    assert_eq!(decide(&rbac, &bob(), "list", "secrets", "a"), Decision::no_opinion(""));
}

#[test]
fn aggregated_roles_are_whole_from_the_start() {
    let objects = cluster();
    put(&objects, "rolebindings", binding("a", "b", "ClusterRole", "admin", json!([{"kind": "User", "name": "bob"}])));
    let rbac = Rbac::new(objects);
    for (verb, resource) in
        [("create", "apps:deployments"), ("get", "secrets"), ("create", "rbac.authorization.k8s.io:roles")]
    {
        assert!(decide(&rbac, &bob(), verb, resource, "a").is_allowed(), "{verb} {resource}");
    }
    assert!(!decide(&rbac, &bob(), "create", "nodes", "a").is_allowed());
}

#[tokio::test]
async fn nobody_gives_away_what_they_do_not_hold() {
    let objects = cluster();
    let rules = json!([
        {"apiGroups": [GROUP], "resources": ["roles", "rolebindings"], "verbs": ["create", "update"]},
        {"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["bind"], "resourceNames": ["strong"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
    ]);
    put(&objects, "roles", role("a", "mgr", rules));
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]);
    put(&objects, "roles", role("a", "strong", secrets.clone()));
    put(&objects, "roles", role("a", "other", secrets));
    put(&objects, "rolebindings", binding("a", "mgr", "Role", "mgr", json!([{"kind": "User", "name": "bob"}])));
    let rbac = Arc::new(Rbac::new(objects.clone()));
    let chain = AuthorizerChain::new().with("rbac", rbac.clone());
    let write = async |resource: &str, object: &Value| {
        check_write(&rbac, &chain, &bob(), &GroupResource::new(GROUP, resource), object, None)
            .await
            .map_err(|e| e.0.message)
    };
    let own = role("a", "own", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]));
    assert_eq!(write("roles", &own).await, Ok(()));
    let more = role(
        "a",
        "more",
        json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "delete"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        ]),
    );
    assert_eq!(write("roles", &more).await, Err("roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"bob\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}".into()));
    let bind =
        |name: &str, kind: &str, role: &str| binding("a", name, kind, role, json!([{"kind": "User", "name": "jim"}]));
    assert_eq!(write("rolebindings", &bind("ok", "Role", "strong")).await, Ok(()));
    assert!(
        write("rolebindings", &bind("no", "Role", "other"))
            .await
            .expect_err("forbidden")
            .ends_with("not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"*\"]}")
    );
    assert_eq!(
        write("rolebindings", &bind("bn", "Role", "missing")).await,
        Err("rolebindings.rbac.authorization.k8s.io \"missing\" not found".into())
    );
    assert!(
        write("rolebindings", &bind("ba", "ClusterRole", "cluster-admin")).await.expect_err("forbidden").ends_with(
            "held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
        )
    );
    assert_eq!(
        write("rolebindings", &bind("odd", "Odd", "strong")).await,
        Err("unsupported role reference kind: \"Odd\"".into())
    );
    let aggregated = json!({"metadata": {"name": "x"}, "rules": [], "aggregationRule": {"clusterRoleSelectors": [{}]}});
    assert_eq!(write("clusterroles", &aggregated).await, Err("clusterroles.rbac.authorization.k8s.io \"x\" is forbidden: must have cluster-admin privileges to use the aggregationRule".into()));
    let escalate = json!([{"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["escalate"]}]);
    put(&objects, "roles", role("a", "esc", escalate));
    put(&objects, "rolebindings", binding("a", "esc", "Role", "esc", json!([{"kind": "User", "name": "bob"}])));
    assert_eq!(write("roles", &more).await, Ok(()));
}

/// A label was enough: by it, the aggregated role `view` took in all that the role of another could do.
#[tokio::test]
async fn who_lacks_the_rights_of_a_role_does_not_label_it() {
    let objects = cluster();
    let rules = json!([
        {"apiGroups": [GROUP], "resources": ["clusterroles", "clusterrolebindings"], "verbs": ["update"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]);
    let bobs = |name: &str| binding("", name, "ClusterRole", name, json!([{"kind": "User", "name": "bob"}]));
    put(&objects, "clusterroles", role("", "mgr", rules));
    put(&objects, "clusterrolebindings", bobs("mgr"));
    let rbac = Arc::new(Rbac::new(objects));
    let chain = AuthorizerChain::new().with("rbac", rbac.clone());
    let write = async |resource: &str, old: &Value, path: &str, value: Value| {
        let mut object = old.clone();
        *object.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value;
        let resource = GroupResource::new(GROUP, resource);
        check_write(&rbac, &chain, &bob(), &resource, &object, Some(old)).await.is_ok()
    };
    let with_places = |mut object: Value| {
        for place in ["labels", "annotations", "finalizers", "ownerReferences"] {
            object["metadata"][place] = Value::Null;
        }
        object
    };
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let maps = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let (strong, weak) = (with_places(role("", "strong", secrets)), with_places(role("", "weak", maps.clone())));
    let strong_binding = with_places(bobs("admin"));
    let mut aggregated = weak.clone();
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let label = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    for (resource, old, path, value, want) in [
        ("clusterroles", &strong, "/metadata/labels", label.clone(), false),
        ("clusterroles", &strong, "/metadata/annotations", json!({"a": "b"}), false),
        ("clusterroles", &strong, "/metadata/finalizers", json!(["a/b"]), true),
        ("clusterroles", &strong, "/metadata/ownerReferences", json!([{"uid": "x"}]), true),
        ("clusterroles", &strong, "/rules", maps, true),
        ("clusterroles", &weak, "/metadata/labels", label.clone(), true),
        ("clusterroles", &aggregated, "/metadata/labels", label.clone(), false),
        ("clusterroles", &aggregated, "/aggregationRule", Value::Null, false),
        ("clusterroles", &aggregated, "/metadata/finalizers", json!([]), true),
        ("clusterrolebindings", &strong_binding, "/metadata/labels", label, false),
        ("clusterrolebindings", &strong_binding, "/metadata/finalizers", json!(["a/b"]), true),
    ] {
        let shown = format!("{} of {}", path, old["metadata"]["name"]);
        assert_eq!(write(resource, old, path, value).await, want, "{shown}");
    }
}

/// Four lists of a few kilobytes stand for more permissions than fit into memory.
#[tokio::test]
async fn roles_that_stand_for_very_much_cost_little() {
    let objects = cluster();
    let rules = json!([
        {"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["create"]},
        {"apiGroups": ["mine"], "resources": ["*"], "verbs": ["*"]},
    ]);
    put(&objects, "roles", role("a", "mgr", rules));
    put(&objects, "rolebindings", binding("a", "mgr", "Role", "mgr", json!([{"kind": "User", "name": "bob"}])));
    let rbac = Arc::new(Rbac::new(objects));
    let chain = AuthorizerChain::new().with("rbac", rbac.clone());
    let write = async |rules: Value| {
        let role = role("a", "wide", rules);
        let resource = GroupResource::new(GROUP, "roles");
        check_write(&rbac, &chain, &bob(), &resource, &role, None).await.map_err(|e| e.0.message)
    };
    let many = |letter: &str, count: usize| (0..count).map(|n| format!("{letter}{n}")).collect::<Vec<_>>();
    let wide = |groups: &[String]| json!([{"apiGroups": groups, "resources": many("r", 2000), "verbs": many("v", 2000), "resourceNames": many("n", 2000)}]);
    // What is held as a whole may be given on, however much it is.
    assert_eq!(write(wide(&["mine".to_owned()])).await, Ok(()));
    let refused = write(wide(&many("g", 2000))).await.expect_err("forbidden");
    assert!(refused.contains("stand for 16000000000000 single permissions"), "{refused}");
    // Many short rules are compared, and not all that is missing is told.
    let rules: Vec<Value> =
        many("g", 50_000).iter().map(|g| json!({"apiGroups": [g], "resources": ["r"], "verbs": ["v"]})).collect();
    let refused = write(json!(rules)).await.expect_err("forbidden");
    assert!(refused.ends_with("\n... and more"), "{refused}");
    assert_eq!(refused.lines().count(), 1002);
}

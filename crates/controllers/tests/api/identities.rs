//! Each controller acts as a service account with upstream's role, and with no other.

use std::collections::{BTreeMap, BTreeSet};

use ferry_client::Api;
use ferry_testbed::Kit;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use kube::ResourceExt;
use serde_json::Value;

/// Upstream's roles or bindings as it makes them, recorded.
fn items<K: serde::de::DeserializeOwned>(facts: &Value, resource: &str) -> Vec<K> {
    serde_json::from_value(facts[resource].clone()).unwrap()
}

/// The roles that the bindings give to the account.
fn given<'a>(bindings: impl Iterator<Item = (&'a Option<Vec<Subject>>, String)>, account: &str) -> BTreeSet<String> {
    let is = |subject: &Subject| {
        subject.kind == "ServiceAccount"
            && subject.name == account
            && subject.namespace.as_deref() == Some("kube-system")
    };
    bindings.filter(|(subjects, _)| subjects.iter().flatten().any(is)).map(|(_, role)| role).collect()
}

fn roles_of(clusters: &[ClusterRoleBinding], namespaced: &[RoleBinding], account: &str) -> BTreeSet<String> {
    let cluster = clusters.iter().map(|one| (&one.subjects, one.role_ref.name.clone()));
    let namespaced = namespaced
        .iter()
        .map(|one| (&one.subjects, format!("{}/{}", one.namespace().unwrap_or_default(), one.role_ref.name)));
    given(cluster.chain(namespaced), account)
}

fn rules(clusters: Vec<ClusterRole>, namespaced: Vec<Role>) -> BTreeMap<String, Vec<PolicyRule>> {
    let cluster = clusters.into_iter().map(|role| (role.name_any(), role.rules.unwrap_or_default()));
    let namespaced = namespaced.into_iter().map(|role| {
        (format!("{}/{}", role.namespace().unwrap_or_default(), role.name_any()), role.rules.unwrap_or_default())
    });
    cluster.chain(namespaced).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_controller_has_upstreams_role_and_nothing_more() {
    let kit = Kit::new().await;
    kit.controllers(kit.config());
    let list = &Default::default();
    let client = || kit.client.clone();
    let here = (
        Api::<ClusterRoleBinding>::all(client()).list(list).await.unwrap().items,
        Api::<RoleBinding>::all(client()).list(list).await.unwrap().items,
    );
    let roles = rules(
        Api::<ClusterRole>::all(client()).list(list).await.unwrap().items,
        Api::<Role>::all(client()).list(list).await.unwrap().items,
    );
    let facts = ferry_testkit::data::facts("rbac.json");
    let there = (items(&facts, "clusterrolebindings"), items(&facts, "rolebindings"));
    let known = rules(items(&facts, "clusterroles"), items(&facts, "roles"));
    assert_eq!(known.len(), 80);
    let identities = kit.witness.identities();
    assert!(identities.len() > 30, "{identities:?}");
    for account in identities {
        let names = roles_of(&here.0, &here.1, &account);
        assert!(!names.is_empty(), "{account} has no role");
        assert_eq!(names, roles_of(&there.0, &there.1, &account), "{account}");
        for name in names {
            assert_eq!(roles.get(&name), known.get(&name), "{account}: {name}");
        }
    }
    kit.stop().await;
}

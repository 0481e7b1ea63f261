//! Each controller acts as a service account with upstream's role, and with no other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ferry_client::Api;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use kube::ResourceExt;
use serde_json::Value;

use super::Kit;

/// Upstream's roles and bindings as it makes them, recorded.
fn facts() -> Value {
    let folder = std::env::var_os("FERRY_FACTS_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/facts"), PathBuf::from);
    let text = std::fs::read_to_string(folder.join("bootstrap.json"));
    text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn items<K: serde::de::DeserializeOwned>(facts: &Value, resource: &str) -> Vec<K> {
    let list = &facts[format!("/apis/rbac.authorization.k8s.io/v1/{resource}")];
    let list = if list.is_array() { list } else { &list["items"] };
    list.as_array().into_iter().flatten().map(|one| serde_json::from_value(one.clone()).unwrap()).collect()
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
    let facts = facts();
    let there = (items(&facts, "clusterrolebindings"), items(&facts, "rolebindings"));
    let known = rules(items(&facts, "clusterroles"), items(&facts, "roles"));
    let identities = kit.witness.identities();
    assert!(identities.len() > 30, "{identities:?}");
    for account in identities {
        let names = roles_of(&here.0, &here.1, &account);
        assert!(!names.is_empty(), "{account} has no role");
        // Where the recording is at hand, both are compared to the letter.
        if known.is_empty() {
            continue;
        }
        assert_eq!(names, roles_of(&there.0, &there.1, &account), "{account}");
        for name in names {
            assert_eq!(roles.get(&name), known.get(&name), "{account}: {name}");
        }
    }
    kit.stop().await;
}

//! Deletion: owners and what they own in the three modes, cycles, and namespaces that something holds.

use ferry_client::Api;
use ferry_testbed::{Kit, NAMESPACE, deployment, is_ready};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, NamespaceCondition, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_go_in_three_modes() {
    let kit = Kit::cluster(1).await;
    for (name, parameters) in [
        ("background", DeleteParams::background()),
        ("foreground", DeleteParams::foreground()),
        ("orphan", DeleteParams::orphan()),
    ] {
        let mut wanted = deployment(name, 2, "v1");
        if name == "foreground" {
            // Holds the pods for a while, so that the owners can be seen waiting for them.
            wanted["spec"]["template"]["metadata"]["finalizers"] = json!(["example.com/held"]);
        }
        kit.create::<Deployment>(wanted).await;
        let label = |pod: &Pod| pod.labels().get("app").is_some_and(|app| app == name);
        kit.until_pods("two pods", |pods| pods.iter().filter(|pod| label(pod) && is_ready(pod)).count() == 2).await;
        kit.api::<Deployment>().delete(name, &parameters).await.unwrap();
        let gone = |all: &[std::sync::Arc<Deployment>]| all.iter().all(|d| d.name_any() != name);
        match name {
            "background" => {
                kit.until(kit.api(), "no deployment", gone).await;
                kit.until_pods("no pods", |pods| !pods.iter().any(|pod| label(pod))).await;
            }
            "foreground" => {
                kit.until_pods("pods being deleted", |pods| {
                    let all: Vec<_> = pods.iter().filter(|pod| label(pod)).collect();
                    all.len() == 2 && all.iter().all(|pod| pod.metadata.deletion_timestamp.is_some())
                })
                .await;
                let waiting = kit.api::<Deployment>().get(name).await.unwrap();
                assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
                for pod in
                    kit.api::<Pod>().list(&Default::default()).await.unwrap().items.iter().filter(|pod| label(pod))
                {
                    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                    kit.api::<Pod>().patch(&pod.name_any(), &PatchParams::default(), &free).await.unwrap();
                }
                kit.until(kit.api(), "no deployment", gone).await;
                kit.until(kit.api::<ReplicaSet>(), "no set", |all| {
                    all.iter().all(|set| set.labels().get("app").is_none_or(|app| app != name))
                })
                .await;
            }
            _ => {
                kit.until(kit.api(), "no deployment", gone).await;
                let sets = kit.api::<ReplicaSet>().list(&Default::default()).await.unwrap().items;
                let left: Vec<_> = sets.iter().filter(|set| set.name_any().starts_with(name)).collect();
                assert_eq!(left.len(), 1);
                assert!(left[0].metadata.owner_references.iter().flatten().next().is_none());
            }
        }
    }
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cycles_and_absent_owners_end() {
    let kit = Kit::cluster(1).await;
    let map = |name: &str, owner: Option<(&str, &str)>| {
        let owners: Vec<_> = owner
            .map(|(name, uid)| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true }))
            .into_iter()
            .collect();
        json!({ "metadata": { "name": name, "ownerReferences": owners } })
    };
    // One whose owner never was goes; one that names an owner in another namespace too.
    kit.create::<ConfigMap>(map("absent", Some(("nobody", "11111111-1111-1111-1111-111111111111")))).await;
    let first: ConfigMap = kit.create(map("first", None)).await;
    let second: ConfigMap = kit.create(map("second", Some(("first", &first.uid().unwrap())))).await;
    let owners = json!({ "metadata": map("first", Some(("second", &second.uid().unwrap())))["metadata"].clone() });
    kit.api::<ConfigMap>().patch("first", &PatchParams::default(), &Patch::Merge(owners)).await.unwrap();
    kit.until(kit.api::<ConfigMap>(), "no orphan", |all| all.iter().all(|map| map.name_any() != "absent")).await;
    // Owners are looked for in an object's own namespace: one that is elsewhere does not keep it.
    let elsewhere: Api<ConfigMap> = Api::namespaced(kit.client.clone(), "default");
    let owner = kit.create_in(elsewhere, map("elsewhere", None)).await;
    kit.at_rest().await;
    let uid = owner.uid().unwrap();
    kit.create::<ConfigMap>(map("foreign", Some(("elsewhere", &uid)))).await;
    kit.until(kit.api::<ConfigMap>(), "no child of it", |all| all.iter().all(|map| map.name_any() != "foreign")).await;
    let why = kit.until_event("OwnerRefInvalidNamespace").await;
    let meant = format!("[v1/ConfigMap, namespace: {NAMESPACE}, name: elsewhere, uid: {uid}]");
    assert_eq!(why, format!("ownerRef {meant} does not exist in namespace {NAMESPACE:?}"));
    // A cycle in the foreground: each waits for the other, and both go all the same.
    kit.api::<ConfigMap>().delete("first", &DeleteParams::foreground()).await.unwrap();
    kit.until(kit.api::<ConfigMap>(), "no cycle", |all| {
        all.iter().all(|map| !["first", "second"].contains(&map.name_any().as_str()))
    })
    .await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_says_what_holds_it() {
    let kit = Kit::cluster(1).await;
    kit.create::<ConfigMap>(json!({ "metadata": { "name": "held", "finalizers": ["example.com/held"] } })).await;
    kit.create::<Deployment>(deployment("web", 2, "v1")).await;
    kit.until_pods("two pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 2).await;
    let namespaces: Api<Namespace> = Api::all(kit.client.clone());
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await.unwrap();
    kit.until(namespaces.clone(), "what is left", |all| {
        let ours = all.iter().find(|namespace| namespace.name_any() == NAMESPACE);
        let conditions = ours.and_then(|ours| ours.status.as_ref()?.conditions.clone()).unwrap_or_default();
        conditions.iter().any(|condition| {
            let text = condition.message.as_deref().unwrap_or_default();
            condition.type_ == "NamespaceFinalizersRemaining"
                && condition.status == "True"
                && text.contains("example.com/held in 1 resource")
        })
    })
    .await;
    kit.until_pods("no pods", |pods| pods.is_empty()).await;
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    kit.api::<ConfigMap>().patch("held", &PatchParams::default(), &free).await.unwrap();
    kit.until(namespaces, "no namespace", |all| all.iter().all(|namespace| namespace.name_any() != NAMESPACE)).await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_somebody_else_holds_says_that_it_is_empty() {
    let kit = Kit::new().await;
    kit.controllers(kit.config());
    let namespaces: Api<Namespace> = Api::all(kit.client.clone());
    let held = json!({ "metadata": { "name": "held", "finalizers": ["example.com/held"] } });
    kit.create_in(namespaces.clone(), held).await;
    namespaces.delete("held", &DeleteParams::default()).await.unwrap();
    let says = |namespace: &Namespace| {
        let conditions = namespace.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let text = |one: NamespaceCondition| format!("{} {} {}", one.type_, one.status, one.reason.unwrap_or_default());
        conditions.into_iter().map(text).collect::<Vec<_>>()
    };
    let all = [
        "NamespaceDeletionDiscoveryFailure False ResourcesDiscovered",
        "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions",
        "NamespaceDeletionContentFailure False ContentDeleted",
        "NamespaceContentRemaining False ContentRemoved",
        "NamespaceFinalizersRemaining False ContentHasNoFinalizers",
    ];
    kit.until(namespaces.clone(), "an empty namespace", |seen| {
        seen.iter().any(|namespace| namespace.name_any() == "held" && says(namespace) == all)
    })
    .await;
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    namespaces.patch("held", &PatchParams::default(), &free).await.unwrap();
    kit.until(namespaces, "no namespace", |all| all.iter().all(|namespace| namespace.name_any() != "held")).await;
    kit.stop().await;
}

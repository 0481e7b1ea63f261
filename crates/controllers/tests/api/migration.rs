//! Objects of a custom kind, written again after its stored version changed.

use ferry_client::Api;
use ferry_testbed::Kit;
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_written_again_in_todays_version() {
    let kit = Kit::new().await;
    kit.controllers(kit.config());
    let definitions: Api<CustomResourceDefinition> = Api::all(kit.client.clone());
    let version = |name: &str, storage: bool| {
        json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        } } })
    };
    let versions = |stored: &str| json!([version("v1", stored == "v1"), version("v2", stored == "v2")]);
    let definition = json!({ "metadata": { "name": "widgets.example.com" }, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" }, "versions": versions("v1"),
    } });
    kit.create_in(definitions.clone(), definition).await;
    kit.until(definitions.clone(), "an established definition", |all| {
        let conditions = all.iter().filter_map(|one| one.status.as_ref()?.conditions.as_ref()).flatten();
        conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    })
    .await;
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v2", "Widget"), "widgets");
    let widgets: Api<DynamicObject> = Api::namespaced_with(kit.client.clone(), ferry_testbed::NAMESPACE, &kind);
    for name in ["a", "b"] {
        let widget = serde_json::from_value(json!({
            "apiVersion": "example.com/v2", "kind": "Widget", "metadata": { "name": name }, "size": 3,
        }));
        widgets.create(&Default::default(), &widget.unwrap()).await.unwrap();
    }
    let change = Patch::Merge(json!({ "spec": { "versions": versions("v2") } }));
    definitions.patch("widgets.example.com", &PatchParams::default(), &change).await.unwrap();
    let stored = |definition: &CustomResourceDefinition| {
        definition.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default()
    };
    kit.until(definitions.clone(), "two stored versions", |all| all.iter().any(|one| stored(one) == ["v1", "v2"]))
        .await;

    let migrations: Api<StorageVersionMigration> = Api::all(kit.client.clone());
    let migration = |name: &str, group: &str, resource: &str| json!({ "metadata": { "name": name }, "spec": { "resource": { "group": group, "resource": resource } } });
    kit.create_in(migrations.clone(), migration("again", "example.com", "widgets")).await;
    let state = |one: &StorageVersionMigration| {
        let conditions = one.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().map(|one| (one.type_, one.status)).collect::<std::collections::BTreeMap<_, _>>()
    };
    let is = |one: &StorageVersionMigration, kind: &str, status: &str| {
        state(one).get(kind).is_some_and(|known| known == status)
    };
    kit.until(migrations.clone(), "a migration that is over", |all| {
        all.iter().any(|one| is(one, "Succeeded", "True") && is(one, "Running", "False"))
    })
    .await;
    let definition = definitions.get("widgets.example.com").await.unwrap();
    assert_eq!(stored(&definition), ["v2"]);
    for name in ["a", "b"] {
        let widget = widgets.get(name).await.unwrap();
        assert_eq!((&widget.data["size"], widget.types.unwrap().api_version.as_str()), (&json!(3), "example.com/v2"));
    }

    // What cannot be migrated says so.
    kit.create_in(migrations.clone(), migration("reviews", "authorization.k8s.io", "subjectaccessreviews")).await;
    let all = kit.until(migrations, "a failed migration", |all| all.iter().any(|one| is(one, "Failed", "True"))).await;
    let failed = all.iter().find(|one| one.name_any() == "reviews").unwrap();
    let message = failed.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    assert!(message.iter().any(|one| one.message.contains("does not support discovery operations")), "{message:?}");
    kit.stop().await;
}

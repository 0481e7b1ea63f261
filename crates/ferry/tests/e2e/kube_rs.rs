//! kube-rs over the network: list, watch, every kind of patch.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::alone::{Apiserver, runtime};

fn deployment() -> Deployment {
    let pod = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "web", "image": "web:1" }] } });
    let spec = json!({ "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": pod });
    serde_json::from_value(json!({ "metadata": { "name": "web", "labels": { "app": "web" } }, "spec": spec })).unwrap()
}

pub fn kube_rs_lists_watches_and_patches() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        let api: Api<Deployment> = Api::default_namespaced(server.client().await);
        api.create(&PostParams::default(), &deployment()).await.unwrap();
        let list = api.list(&ListParams::default().labels("app=web").limit(10)).await.unwrap();
        assert_eq!(list.items.len(), 1);
        let from = list.metadata.resource_version.unwrap();
        let mut events = api.watch(&WatchParams::default().labels("app=web"), &from).await.unwrap().boxed();

        let image = |text: &str| json!({ "spec": { "template": { "spec": { "containers": [{ "name": "web", "image": text }] } } } });
        let (strategic, merge) = (image("web:2"), json!({ "spec": { "replicas": 3 } }));
        let operations = json!([{ "op": "add", "path": "/metadata/annotations", "value": { "by": "json-patch" } }]);
        let applied = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "annotations": { "owner": "me" } } });
        let plain = PatchParams::default();
        api.patch("web", &plain, &Patch::Strategic(strategic)).await.unwrap();
        api.patch("web", &plain, &Patch::Merge(merge)).await.unwrap();
        api.patch("web", &plain, &Patch::<()>::Json(serde_json::from_value(operations).unwrap())).await.unwrap();
        let last = api.patch("web", &PatchParams::apply("me"), &Patch::Apply(applied)).await.unwrap();

        let spec = last.spec;
        let container = &spec.template.spec.unwrap().containers[0];
        assert_eq!((spec.replicas, container.image.as_deref()), (Some(3), Some("web:2")));
        let annotations = last.metadata.annotations.unwrap();
        assert_eq!((annotations["by"].as_str(), annotations["owner"].as_str()), ("json-patch", "me"));
        let managers = last.metadata.managed_fields.unwrap();
        assert!(managers.iter().any(|one| one.manager.as_deref() == Some("me") && one.operation.as_deref() == Some("Apply")));

        api.delete("web", &DeleteParams::default()).await.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = events.try_next().await.unwrap() {
            match event {
                WatchEvent::Modified(object) => seen.push(object.metadata.generation.unwrap()),
                WatchEvent::Deleted(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, [2, 3, 4, 5], "each patch is one event; a Deployment counts changes of its annotations too");
    });
}

//! Root CA publisher: every namespace has the ConfigMap `kube-root-ca.crt` with which pods verify the API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Client, ResourceExt};

use crate::Context;

const NAME: &str = "root-ca-cert-publisher";
const MAP: &str = "kube-root-ca.crt";
const FIELD: &str = "ca.crt";
const DESCRIPTION_KEY: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// Still takes new objects.
pub(super) fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_none() && phase != Some("Terminating")
}

pub(crate) fn start(context: &Context) {
    if context.config.root_ca.is_empty() {
        tracing::info!(controller = NAME, "no root CA given, nothing to publish");
        return;
    }
    let client = context.client(NAME);
    let bundle: Arc<str> = context.config.root_ca.as_str().into();
    let (namespaces, maps) = (context.informers.of::<Namespace>(), context.informers.of::<ConfigMap>());
    let queue: WorkQueue<ObjectKey> = context.queue("root_ca_cert_publisher");

    let keys = queue.clone();
    namespaces.on_change(move |change| {
        if !matches!(change, Change::Deleted(_)) {
            keys.add(ObjectKey::of(&**change.object()));
        }
    });
    let keys = queue.clone();
    maps.on_change(move |change| {
        let map = change.object();
        // Existing ones are looked at when their namespace is.
        if !matches!(change, Change::Added(_)) && map.metadata.name.as_deref() == Some(MAP) {
            keys.add(ObjectKey::new("", map.namespace().unwrap_or_default()));
        }
    });

    let synced = (namespaces.clone(), maps.clone());
    let ready = async move {
        synced.0.synced().await;
        synced.1.synced().await;
    };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key: ObjectKey| {
        let (client, namespaces, maps, bundle) = (client.clone(), namespaces.clone(), maps.clone(), bundle.clone());
        async move {
            if namespaces.get("", &key.name).is_some_and(|namespace| is_active(&namespace)) {
                publish(client, &maps, &key.name, &bundle).await?;
            }
            Ok(Action::Done)
        }
    });
}

async fn publish(client: Client, maps: &Informer<ConfigMap>, namespace: &str, bundle: &str) -> Result<(), Error> {
    let there = maps.get(namespace, MAP);
    let Some(wanted) = wanted(there.as_deref(), bundle) else { return Ok(()) };
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let written = match there {
        None => api.create(&PostParams::default(), &wanted).await,
        Some(_) => api.replace(MAP, &PostParams::default(), &wanted).await,
    };
    match written {
        Err(error)
            // One that somebody made meanwhile may say something else: it is looked at when the cache has it.
            if !write::is_namespace_terminating(&error) && !write::is_not_found(&error) =>
        {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

/// What to write, or none when it is right. Other annotations may stay, other data may not.
fn wanted(there: Option<&ConfigMap>, bundle: &str) -> Option<ConfigMap> {
    let data = BTreeMap::from([(FIELD.to_owned(), bundle.to_owned())]);
    let mut map = there.cloned().unwrap_or_else(|| ConfigMap {
        metadata: ObjectMeta { name: Some(MAP.into()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    });
    if map.data.as_ref() == Some(&data) && map.annotations().contains_key(DESCRIPTION_KEY) {
        return None;
    }
    map.data = Some(data);
    map.annotations_mut().insert(DESCRIPTION_KEY.into(), DESCRIPTION.into());
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_is_put_back() {
        let mut map = wanted(None, "PEM").expect("a new one");
        assert_eq!(wanted(Some(&map), "PEM"), None);
        assert!(wanted(Some(&map), "another").is_some());
        map.data.get_or_insert_default().insert("extra".into(), String::new());
        assert!(wanted(Some(&map), "PEM").is_some());
    }
}

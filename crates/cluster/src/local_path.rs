//! The StorageClass of the local-path provisioner, which a new cluster has as its default.

use std::time::Duration;

use anyhow::{Context, Result};
use ferry_client::{Api, write};
use ferry_controllers::is_default_class;
use ferry_semantics::local_volumes::PROVISIONER;
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{ListParams, PostParams};
use serde_json::json;

pub const ROLE: &str = "ferry:local-path-provisioner";
const NAMESPACE: &str = "kube-system";
const CLASS: &str = "local-path";
/// Remembers that the class was made: whoever deletes or changes it is not corrected.
const RECORD: &str = "ferry-local-path";
const RETRY: Duration = Duration::from_secs(10);
const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Makes the class. Where somebody's webhook or policy is in the way, the cluster starts without it.
pub async fn start(client: Client, tasks: &Tasks) {
    let Err(error) = offer(&client).await else { return };
    tracing::warn!("{error:#}; trying again");
    tasks.spawn_until_stopped("default storage class", async move {
        loop {
            tokio::time::sleep(RETRY).await;
            match offer(&client).await {
                Ok(()) => return,
                Err(error) => tracing::debug!("{error:#}"),
            }
        }
    });
}

/// Once in the life of a cluster.
async fn offer(client: &Client) -> Result<()> {
    let records: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let failed = || format!("cannot make the StorageClass {CLASS}");
    if records.get_opt(RECORD).await.with_context(failed)?.is_some() {
        return Ok(());
    }
    let classes: Api<StorageClass> = Api::all(client.clone());
    let known = classes.list(&ListParams::default()).await.with_context(failed)?.items;
    match classes.create(&PostParams::default(), &class(&known)?).await {
        Err(error) if !write::is_already_exists(&error) => return Err(error).with_context(failed),
        _ => {}
    }
    // The record comes last: an attempt that was interrupted is repeated.
    let record = ConfigMap {
        metadata: ObjectMeta { name: Some(RECORD.to_owned()), ..ObjectMeta::default() },
        data: Some([("storageClass".to_owned(), CLASS.to_owned())].into()),
        ..ConfigMap::default()
    };
    match records.create(&PostParams::default(), &record).await {
        Err(error) if !write::is_already_exists(&error) => Err(error).with_context(failed),
        _ => Ok(()),
    }
}

/// A cluster that has a default class keeps it.
fn class(known: &[StorageClass]) -> Result<StorageClass> {
    let default = !known.iter().any(is_default_class);
    Ok(serde_json::from_value(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": CLASS, "annotations": { DEFAULT: default.to_string() } },
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
    }))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_class_that_is_there_stays_the_default() {
        let other = |default: &str| -> StorageClass {
            let metadata = json!({ "name": "other", "annotations": { DEFAULT: default } });
            serde_json::from_value(json!({ "metadata": metadata, "provisioner": "x" })).expect("a class")
        };
        for (known, want) in
            [(vec![], "true"), (vec![other("false")], "true"), (vec![other("false"), other("true")], "false")]
        {
            let made = class(&known).expect("a class");
            assert_eq!(made.metadata.annotations.expect("annotations")[DEFAULT], want, "{known:?}");
            assert_eq!((made.provisioner.as_str(), made.parameters), (PROVISIONER, None));
        }
        // Admission takes the older mark for a default, too; of two, the newer one would count.
        let mut old = other("false");
        let mark = "storageclass.beta.kubernetes.io/is-default-class".to_owned();
        old.metadata.annotations.get_or_insert_default().insert(mark, "true".to_owned());
        let made = class(&[old]).expect("a class");
        assert_eq!(made.metadata.annotations.expect("annotations")[DEFAULT], "false");
    }
}

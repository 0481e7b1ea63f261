//! The CSINode, which tells the cluster of the node's storage drivers; and what the Node says of them.

use std::collections::BTreeMap;

use ferry_client::{Api, write};
use ferry_plugins::csi::NodeGetInfoResponse;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::context::Context;

/// Where the Node says by which name each driver knows it.
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";
/// Kinds of volumes that were once built in and are drivers' work now.
const MIGRATED: (&str, &str) = (
    "storage.alpha.kubernetes.io/migrated-plugins",
    "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume",
);
/// Others write the CSINode too.
const TRIES: usize = 5;

fn fresh(context: &Context, uid: String) -> CSINode {
    let name = &context.config.node_name;
    let owner =
        OwnerReference { api_version: "v1".into(), kind: "Node".into(), name: name.clone(), uid, ..Default::default() };
    CSINode {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            annotations: Some(BTreeMap::from([(MIGRATED.0.to_owned(), MIGRATED.1.to_owned())])),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        ..CSINode::default()
    }
}

async fn node_uid(context: &Context) -> String {
    let mut known = context.registration.uid.subscribe();
    let uid = known.wait_for(Option::is_some).await.ok().and_then(|uid| uid.clone());
    uid.unwrap_or_default()
}

/// Makes the CSINode where there is none, so that the scheduler knows that no drivers are there rather than nothing.
pub(super) async fn ensure(context: &Context) -> bool {
    let made = change(context, |_| {}).await;
    if let Err(why) = &made {
        tracing::warn!("the CSINode could not be made: {why}");
    }
    made.is_ok()
}

async fn change(context: &Context, edit: impl Fn(&mut Vec<CSINodeDriver>)) -> Result<(), String> {
    let api: Api<CSINode> = Api::all(context.client.clone());
    let uid = node_uid(context).await;
    let mut last = String::new();
    for _ in 0..TRIES {
        let found = api.get_opt(&context.config.node_name).await.map_err(|error| write::short(&error))?;
        let mut wanted = found.clone().unwrap_or_else(|| fresh(context, uid.clone()));
        edit(&mut wanted.spec.drivers);
        let written = match &found {
            Some(found) if found.spec == wanted.spec => return Ok(()),
            Some(_) => api.replace(&context.config.node_name, &PostParams::default(), &wanted).await,
            None => api.create(&PostParams::default(), &wanted).await,
        };
        match written {
            Ok(_) => return Ok(()),
            Err(error) => last = write::short(&error),
        }
    }
    Err(last)
}

pub(super) async fn add(context: &Context, name: &str, about: &NodeGetInfoResponse) -> Result<(), String> {
    let segments = about.accessible_topology.as_ref().map(|topology| &topology.segments);
    let mut keys: Vec<String> = segments.into_iter().flat_map(|segments| segments.keys().cloned()).collect();
    keys.sort();
    let most = i32::try_from(about.max_volumes_per_node).ok().filter(|most| *most > 0);
    let driver = CSINodeDriver {
        name: name.to_owned(),
        node_id: about.node_id.clone(),
        topology_keys: (!keys.is_empty()).then_some(keys),
        allocatable: most.map(|count| VolumeNodeResources { count: Some(count) }),
    };
    let labels: BTreeMap<String, String> =
        segments.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
    tell_node(context, name, Some(&about.node_id), &labels).await?;
    change(context, |drivers| {
        drivers.retain(|other| other.name != name);
        drivers.push(driver.clone());
    })
    .await
}

pub(super) async fn remove(context: &Context, name: &str) {
    let gone = change(context, |drivers| drivers.retain(|driver| driver.name != name)).await;
    let untold = tell_node(context, name, None, &BTreeMap::new()).await;
    if let Err(why) = gone.and(untold) {
        tracing::warn!("the CSINode still has {name}: {why}");
    }
}

async fn tell_node(
    context: &Context,
    name: &str,
    id: Option<&str>,
    labels: &BTreeMap<String, String>,
) -> Result<(), String> {
    let api: Api<Node> = Api::all(context.client.clone());
    let node = api.get(&context.config.node_name).await.map_err(|error| write::short(&error))?;
    refuse_collision(node.metadata.labels.as_ref(), labels)?;
    let known = node.metadata.annotations.as_ref().and_then(|all| all.get(NODE_IDS));
    let mut ids: BTreeMap<String, String> = known.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    match id {
        Some(id) => drop(ids.insert(name.to_owned(), id.to_owned())),
        None => drop(ids.remove(name)),
    }
    let text = (!ids.is_empty()).then(|| json!(ids).to_string());
    if known == text.as_ref() && labels.is_empty() {
        return Ok(());
    }
    let patch = Patch::Strategic(json!({"metadata": {"annotations": {NODE_IDS: text}, "labels": labels}}));
    let patched = api.patch(&context.config.node_name, &PatchParams::default(), &patch).await;
    patched.map(|_| ()).map_err(|error| write::short(&error))
}

/// A driver says where the node is; it does not move it away from where others say it is.
fn refuse_collision(known: Option<&BTreeMap<String, String>>, told: &BTreeMap<String, String>) -> Result<(), String> {
    for (key, value) in told {
        if let Some(other) = known.and_then(|known| known.get(key)).filter(|other| *other != value) {
            return Err(format!(
                "detected topology value collision: driver reported {key:?}:{value:?} but existing label is {key:?}:{other:?}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_changes_no_label_that_is_there() {
        let labels = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let known = labels(&[("kubernetes.io/hostname", "a"), ("topology.example.com/zone", "z1")]);
        assert!(refuse_collision(None, &labels(&[("topology.example.com/zone", "z1")])).is_ok());
        assert!(refuse_collision(Some(&known), &labels(&[("topology.example.com/zone", "z1"), ("new", "x")])).is_ok());
        let refused = refuse_collision(Some(&known), &labels(&[("kubernetes.io/hostname", "b")])).unwrap_err();
        assert!(refused.contains("topology value collision"), "{refused}");
    }
}

//! `ferry leave`: this machine stops being a node. Its pods are evicted first, its Node goes, and nothing stays on the machine
//! but the images.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferry_client::{Api, write};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::arguments::{DownOptions, LeaveOptions};
use crate::commands::down;
use crate::fleet::certificates::{Certificates, Wanted};
use crate::fleet::leaving::LEAVING;
use crate::fleet::membership::{self, Membership};
use crate::fleet::servers::Servers;

/// How long pods get to leave; what is left then ends with the node.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);

pub fn run(options: &LeaveOptions) -> Result<()> {
    let data_dir = std::path::absolute(&options.folders.data_dir)?;
    let membership = Membership::read(&data_dir)?.with_context(|| {
        format!(
            "{} belongs to no cluster that this machine joined; `ferry down` stops a cluster of its own",
            data_dir.display()
        )
    })?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Err(error) = runtime.block_on(goodbye(&membership, &data_dir)) {
        eprintln!(
            "ferry: the cluster could not be told: {error:#}; remove the node there with `kubectl delete node {}`",
            membership.node_name
        );
    }
    down::run(&DownOptions { folders: options.folders.clone(), purge: false })?;
    Membership::forget(&data_dir)
}

async fn goodbye(membership: &Membership, data_dir: &std::path::Path) -> Result<()> {
    let name = membership.node_name.as_str();
    let certificates = Certificates::open(&membership::folder(data_dir))?;
    let pair = certificates
        .have(&Wanted::kubelet_client(name), jiff::Timestamp::now())
        .context("this node has no certificate any more")?;
    let (client, _) = membership::kubelet_client(membership, &Servers::new(membership.servers.clone()), &pair)?;
    let nodes: Api<Node> = Api::all(client.clone());
    let change = json!({ "spec": { "unschedulable": true } });
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.context("cannot cordon the node")?;
    println!("cordoned {name}");
    drain(&client, name).await?;
    // A node may not delete its own Node; a server does it for nodes that say so.
    let change = json!({ "metadata": { "annotations": { LEAVING: "true" } } });
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await
        .context("cannot ask for the Node to be removed")?;
    println!("{name} leaves the cluster");
    Ok(())
}

/// Evicts what a controller makes again elsewhere. Pods of DaemonSets and of files belong to the node and end with it.
async fn drain(client: &Client, name: &str) -> Result<()> {
    let all: Api<Pod> = Api::all(client.clone());
    let own = ListParams::default().fields(&format!("spec.nodeName={name}"));
    let begin = Instant::now();
    loop {
        let pods = all.list(&own).await.context("cannot list the node's pods")?.items;
        let going: Vec<&Pod> = pods.iter().filter(|pod| !stays(pod)).collect();
        if going.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            println!("{} pods did not leave in time and end with the node", going.len());
            return Ok(());
        }
        for pod in going.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let (Some(namespace), Some(pod_name)) = (&pod.metadata.namespace, &pod.metadata.name) else { continue };
            let pods: kube::Api<Pod> = kube::Api::namespaced(client.clone(), namespace);
            let parameters = EvictParams { delete_options: Some(DeleteParams::default()), ..EvictParams::default() };
            match pods.evict(pod_name, &parameters).await {
                Ok(_) => println!("evicted {namespace}/{pod_name}"),
                Err(error) if write::is_not_found(&error) => {}
                // A disruption budget says not yet.
                Err(error) => println!("waits: {namespace}/{pod_name}: {}", write::short(&error)),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn stays(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners
        .into_iter()
        .any(|owner| owner.controller == Some(true) && matches!(owner.kind.as_str(), "DaemonSet" | "Node"))
}

//! `ferry leave`: this machine stops being a node. Its pods are evicted first, its Node goes, and nothing stays on the machine
//! but the images.

use std::time::Duration;

use anyhow::{Context, Result};
use ferry_client::Api;
use ferry_cluster::fleet::certificates::{Certificates, Wanted};
use ferry_cluster::fleet::drain::{Drain, cordon};
use ferry_cluster::fleet::leaving::LEAVING;
use ferry_cluster::fleet::membership::{self, Membership};
use ferry_cluster::fleet::servers::Servers;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::arguments::{DownOptions, LeaveOptions};
use crate::commands::down;

/// How long pods get to leave; what is left then ends with the node.
const PATIENCE: Duration = Duration::from_secs(60);

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
            "ferry: cannot reach the cluster: {error:#}; remove the node there with `ferry node remove {}`",
            membership.node_name
        );
    }
    down::run(&DownOptions { folders: options.folders.clone(), purge: false, graceful: false })?;
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
    cordon(&client, name).await?;
    let drain = Drain { force: true, delete_emptydir_data: true, grace_period: None, timeout: Some(PATIENCE) };
    if let Err(error) = drain.run(&client, name).await {
        println!("{error:#}\nthese pods end with the node");
    }
    // A node may not delete its own Node; a server does it for nodes that say so.
    let change = json!({ "metadata": { "annotations": { LEAVING: "true" } } });
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await
        .context("cannot ask for the Node to be removed")?;
    println!("{name} leaves the cluster");
    Ok(())
}

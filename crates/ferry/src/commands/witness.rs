//! `ferry witness`: a member of the cluster's etcd without a server.

use anyhow::{Context, Result, bail};
use ferry_cluster::process::{self, Lock};
use ferry_cluster::quorum::handover::Receiver;
use ferry_cluster::quorum::join::Machine;
use ferry_cluster::quorum::witness;
use ferry_cluster::{config, folders, log};

use crate::arguments::{WitnessCommand, WitnessOptions};

pub fn run(options: &WitnessOptions) -> Result<()> {
    let data_dir = std::path::absolute(&options.data_dir)?;
    let run_dir = std::path::absolute(&options.run_dir)?;
    let lock = run_dir.join("ferry.lock");
    if let Some(pid) = process::holder(&lock)? {
        bail!(
            "a server, a node or a witness runs with this folder (process {pid}); stop it first, or give a witness folders of its \
             own with --data-dir and --run-dir"
        );
    }
    log::start();
    folders::prepare(&run_dir)?;
    let _lock = Lock::take(&lock)?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &options.command {
            WitnessCommand::Join { address, token, node_name, node_ip, member } => {
                let machine = Machine {
                    data_dir: data_dir.clone(),
                    name: witness::name(&node_name.clone().unwrap_or_else(config::host_name))?,
                    address: node_ip
                        .or_else(config::default_address)
                        .context("this machine's address is not known; give it with --node-ip")?,
                    receiver: Receiver::Witness,
                };
                witness::enter(&machine, address, token, member).await?;
                witness::serve(&data_dir, &run_dir, member.etcd_binary.clone(), member.etcd_quota_backend_bytes).await
            }
            WitnessCommand::Run { etcd_binary, etcd_quota_backend_bytes } => {
                witness::serve(&data_dir, &run_dir, etcd_binary.clone(), *etcd_quota_backend_bytes).await
            }
            WitnessCommand::Leave => witness::leave(&data_dir, &run_dir).await,
        }
    })
}

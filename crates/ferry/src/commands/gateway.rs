//! `ferry gateway`: the gateway as a process of its own, against any API server.

use std::net::{IpAddr, UdpSocket};

use anyhow::{Context, Result};
use ferry_client::leader;
use ferry_cluster::{component, gateway, kubeconfig, log};
use ferry_tasks::Tasks;

use crate::component_options::GatewayOptions;

pub fn run(options: &GatewayOptions) -> Result<()> {
    log::start();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Runtime::new()?.block_on(serve(options))
}

async fn serve(options: &GatewayOptions) -> Result<()> {
    let client = kubeconfig::connect(kubeconfig::config(options.kubeconfig.as_deref()).await?)?;
    let config = options.serving.config(own_address()?);
    let tasks = Tasks::new("gateway");
    let election = leader::Config::new(gateway::ACCOUNT, &component::identity());
    let own = client.clone();
    component::lead(client, Some(election), &tasks, move |group, _| gateway::begin(config, own, &group)).await
}

/// The address that reaches the default gateway: nothing is sent.
fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let reached = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    Ok(reached.context("this machine has no address that reaches others; name one with --gateway-address")?.ip())
}

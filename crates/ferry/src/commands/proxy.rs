//! `ferry proxy`: the service proxy as a process of its own, against any API server.

use anyhow::{Context, Result};
use ferry_client::{Informers, Recorder};
use ferry_cluster::config::{ProxyConfig, default_address, host_name};
use ferry_cluster::ranges::Ranges;
use ferry_cluster::{component, kubeconfig, log};
use ferry_tasks::Tasks;

use crate::node_component_options::ProxyAloneOptions;

pub fn run(options: &ProxyAloneOptions) -> Result<()> {
    let config = configuration(options)?;
    log::start();
    tokio::runtime::Runtime::new()?.block_on(serve(options, config))
}

/// Everything that can be refused is, before anything is started.
fn configuration(options: &ProxyAloneOptions) -> Result<ferry_proxy::Config> {
    let addresses = ProxyConfig::parse(
        ("healthz-bind-address", &options.healthz_bind_address),
        ("metrics-bind-address", &options.metrics_bind_address),
        &options.nodeport_addresses,
        &default_address().into_iter().collect::<Vec<_>>(),
    )?;
    let services = options.service_cluster_ip_range.as_ref();
    let services = services.map(|ranges| Ranges::parse("service-cluster-ip-range", ranges)).transpose()?;
    Ok(ferry_proxy::Config {
        node_name: options.hostname_override.clone().unwrap_or_else(host_name),
        pod_cidrs: Ranges::parse("cluster-cidr", &options.cluster_cidr)?.texts(),
        service_cidrs: services.map(|ranges| ranges.texts()).unwrap_or_default(),
        table: options.nftables_table.clone(),
        node_port_addresses: addresses.node_port_addresses,
        healthz_bind_address: addresses.healthz_bind_address,
        metrics_bind_address: addresses.metrics_bind_address,
        ..ferry_proxy::Config::default()
    })
}

async fn serve(options: &ProxyAloneOptions, mut config: ferry_proxy::Config) -> Result<()> {
    let client =
        kubeconfig::client_of(options.access.kubeconfig.as_deref(), options.access.master.as_deref(), "kube-proxy")
            .await?;
    component::run("proxy", async move |tasks: &Tasks| {
        let (node, informers) = (config.node_name.clone(), Informers::new(client.clone(), tasks.clone()));
        config.recorder = Some(Recorder::with_host(client, "kube-proxy", Some(&node), tasks));
        let proxy = ferry_proxy::start(config, &informers, tasks).await.context("cannot start the service proxy")?;
        proxy.ready().await;
        Ok(format!("the rules of all Services are in force on {node}"))
    })
    .await
}

//! `ferry dns`: the cluster's DNS as a process of its own, against any API server.

use anyhow::{Context, Result};
use ferry_client::Informers;
use ferry_cluster::node::resolver;
use ferry_cluster::{component, kubeconfig, log};
use ferry_tasks::Tasks;

use crate::node_component_options::DnsOptions;

pub fn run(options: &DnsOptions) -> Result<()> {
    log::start();
    tokio::runtime::Runtime::new()?.block_on(serve(options))
}

async fn serve(options: &DnsOptions) -> Result<()> {
    let client =
        kubeconfig::client_of(options.access.kubeconfig.as_deref(), options.access.master.as_deref(), "coredns")
            .await?;
    let config = ferry_dns::Config {
        listen: options.listen.clone(),
        zone: options.cluster_domain.clone(),
        upstreams: ferry_dns::Upstreams::File(options.resolv_conf.clone().unwrap_or_else(resolver::file)),
        service_addresses: options.cluster_dns.into_iter().collect(),
        corefile: options.corefile.as_ref().map(std::fs::read_to_string).transpose().context("--corefile")?,
    };
    component::run("dns", async move |tasks: &Tasks| {
        let informers = Informers::new(client, tasks.clone());
        let server = ferry_dns::start(config, &informers, tasks).await.context("cannot start the cluster's DNS")?;
        let addresses: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
        Ok(format!("DNS answers on {}", addresses.join(" ")))
    })
    .await
}

//! `ferry gateway`: the gateway as a process of its own, against any API server; and Ingresses as its resources.

use std::net::{IpAddr, UdpSocket};

use anyhow::{Context, Result};
use ferry_client::{Api, ObjectKey, leader};
use ferry_cluster::{component, gateway, kubeconfig, log};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::ListParams;

use crate::component_options::{ConvertOptions, GatewayCommand, GatewayOptions};

pub fn run(options: &GatewayOptions) -> Result<()> {
    log::start();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new()?;
    match &options.command {
        None => runtime.block_on(serve(options)),
        Some(GatewayCommand::Convert(wanted)) => runtime.block_on(convert(options, wanted)),
    }
}

async fn serve(options: &GatewayOptions) -> Result<()> {
    let client = kubeconfig::connect(kubeconfig::config(options.kubeconfig.as_deref()).await?)?;
    let config = options.serving.config(address_among(&options.serving.gateway_address, own_address)?);
    let tasks = Tasks::new("gateway");
    let election = leader::Config::new(gateway::ACCOUNT, &component::identity());
    let own = client.clone();
    component::lead(client, Some(election), &tasks, move |group, _| gateway::begin(config, own, &group)).await
}

/// Prints the Ingresses of the cluster as resources of the Gateway API.
async fn convert(options: &GatewayOptions, wanted: &ConvertOptions) -> Result<()> {
    let (namespace, name) = wanted.gateway.split_once('/').context("--gateway is NAMESPACE/NAME")?;
    let client = kubeconfig::connect(kubeconfig::config(options.kubeconfig.as_deref()).await?)?;
    let (ingresses, services): (Api<Ingress>, Api<Service>) = match &wanted.namespace {
        Some(namespace) => (Api::namespaced(client.clone(), namespace), Api::namespaced(client, namespace)),
        None => (Api::all(client.clone()), Api::all(client)),
    };
    let mut ingresses = ingresses.list(&ListParams::default()).await.context("cannot list Ingresses")?.items;
    let services = services.list(&ListParams::default()).await.context("cannot list Services")?.items;
    if let Some(class) = &wanted.ingress_class {
        ingresses.retain(|ingress| ferry_gateway::convert::class(ingress) == Some(class));
    }
    let port = |namespace: &str, service: &str, port: &str| {
        let meant = |one: &&Service| {
            one.metadata.namespace.as_deref() == Some(namespace) && one.metadata.name.as_deref() == Some(service)
        };
        let spec = services.iter().find(meant)?.spec.as_ref()?;
        spec.ports.iter().flatten().find(|one| one.name.as_deref() == Some(port)).map(|one| one.port)
    };
    let converted = ferry_gateway::convert::convert(&ingresses, &ObjectKey::new(namespace, name), &port);
    for remark in &converted.remarks {
        eprintln!("{remark}");
    }
    let documents: Vec<String> = converted.objects.iter().map(ferry_schema::yaml::to_yaml).collect();
    print!("{}", documents.join("---\n"));
    Ok(())
}

/// What Gateways get when nothing else is said. A machine whose addresses are named needs none that reaches others.
fn address_among(named: &[IpAddr], own: impl FnOnce() -> Result<IpAddr>) -> Result<IpAddr> {
    named.first().copied().map_or_else(own, Ok)
}

/// The address that reaches the default gateway: nothing is sent.
fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let reached = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    Ok(reached.context("this machine has no address that reaches others; name one with --gateway-address")?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_reaches_nobody_serves_at_the_addresses_it_is_given() {
        let named: IpAddr = "192.0.2.7".parse().expect("an address");
        let unreachable = || anyhow::bail!("Network is unreachable");
        assert_eq!(address_among(&[named], unreachable).expect("no other is asked for"), named);
        assert!(address_among(&[], unreachable).is_err());
    }
}

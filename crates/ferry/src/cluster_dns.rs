//! The cluster's DNS server on this node, and the Service that leads pods to it.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use ferry_client::{Api, Informers};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::config::ClusterConfig;

const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "kube-dns";

/// Listens on the gateway of the pod network: pods reach it, the outside does not.
pub async fn start(
    config: &ClusterConfig,
    gateway: Ipv4Addr,
    client: Client,
    informers: &Informers,
    tasks: &Tasks,
) -> Result<()> {
    let dns = ferry_dns::Config {
        listen: vec![SocketAddr::from((gateway, config.dns_port))],
        zone: config.cluster_domain.clone(),
        service_address: Some(config.dns_address().into()),
        ..ferry_dns::Config::default()
    };
    ferry_dns::start(dns, informers, tasks).await.context("cannot start the cluster's DNS")?;
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    apply(&services, SERVICE, &service(config)).await.context("cannot write the Service kube-system/kube-dns")?;
    let slices: Api<EndpointSlice> = Api::namespaced(client, NAMESPACE);
    apply(&slices, &config.node_name, &slice(config, gateway)).await.context("cannot write the endpoints of kube-dns")
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value) -> kube::Result<()>
where
    K: kube::Resource + ferry_client::Wire,
{
    let name = if object["kind"] == "EndpointSlice" { format!("{SERVICE}-{name}") } else { name.to_owned() };
    api.patch(&name, &PatchParams::apply("ferry").force(), &Patch::Apply(object)).await.map(|_| ())
}

fn service(config: &ClusterConfig) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": SERVICE, "namespace": NAMESPACE, "labels": {
            "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
        }},
        // No selector: the endpoints are the nodes that serve DNS themselves.
        "spec": { "clusterIP": config.dns_address(), "ports": [
            { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": config.dns_port },
            { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": config.dns_port },
        ]},
    })
}

fn slice(config: &ClusterConfig, gateway: Ipv4Addr) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": format!("{SERVICE}-{}", config.node_name), "namespace": NAMESPACE, "labels": {
            "kubernetes.io/service-name": SERVICE, "endpointslice.kubernetes.io/managed-by": "ferry",
        }},
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [gateway], "nodeName": config.node_name, "conditions": { "ready": true } }],
        "ports": [
            { "name": "dns", "port": config.dns_port, "protocol": "UDP" },
            { "name": "dns-tcp", "port": config.dns_port, "protocol": "TCP" },
        ],
    })
}

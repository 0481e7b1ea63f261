//! The cluster's DNS: a server on every node of Ferry's, and the Service that leads each pod to the one of its own node.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use ferry_client::{Api, Informer, Informers};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::config::{ClusterSettings, NodeConfig};
use crate::node::dns_process::{self, Arguments};
use crate::node::{network, resolver};
use crate::ranges::Ranges;

const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "kube-dns";
/// A node whose annotation says so has a DNS server on the gateway of its pods.
pub const SERVES_DNS: &str = "ferry.dev/dns-port";
/// Where the usual Corefile has its figures, on the same address.
const METRICS: u16 = 9153;
const RETRY: Duration = Duration::from_secs(1);

/// Has a process listen on the gateway of the pod network: pods reach it, the outside does not.
pub async fn serve(config: &NodeConfig, pod_cidrs: &Ranges, informers: &Informers, tasks: &Tasks) -> Result<()> {
    let settings = &config.cluster;
    let dns = ferry_dns::Config {
        listen: pod_cidrs.nth(1).into_iter().map(|gateway| SocketAddr::new(gateway, settings.dns_port)).collect(),
        zone: settings.cluster_domain.clone(),
        upstreams: ferry_dns::Upstreams::File(resolver::file()),
        service_addresses: addresses(settings),
        corefile: None,
    };
    let feeder = ferry_dns::Feeder::new(&dns, informers, tasks).context("cannot start the cluster's DNS")?;
    let arguments = Arguments { dns, data_dir: config.data_dir.clone(), run_dir: config.run_dir.clone() };
    dns_process::start(arguments, feeder, tasks).await.context("cannot start the cluster's DNS")
}

/// Ends the process of an earlier start, when the pod network was Ferry's: nobody would tell it anything any more.
pub async fn end(config: &NodeConfig) {
    let run_dir = config.run_dir.clone();
    match tokio::task::spawn_blocking(move || dns_process::end(&run_dir)).await {
        Ok(Ok(false)) => {}
        Ok(Ok(true)) => tracing::info!("the cluster's DNS of an earlier start has ended"),
        Ok(Err(error)) => tracing::warn!("the cluster's DNS of an earlier start goes on: {error:#}"),
        Err(error) => tracing::error!("the cluster's DNS of an earlier start goes on: {error}"),
    }
}

/// Writes the Service, and keeps an EndpointSlice for every node that serves DNS.
pub async fn publish(settings: &ClusterSettings, client: Client, nodes: Informer<Node>, tasks: &Tasks) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    apply(&services, &service(settings)).await.context("cannot write the Service kube-system/kube-dns")?;
    offer_corefile(settings, &client).await.context("cannot write the ConfigMap kube-system/coredns")?;
    let slices: Api<EndpointSlice> = Api::namespaced(client, NAMESPACE);
    let mut changes = nodes.subscribe();
    nodes.synced().await;
    tasks.spawn_critical_once("cluster-dns", async move {
        let mut written: std::collections::BTreeMap<String, Value> = std::collections::BTreeMap::new();
        loop {
            let wanted: Vec<Value> = nodes.list().iter().flat_map(|node| slices_of(node)).collect();
            let mut failed = false;
            for slice in wanted {
                let name = slice["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if written.get(&name) == Some(&slice) {
                    continue;
                }
                match apply(&slices, &slice).await {
                    Ok(()) => {
                        written.insert(name, slice);
                    }
                    Err(error) => {
                        tracing::warn!("the endpoints of kube-dns cannot be written: {error}");
                        failed = true;
                    }
                }
            }
            if failed {
                tokio::time::sleep(RETRY).await;
            } else {
                changes.next().await;
            }
        }
    });
    Ok(())
}

/// Writes the Corefile where people look for it. One that is there already is somebody's own.
async fn offer_corefile(settings: &ClusterSettings, client: &Client) -> kube::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let text = ferry_dns::usual_corefile(&settings.cluster_domain);
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("coredns".into()), ..ObjectMeta::default() },
        data: Some([("Corefile".to_owned(), text)].into()),
        ..ConfigMap::default()
    };
    match maps.create(&PostParams::default(), &map).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop),
    }
}

async fn apply<K>(api: &Api<K>, object: &Value) -> kube::Result<()>
where
    K: kube::Resource + ferry_client::Wire,
{
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    api.patch(name, &PatchParams::apply("ferry").force(), &Patch::Apply(object)).await.map(|_| ())
}

/// That which pods are told first.
fn addresses(settings: &ClusterSettings) -> Vec<IpAddr> {
    let others = settings.service_cidr.nth(10);
    let others = others.into_iter().filter(|address| address.is_ipv4() != settings.cluster_dns.is_ipv4());
    std::iter::once(settings.cluster_dns).chain(others).collect()
}

fn service(settings: &ClusterSettings) -> Value {
    let addresses = addresses(settings);
    let policy = if addresses.len() > 1 { "RequireDualStack" } else { "SingleStack" };
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": SERVICE, "namespace": NAMESPACE, "labels": {
            "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
        }},
        // No selector: the endpoints are the nodes that serve DNS themselves, and each pod asks its own node.
        "spec": { "clusterIP": settings.cluster_dns, "clusterIPs": addresses, "ipFamilyPolicy": policy, "internalTrafficPolicy": "Local", "ports": [
            { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": settings.dns_port },
            { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": settings.dns_port },
            { "name": "metrics", "port": METRICS, "protocol": "TCP", "targetPort": METRICS },
        ]},
    })
}

/// The slices of one node, one for each family of its pods.
fn slices_of(node: &Node) -> Vec<Value> {
    let ranges = network::pod_ranges(node).and_then(|ranges| Ranges::of("pod-cidr", &ranges).ok());
    let gateways = ranges.map(|ranges| ranges.nth(1)).unwrap_or_default();
    gateways.into_iter().enumerate().filter_map(|(index, gateway)| slice(node, gateway, index)).collect()
}

/// Owned by the node, so that it goes with it.
fn slice(node: &Node, gateway: IpAddr, index: usize) -> Option<Value> {
    let metadata = &node.metadata;
    let (name, uid) = (metadata.name.as_deref()?, metadata.uid.as_deref()?);
    let port: u16 = metadata.annotations.as_ref()?.get(SERVES_DNS)?.parse().ok()?;
    let second = if index == 0 { "" } else { "-second" };
    Some(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{SERVICE}-{name}{second}"), "namespace": NAMESPACE,
            "labels": { "kubernetes.io/service-name": SERVICE, "endpointslice.kubernetes.io/managed-by": "ferry" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid }],
        },
        "addressType": if gateway.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{ "addresses": [gateway], "nodeName": name, "conditions": { "ready": true } }],
        "ports": [
            { "name": "dns", "port": port, "protocol": "UDP" },
            { "name": "dns-tcp", "port": port, "protocol": "TCP" },
            { "name": "metrics", "port": METRICS, "protocol": "TCP" },
        ],
    }))
}

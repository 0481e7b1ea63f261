//! A node on this machine: runtime, kubelet, pod network, service proxy and DNS. The same for a server's own node and for a
//! machine that joined; they differ in how they reach the API server.

use anyhow::{Context, Result};
use ferry_client::{Informer, Informers};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::Node;

use crate::cluster_dns;
use crate::config::{Cidr, ContainerRuntime, NodeConfig};
use crate::node::containerd::Containerd;
use crate::node::{embedded, network};

/// Who a node is to the API server.
pub struct Identity {
    /// The kubelet, as `system:node:NAME`.
    pub kubelet: kube::Client,
    /// How the kubelet is known to those who call it.
    pub tls: ferry_kubelet::Tls,
    /// Nodes, Services and EndpointSlices, as whoever may list them.
    pub informers: Informers,
}

pub async fn start_runtime(config: &NodeConfig, tasks: &Tasks) -> Result<()> {
    match config.container_runtime {
        ContainerRuntime::Containerd => {
            let containerd = Containerd::new(&config.data_dir, &config.run_dir);
            let pid = containerd.ensure(config).await?;
            let supervised = config.clone();
            tasks.spawn_until_stopped("containerd", async move { containerd.supervise(supervised, pid).await });
            Ok(())
        }
        ContainerRuntime::Embedded => embedded::start(config, tasks).await,
        ContainerRuntime::Other(_) => Ok(()),
    }
}

/// Starts the kubelet, then the network once the node has a range of addresses, then waits until the node is Ready.
pub async fn start(config: &NodeConfig, identity: Identity, tasks: &Tasks) -> Result<()> {
    let Identity { kubelet: client, tls, informers } = identity;
    let settings = &config.cluster;
    let has_own_network = settings.pod_network != ferry_network::Mode::Cni;
    let runtime = config.runtime_socket();
    let mut kubelet = ferry_kubelet::Config::new(
        &config.node_name,
        config.node_ip,
        &runtime.to_string_lossy(),
        config.data_dir.join("kubelet"),
    );
    kubelet.log_dir = config.data_dir.join("logs");
    kubelet.cluster_dns = vec![settings.cluster_dns];
    kubelet.cluster_domain.clone_from(&settings.cluster_domain);
    kubelet.port = config.kubelet_port;
    kubelet.cgroup_root.clone_from(&config.cgroup_root);
    kubelet.sandbox_image = Some(settings.pause_image.clone());
    kubelet.labels.clone_from(&config.labels);
    kubelet.taints.clone_from(&config.taints);
    if has_own_network {
        kubelet.annotations.insert(cluster_dns::SERVES_DNS.to_owned(), settings.dns_port.to_string());
    }
    config.kubelet.apply(&mut kubelet);
    kubelet.tls = Some(tls);
    ferry_kubelet::start(kubelet, client, tasks).await.context("cannot start the kubelet")?;

    let nodes = informers.of::<Node>();
    let proxy = ferry_proxy::Config {
        node_name: config.node_name.clone(),
        pod_cidr: settings.cluster_cidr.to_string(),
        service_cidrs: vec![settings.service_cidr.to_string()],
        table: network::proxy_table(&config.bridge),
        ..ferry_proxy::Config::default()
    };
    if has_own_network {
        let range = until(&nodes, &config.node_name, |node| node.spec.as_ref()?.pod_cidr.clone()).await;
        let pod_cidr = Cidr::parse("pod-cidr", &range)?;
        network::prepare(config, pod_cidr)?;
        network::write_cni(config, pod_cidr)?;
        let between = ferry_network::Config {
            node_name: config.node_name.clone(),
            node_ip: config.node_ip,
            mode: settings.pod_network,
            device: network::tunnel_device(&config.bridge),
        };
        ferry_network::start(between, &informers, tasks).context("cannot start the network between nodes")?;
        cluster_dns::serve(config, pod_cidr, &informers, tasks).await?;
    }
    let proxy = ferry_proxy::start(proxy, &informers, tasks).await.context("cannot start the service proxy")?;
    proxy.ready().await;
    until(&nodes, &config.node_name, |node| {
        let conditions = node.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True").then_some(())
    })
    .await;
    Ok(())
}

/// Waits until a node shows what is looked for.
async fn until<T>(nodes: &Informer<Node>, name: &str, look: impl Fn(&Node) -> Option<T>) -> T {
    let mut changes = nodes.subscribe();
    loop {
        if let Some(found) = nodes.get("", name).and_then(|node| look(&node)) {
            return found;
        }
        changes.next().await;
    }
}

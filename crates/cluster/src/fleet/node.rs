//! A node on this machine: runtime, kubelet, pod network, service proxy and DNS. The same for a server's own node and for a
//! machine that joined; they differ in how they reach the API server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferry_client::{Informer, Informers, Recorder};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::Node;

use crate::cluster_dns;
use crate::config::NodeConfig;
use crate::container_runtime::ContainerRuntime;
use crate::fleet::told;
use crate::node::containerd::Containerd;
use crate::node::{embedded, network, program_memory, resolver};
use crate::ranges::Ranges;

/// After which somebody is told what the node is waiting for.
const POLICIES_PATIENCE: Duration = Duration::from_secs(30);

/// Who a node is to the API server.
pub struct Identity {
    /// The kubelet, as `system:node:NAME`.
    pub kubelet: kube::Client,
    /// How the kubelet is known to those who call it.
    pub tls: ferry_kubelet::Tls,
    /// Nodes, Services, EndpointSlices, pods, namespaces and NetworkPolicies, as whoever may list them.
    pub informers: Informers,
    /// The port of an API server on this machine, which pods reach.
    pub api_port: Option<u16>,
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
        ContainerRuntime::Embedded => embedded::start(&embedded::Settings::of(config), tasks).await,
        ContainerRuntime::Other(_) => Ok(()),
    }
}

/// Starts the kubelet, then the network once the node has a range of addresses, then waits until the node is Ready.
pub async fn start(config: &NodeConfig, identity: Identity, tasks: &Tasks) -> Result<()> {
    let Identity { kubelet: client, tls, informers, api_port } = identity;
    let settings = &config.cluster;
    let has_own_network = settings.pod_network != ferry_network::Mode::Cni;
    let runtime = config.runtime_socket();
    let places = config.kubelet.places(&config.data_dir);
    places.prepare(&config.data_dir)?;
    let mut kubelet =
        ferry_kubelet::Config::new(&config.node_name, config.node_ip, &runtime.to_string_lossy(), &places.root_dir);
    kubelet.local_volumes = Some(config.data_dir.join(ferry_semantics::local_volumes::FOLDER));
    kubelet.other_node_ips = config.node_ips.iter().copied().filter(|ip| *ip != config.node_ip).collect();
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
    let private_key = network::wireguard_key(config)?;
    if let Some(key) = &private_key {
        kubelet.annotations.insert(ferry_network::wireguard::PUBLIC_KEY.to_owned(), key.public().to_string());
    }
    told::note_listening(&mut kubelet.annotations).await;
    kubelet.resolv_conf = resolver::file();
    kubelet.tls = Some(tls);
    config.kubelet.apply(&mut kubelet, &places);
    let (gate, newcomers) = ferry_policy::gate();
    let pass: ferry_kubelet::NetworkGate = Arc::new(move |pod, addresses| {
        let gate = gate.clone();
        Box::pin(async move { gate.pass(pod, addresses).await.map_err(|error| error.to_string()) })
    });
    kubelet.network_gate = has_own_network.then_some(pass);
    ferry_kubelet::start(kubelet, client.clone(), tasks).await.context("cannot start the kubelet")?;

    let nodes = informers.of::<Node>();
    let proxy = ferry_proxy::Config {
        node_name: config.node_name.clone(),
        pod_cidrs: settings.cluster_cidr.texts(),
        service_cidrs: settings.service_cidr.texts(),
        table: network::proxy_table(&config.bridge),
        node_port_addresses: config.proxy.node_port_addresses.clone(),
        healthz_bind_address: config.proxy.healthz_bind_address,
        metrics_bind_address: config.proxy.metrics_bind_address,
        recorder: Some(Recorder::with_host(client.clone(), "kube-proxy", Some(&config.node_name), tasks)),
        ..ferry_proxy::Config::default()
    };
    if has_own_network {
        let ranges = until(&nodes, &config.node_name, network::pod_ranges).await;
        let pod_cidrs = Ranges::of("pod-cidr", &ranges)?;
        let attaching = network::settings(config, &pod_cidrs).await?;
        network::prepare(&attaching).await?;
        let guarded = network::guard(config, &attaching, api_port, tasks).await?;
        told::problems(&config.node_name, client.clone(), guarded.problems(), tasks);
        // A server's own node has the controllers' informers beside it.
        let sources = match api_port {
            Some(_) => ferry_policy::Sources::shared(&informers),
            None => ferry_policy::Sources::own(&informers),
        };
        let policies = network::enforce_policies(config, &pod_cidrs, sources, newcomers, tasks)?;
        policies_in_force(&policies).await;
        network::write_cni(config, &attaching)?;
        let between = ferry_network::Config {
            node_name: config.node_name.clone(),
            node_ip: config.node_ip,
            mode: settings.pod_network,
            device: network::tunnel_device(&config.bridge),
            wireguard_device: network::wireguard_device(&config.bridge),
            private_key,
        };
        ferry_network::start(between, &informers, tasks).context("cannot start the network between nodes")?;
        cluster_dns::serve(config, &pod_cidrs, &informers, tasks).await?;
    } else {
        cluster_dns::end(config).await;
    }
    if let Some(pool) = settings.load_balancer_range.clone() {
        let announced = ferry_network::announce::Config {
            node_name: config.node_name.clone(),
            node_ips: config.node_ips.clone(),
            pool: Arc::new(move |address| pool.contains(address)),
            device: network::announced_device(&config.bridge),
        };
        ferry_network::announce::start(announced, &informers, tasks)
            .context("cannot announce the addresses of LoadBalancer Services")?;
    }
    let proxy = ferry_proxy::start(proxy, &informers, tasks).await.context("cannot start the service proxy")?;
    proxy.ready().await;
    told::listening(&config.node_name, client, proxy.listening(), tasks);
    until(&nodes, &config.node_name, |node| {
        let conditions = node.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True").then_some(())
    })
    .await;
    tasks.spawn_until_stopped("memory of the program", program_memory::keep_small());
    Ok(())
}

/// No pod starts before. What a node may not list never comes, and nothing else would say so.
async fn policies_in_force(policies: &ferry_policy::Policies) {
    let ready = policies.ready();
    tokio::pin!(ready);
    if tokio::time::timeout(POLICIES_PATIENCE, &mut ready).await.is_ok() {
        return;
    }
    tracing::warn!(
        "NetworkPolicies are not in force after {} s, and no pod of this node gets a network before: this node has to list pods, namespaces and \
         networkpolicies (a node that joined by the ClusterRole ferry:node-policies, bound to the group ferry:node-proxies), and nft has to \
         accept their rules; still waiting",
        POLICIES_PATIENCE.as_secs()
    );
    ready.await;
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

//! Checked configuration: what the wiring starts from. Everything that can be refused is refused here, before anything is written.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ferry_controllers::AddressPool;
use ferry_semantics::cidr::IpNet;
use ferry_server::server_options::ServerOptions;
use ferry_server::state::StorageBackend;

use k8s_openapi::api::core::v1::Taint;

use crate::command_line::CommandLine;
use crate::container_runtime::{ContainerRuntime, EMBEDDED_SOCKET};
use crate::kubelet_options::KubeletConfig;
use crate::labels;
use crate::options::{ClusterOptions, NodeOptions};
use crate::ranges::{self, Ranges};

/// A registry and the server to ask before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub registry: String,
    pub url: String,
}

/// What is the same on all nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    pub cluster_cidr: Ranges,
    pub service_cidr: Ranges,
    pub cluster_domain: String,
    pub cluster_dns: IpAddr,
    pub dns_port: u16,
    pub pod_network: ferry_network::Mode,
    pub pause_image: String,
    pub load_balancer_range: Option<AddressPool>,
}

impl ClusterSettings {
    /// Addresses that pods or Services have already cannot be given away again.
    fn check_load_balancer_range(&self) -> Result<()> {
        let Some(pool) = &self.load_balancer_range else { return Ok(()) };
        for range in self.cluster_cidr.iter().chain(self.service_cidr.iter()) {
            ensure!(
                !pool.overlaps(&range),
                "--load-balancer-range {pool} has addresses of {range}, which pods or Services get; choose others"
            );
        }
        Ok(())
    }
}

/// One machine of a cluster.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub data_dir: PathBuf,
    pub run_dir: PathBuf,
    pub kubelet_port: u16,
    pub node_name: String,
    /// The address by which others know the node, of the cluster's first family.
    pub node_ip: IpAddr,
    /// That and the one of the other family, where the node has one.
    pub node_ips: Vec<IpAddr>,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub bridge: String,
    pub cni: Cni,
    pub cgroup_root: PathBuf,
    pub mirrors: Vec<Mirror>,
    pub container_runtime: ContainerRuntime,
    pub kubelet: KubeletConfig,
    pub proxy: ProxyConfig,
    /// None: this machine serves no Gateways.
    pub gateway: Option<ferry_gateway::Config>,
    pub cluster: ClusterSettings,
}

/// Of the kubelet, where nobody says another.
pub const KUBELET_PORT: u16 = 10250;

/// The table of a proxy that runs alone.
pub const PROXY_TABLE: &str = ferry_proxy::TABLE;

/// Where runtimes find the configuration of the pod network, and the programs that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cni {
    pub conf_dir: PathBuf,
    pub bin_dir: PathBuf,
}

impl Cni {
    /// Of Ferry's own network: folders where nobody else puts anything.
    pub fn own(data_dir: &Path) -> Self {
        Self { conf_dir: data_dir.join("cni"), bin_dir: data_dir.join("cni/bin") }
    }

    fn check(options: &NodeOptions, data_dir: &Path, mode: ferry_network::Mode) -> Result<Self> {
        match mode {
            ferry_network::Mode::Cni => {
                Ok(Self { conf_dir: absolute(&options.cni_conf_dir)?, bin_dir: absolute(&options.cni_bin_dir)? })
            }
            _ => Ok(Self::own(data_dir)),
        }
    }
}

/// How Services are served on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyConfig {
    pub healthz_bind_address: Option<SocketAddr>,
    pub metrics_bind_address: Option<SocketAddr>,
    pub node_port_addresses: Vec<String>,
}

impl ProxyConfig {
    /// Of two flags with their texts, and of ranges; `primary` is the node's addresses.
    pub fn parse(
        healthz: (&str, &str),
        metrics: (&str, &str),
        node_port_addresses: &[String],
        node_ips: &[IpAddr],
    ) -> Result<Self> {
        let address = |(flag, text): (&str, &str)| match text {
            "" => Ok(None),
            text => text.parse().map(Some).with_context(|| {
                format!("--{flag} {text:?} is not an address with a port, such as 127.0.0.1:10256; empty disables it")
            }),
        };
        let mut ranges = Vec::new();
        for text in node_port_addresses {
            match text.as_str() {
                "primary" => {
                    ensure!(!node_ips.is_empty(), "--nodeport-addresses primary: no address of this node is known");
                    ranges.extend(node_ips.iter().map(|ip| IpNet::from(*ip).to_string()));
                }
                text => ranges.push(ranges::parse("nodeport-addresses", text)?.to_string()),
            }
        }
        Ok(Self {
            healthz_bind_address: address(healthz)?,
            metrics_bind_address: address(metrics)?,
            node_port_addresses: ranges,
        })
    }
}

impl NodeConfig {
    pub fn check(options: &NodeOptions, cluster: ClusterSettings) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "a node needs root for namespaces, mounts and packet rules; run it as root or with sudo"
        );
        ensure!(
            !options.bridge.is_empty() && options.bridge.len() <= 15,
            "--bridge {:?} is not an interface name: 1 to 15 characters",
            options.bridge
        );
        let plain =
            options.cgroup_root.components().skip(1).all(|part| matches!(part, std::path::Component::Normal(_)));
        ensure!(
            options.cgroup_root.has_root() && plain,
            "--cgroup-root {:?} is not a control group: use an absolute path, such as /machines",
            options.cgroup_root
        );
        let kubelet = options.kubelet.check()?;
        kubelet.check_in_cluster(&cluster.cluster_domain)?;
        let mirrors = options.registry_mirror.iter().map(|text| parse_mirror(text)).collect::<Result<_>>()?;
        let node_ips = node_addresses(&options.node_ip, &cluster)?;
        let node_ip = node_ips.first().copied().unwrap_or_else(|| ranges::nth(&cluster.cluster_cidr.first(), 1));
        let data_dir = absolute(&options.folders.data_dir)?;
        Ok(Self {
            cni: Cni::check(options, &data_dir, cluster.pod_network)?,
            data_dir,
            run_dir: absolute(&options.folders.run_dir)?,
            kubelet_port: options.kubelet_port.or(kubelet.node().port).unwrap_or(KUBELET_PORT),
            node_name: match &options.node_name {
                Some(name) => {
                    let reasons = ferry_meta::names::dns1123_subdomain(name);
                    ensure!(
                        reasons.is_empty(),
                        "--node-name {name:?} is not a valid node name: {}",
                        reasons.join("; ")
                    );
                    name.clone()
                }
                None => host_name(),
            },
            proxy: ProxyConfig::parse(
                ("proxy-healthz-bind-address", &options.proxy_healthz_bind_address),
                ("proxy-metrics-bind-address", &options.proxy_metrics_bind_address),
                &options.nodeport_addresses,
                &node_ips,
            )?,
            gateway: options.gateway.gateway.then(|| options.gateway.serving.config(node_ip)),
            node_ip,
            node_ips,
            labels: labels::pairs("node-label", &options.node_label)?,
            taints: match (options.node_taint.is_empty(), &kubelet.node().taints) {
                (true, Some(taints)) => taints.clone(),
                _ => options.node_taint.iter().map(|text| labels::taint("node-taint", text)).collect::<Result<_>>()?,
            },
            bridge: options.bridge.clone(),
            cgroup_root: options.cgroup_root.clone(),
            mirrors,
            container_runtime: ContainerRuntime::choose(
                options.container_runtime_endpoint.as_deref().or(kubelet.node().container_runtime_endpoint.as_deref()),
                &absolute(&options.folders.data_dir)?,
            )?,
            kubelet,
            cluster,
        })
    }

    /// Fails when another process holds the kubelet's port.
    pub fn check_ports(&self) -> Result<()> {
        check_port(self.node_ip, self.kubelet_port, "kubelet-port")
    }

    /// Fails when this kernel cannot do what the mode of the network between nodes needs.
    pub async fn check_network(&self) -> Result<()> {
        let mode = self.cluster.pod_network;
        ferry_network::probe(mode).await.with_context(|| format!("--pod-network {mode} does not work on this machine"))
    }

    pub fn log_file(&self) -> PathBuf {
        self.data_dir.join("ferry.log")
    }

    pub fn runtime_socket(&self) -> PathBuf {
        match &self.container_runtime {
            ContainerRuntime::Containerd => self.run_dir.join("containerd.sock"),
            ContainerRuntime::Embedded => self.run_dir.join(EMBEDDED_SOCKET),
            ContainerRuntime::Other(socket) => socket.clone(),
        }
    }
}

fn check_port(address: IpAddr, port: u16, flag: &str) -> Result<()> {
    TcpListener::bind((address, port)).map(drop).with_context(|| {
        format!("port {port} is in use or not allowed; stop what uses it, or choose another with --{flag}")
    })
}

/// The etcd member of a server.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    pub cluster_init: bool,
    pub etcd_binary: Option<PathBuf>,
    pub etcd_client_port: u16,
    pub etcd_peer_port: u16,
    pub etcd_quota_backend_bytes: Option<u64>,
}

/// A server and the node on the same machine.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    pub node: NodeConfig,
    pub state: StorageBackend,
    pub member: MemberConfig,
    pub bind_address: IpAddr,
    pub secure_port: u16,
    pub server: ServerOptions,
    /// What the process was started with: servers that join get it, and `/flagz` shows it.
    pub command_line: CommandLine,
}

impl ClusterConfig {
    pub fn check(options: &ClusterOptions, command_line: CommandLine) -> Result<Self> {
        let cluster_cidr = Ranges::parse("cluster-cidr", &options.cluster_cidr)?;
        let service_cidr = Ranges::parse("service-cluster-ip-range", &options.service_cluster_ip_range)?;
        ensure!(
            cluster_cidr.is_like(&service_cidr),
            "--cluster-cidr {cluster_cidr} and --service-cluster-ip-range {service_cidr} must have the same families of addresses, in the same order"
        );
        ensure!(
            !cluster_cidr.overlaps(&service_cidr),
            "--cluster-cidr {cluster_cidr} and --service-cluster-ip-range {service_cidr} overlap; choose ranges apart from each other"
        );
        for range in cluster_cidr.iter() {
            let (fits, node) = match ranges::is_ipv4(&range) {
                true => (range.prefix_len() <= 24, "a /24"),
                false => ((48..=64).contains(&range.prefix_len()), "a /64 of at least a /48"),
            };
            ensure!(fits, "--cluster-cidr {range} has the wrong size: a node takes {node} of it");
        }
        for range in service_cidr.iter() {
            let lengths = if ranges::is_ipv4(&range) { 12..=28 } else { 108..=124 };
            ensure!(
                lengths.contains(&range.prefix_len()),
                "--service-cluster-ip-range {range} must be a /{} to /{}",
                lengths.start(),
                lengths.end()
            );
        }
        let cluster_dns = ranges::nth(&service_cidr.first(), 10);
        let settings = ClusterSettings {
            cluster_cidr,
            service_cidr,
            cluster_domain: options.cluster_domain.clone(),
            cluster_dns,
            dns_port: options.dns_port,
            pod_network: options.pod_network,
            pause_image: options.pause_image.clone(),
            load_balancer_range: options.load_balancer_range.clone(),
        };
        settings.check_load_balancer_range()?;
        // All addresses, of both families: a socket for those of IPv6 takes the others as well.
        let bind_address = match options.bind_address.is_unspecified() && settings.cluster_cidr.has_ipv6() {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => options.bind_address,
        };
        let node = NodeConfig::check(&options.node, settings)?;
        Ok(Self {
            state: StorageBackend::check(&options.etcd, &node.data_dir)?,
            member: MemberConfig {
                cluster_init: options.cluster_init,
                etcd_binary: options.member.etcd_binary.clone(),
                etcd_client_port: options.member.etcd_client_port,
                etcd_peer_port: options.member.etcd_peer_port,
                etcd_quota_backend_bytes: options.member.etcd_quota_backend_bytes,
            },
            node,
            bind_address,
            secure_port: options.secure_port,
            server: options.server.clone(),
            command_line,
        })
    }

    /// Fails when another process holds a port this cluster needs.
    pub fn check_ports(&self) -> Result<()> {
        check_port(self.bind_address, self.secure_port, "secure-port")?;
        self.node.check_ports()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.node.data_dir.join("kubeconfig")
    }

    /// Where other machines reach this server.
    pub fn advertised(&self) -> String {
        let address = self.node.node_ip;
        if address.is_ipv6() {
            format!("[{address}]:{}", self.secure_port)
        } else {
            format!("{address}:{}", self.secure_port)
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{} is not a usable path", path.display()))
}

pub fn parse_mirror(text: &str) -> Result<Mirror> {
    match text.split_once('=') {
        Some((registry, url))
            if !registry.is_empty() && (url.starts_with("http://") || url.starts_with("https://")) =>
        {
            Ok(Mirror { registry: registry.to_owned(), url: url.trim_end_matches('/').to_owned() })
        }
        _ => bail!("--registry-mirror {text:?} is not valid; use the form docker.io=http://127.0.0.1:5000"),
    }
}

pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}

/// The address the kernel would send from toward the internet.
pub fn default_address() -> Option<IpAddr> {
    source_address("0.0.0.0:0", "198.51.100.1:9")
}

fn default_ipv6_address() -> Option<IpAddr> {
    source_address("[::]:0", "[2001:db8::1]:9")
}

/// Connecting a UDP socket sends no packet.
fn source_address(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    let address = socket.local_addr().ok()?.ip();
    ferry_apiserver::is_global_unicast(address).then_some(address)
}

/// The node's addresses, that of the cluster's first family first. What is not given is found out; without a way out, the
/// address of the bridge serves as the first.
fn node_addresses(given: &[IpAddr], cluster: &ClusterSettings) -> Result<Vec<IpAddr>> {
    for address in given {
        ensure!(
            ferry_apiserver::is_global_unicast(*address),
            "--node-ip {address} is not an address at which others reach this node; use one of a network interface"
        );
        ensure!(
            given.iter().filter(|other| other.is_ipv4() == address.is_ipv4()).count() == 1,
            "--node-ip takes one address of each family"
        );
    }
    let mut addresses = Vec::new();
    for range in cluster.cluster_cidr.iter() {
        let is_ipv4 = ranges::is_ipv4(&range);
        let found = || if is_ipv4 { default_address() } else { default_ipv6_address() };
        let own = given.iter().copied().find(|address| address.is_ipv4() == is_ipv4);
        let own = own.or_else(|| given.is_empty().then(found).flatten());
        let bridge = (given.is_empty() && addresses.is_empty()).then(|| ranges::nth(&range, 1));
        addresses.extend(own.or(bridge));
    }
    ensure!(
        !addresses.is_empty(),
        "--node-ip {given:?} has no address of a family that the cluster has ({})",
        cluster.cluster_cidr
    );
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_checked() {
        assert_eq!(parse_mirror("docker.io=http://127.0.0.1:5000/").unwrap().url, "http://127.0.0.1:5000");
        assert!(parse_mirror("docker.io").is_err());
        assert!(parse_mirror("docker.io=127.0.0.1").is_err());
    }
}

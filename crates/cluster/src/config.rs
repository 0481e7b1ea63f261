//! Checked configuration: what the wiring starts from. Everything that can be refused is refused here, before anything is written.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ferry_server::server_options::ServerOptions;
use ferry_server::state::State;

use k8s_openapi::api::core::v1::Taint;

use crate::command_line::CommandLine;
use crate::kubelet_options::KubeletConfig;
use crate::labels;
use crate::options::{ClusterOptions, NodeOptions};

/// An IPv4 range such as `10.244.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub base: Ipv4Addr,
    pub length: u8,
}

impl Cidr {
    pub fn parse(flag: &str, text: &str) -> Result<Self> {
        let parsed = text.split_once('/').and_then(|(base, length)| {
            let (base, length) = (base.parse::<Ipv4Addr>().ok()?, length.parse::<u8>().ok()?);
            (length <= 32).then_some(Self { base, length })
        });
        let Some(cidr) = parsed else {
            bail!("--{flag} {text:?} is no IPv4 range; write it like 10.244.0.0/16");
        };
        ensure!(
            u32::from(cidr.base) & !cidr.mask() == 0,
            "--{flag} {text:?} has bits set behind its prefix length; the range's first address is {}",
            Ipv4Addr::from(u32::from(cidr.base) & cidr.mask())
        );
        Ok(cidr)
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0)
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask() == u32::from(self.base)
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.base) || other.contains(self.base)
    }

    /// The n-th address of the range.
    pub fn address(self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base).saturating_add(n))
    }

    pub fn last(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base) | !self.mask())
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.length)
    }
}

/// A registry and the server to ask before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub registry: String,
    pub url: String,
}

/// Where the embedded runtime serves, in the run folder.
pub const EMBEDDED_SOCKET: &str = "runtime.sock";

/// What runs containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerRuntime {
    Containerd,
    Embedded,
    /// Somebody else's, at this socket.
    Other(PathBuf),
}

impl ContainerRuntime {
    pub fn parse(text: &str) -> Result<Self> {
        match text.strip_prefix("unix://").unwrap_or(text) {
            "containerd" => Ok(Self::Containerd),
            "embedded" => Ok(Self::Embedded),
            path if path.starts_with('/') => Ok(Self::Other(path.into())),
            _ => bail!(
                "--container-runtime-endpoint {text:?} is not understood; give containerd, embedded, or a socket like unix:///run/other.sock"
            ),
        }
    }
}

/// What is the same on all nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    pub cluster_cidr: Cidr,
    pub service_cidr: Cidr,
    pub cluster_domain: String,
    pub cluster_dns: IpAddr,
    pub dns_port: u16,
    pub pod_network: ferry_network::Mode,
    pub pause_image: String,
}

/// One machine of a cluster.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub data_dir: PathBuf,
    pub run_dir: PathBuf,
    pub kubelet_port: u16,
    pub node_name: String,
    pub node_ip: IpAddr,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub bridge: String,
    pub cgroup_root: PathBuf,
    pub mirrors: Vec<Mirror>,
    pub container_runtime: ContainerRuntime,
    pub kubelet: KubeletConfig,
    pub proxy: ProxyConfig,
    pub cluster: ClusterSettings,
}

/// The table of a proxy that runs alone.
pub const PROXY_TABLE: &str = ferry_proxy::TABLE;

/// How Services are served on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyConfig {
    pub healthz_bind_address: Option<SocketAddr>,
    pub metrics_bind_address: Option<SocketAddr>,
    pub node_port_addresses: Vec<String>,
}

impl ProxyConfig {
    /// Of two flags with their texts, and of ranges; `primary` is the node's address.
    pub fn parse(
        healthz: (&str, &str),
        metrics: (&str, &str),
        node_port_addresses: &[String],
        node_ip: Option<IpAddr>,
    ) -> Result<Self> {
        let address = |(flag, text): (&str, &str)| match text {
            "" => Ok(None),
            text => text.parse().map(Some).with_context(|| {
                format!("--{flag} {text:?} is no address with a port, such as 127.0.0.1:10256; empty switches it off")
            }),
        };
        let mut ranges = Vec::new();
        for text in node_port_addresses {
            match text.as_str() {
                "primary" => {
                    let own = node_ip.context("--nodeport-addresses primary: no address of this node is known")?;
                    ranges.push(format!("{own}/32"));
                }
                text => ranges.push(Cidr::parse("nodeport-addresses", text)?.to_string()),
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
            "--bridge {:?} is no interface name: 1 to 15 characters",
            options.bridge
        );
        let plain =
            options.cgroup_root.components().skip(1).all(|part| matches!(part, std::path::Component::Normal(_)));
        ensure!(
            options.cgroup_root.has_root() && plain,
            "--cgroup-root {:?} is no control group: give it as an absolute path, such as /machines",
            options.cgroup_root
        );
        if let Some(address) = options.node_ip {
            ensure!(
                ferry_apiserver::is_global_unicast(address),
                "--node-ip {address} is no address that others reach this node by; give one of a network interface"
            );
        }
        let mirrors = options.registry_mirror.iter().map(|text| parse_mirror(text)).collect::<Result<_>>()?;
        let node_ip = match options.node_ip {
            Some(address) => address,
            None => default_address().unwrap_or_else(|| cluster.cluster_cidr.address(1).into()),
        };
        Ok(Self {
            data_dir: absolute(&options.folders.data_dir)?,
            run_dir: absolute(&options.folders.run_dir)?,
            kubelet_port: options.kubelet_port,
            node_name: match &options.node_name {
                Some(name) => name.clone(),
                None => host_name(),
            },
            node_ip,
            labels: labels::pairs("node-label", &options.node_label)?,
            taints: options.node_taint.iter().map(|text| labels::taint("node-taint", text)).collect::<Result<_>>()?,
            bridge: options.bridge.clone(),
            cgroup_root: options.cgroup_root.clone(),
            mirrors,
            container_runtime: ContainerRuntime::parse(&options.container_runtime_endpoint)?,
            kubelet: options.kubelet.check()?,
            proxy: ProxyConfig::parse(
                ("proxy-healthz-bind-address", &options.proxy_healthz_bind_address),
                ("proxy-metrics-bind-address", &options.proxy_metrics_bind_address),
                &options.nodeport_addresses,
                Some(node_ip),
            )?,
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
        format!("port {port} is in use or not allowed; stop what listens there, or choose another with --{flag}")
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
    pub state: State,
    pub member: MemberConfig,
    pub bind_address: IpAddr,
    pub secure_port: u16,
    pub server: ServerOptions,
    /// What the process was started with: servers that join get it, and `/flagz` shows it.
    pub command_line: CommandLine,
}

impl ClusterConfig {
    pub fn check(options: &ClusterOptions, command_line: CommandLine) -> Result<Self> {
        let cluster_cidr = Cidr::parse("cluster-cidr", &options.cluster_cidr)?;
        let service_cidr = Cidr::parse("service-cluster-ip-range", &options.service_cluster_ip_range)?;
        ensure!(
            !cluster_cidr.overlaps(service_cidr),
            "--cluster-cidr {cluster_cidr} and --service-cluster-ip-range {service_cidr} overlap; choose ranges apart from each other"
        );
        ensure!(cluster_cidr.length <= 24, "--cluster-cidr {cluster_cidr} is too small: a node takes a /24 of it");
        ensure!(
            (12..=28).contains(&service_cidr.length),
            "--service-cluster-ip-range {service_cidr} must be a /12 to /28"
        );
        let settings = ClusterSettings {
            cluster_cidr,
            service_cidr,
            cluster_domain: options.cluster_domain.clone(),
            cluster_dns: service_cidr.address(10).into(),
            dns_port: options.dns_port,
            pod_network: options.pod_network,
            pause_image: options.pause_image.clone(),
        };
        let node = NodeConfig::check(&options.node, settings)?;
        Ok(Self {
            state: State::check(&options.etcd, &node.data_dir)?,
            member: MemberConfig {
                cluster_init: options.cluster_init,
                etcd_binary: options.member.etcd_binary.clone(),
                etcd_client_port: options.member.etcd_client_port,
                etcd_peer_port: options.member.etcd_peer_port,
                etcd_quota_backend_bytes: options.member.etcd_quota_backend_bytes,
            },
            node,
            bind_address: options.bind_address,
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
    std::path::absolute(path).with_context(|| format!("{} is no usable path", path.display()))
}

pub fn parse_mirror(text: &str) -> Result<Mirror> {
    match text.split_once('=') {
        Some((registry, url))
            if !registry.is_empty() && (url.starts_with("http://") || url.starts_with("https://")) =>
        {
            Ok(Mirror { registry: registry.to_owned(), url: url.trim_end_matches('/').to_owned() })
        }
        _ => bail!("--registry-mirror {text:?} is not understood; write it like docker.io=http://127.0.0.1:5000"),
    }
}

pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}

/// The address the kernel would send from toward the internet. Connecting a UDP socket sends no packet.
pub fn default_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        let cidr = Cidr::parse("x", "10.96.0.0/16").unwrap();
        assert_eq!(cidr.address(10), Ipv4Addr::new(10, 96, 0, 10));
        assert!(cidr.contains(Ipv4Addr::new(10, 96, 255, 1)));
        assert!(!cidr.contains(Ipv4Addr::new(10, 97, 0, 1)));
        for bad in ["10.96.0.0", "10.96.0.1/16", "10.96.0.0/33", "x/8", ""] {
            let message = Cidr::parse("x", bad).unwrap_err().to_string();
            assert!(message.contains("--x"), "{bad}: {message}");
        }
        assert!(cidr.overlaps(Cidr::parse("x", "10.0.0.0/8").unwrap()));
    }

    #[test]
    fn runtimes_are_checked() {
        let other = ContainerRuntime::Other("/run/x.sock".into());
        assert_eq!(ContainerRuntime::parse("embedded").unwrap(), ContainerRuntime::Embedded);
        assert_eq!(ContainerRuntime::parse("unix:///run/x.sock").unwrap(), other);
        assert!(ContainerRuntime::parse("docker").is_err());
    }

    #[test]
    fn mirrors_are_checked() {
        assert_eq!(parse_mirror("docker.io=http://127.0.0.1:5000/").unwrap().url, "http://127.0.0.1:5000");
        assert!(parse_mirror("docker.io").is_err());
        assert!(parse_mirror("docker.io=127.0.0.1").is_err());
    }
}

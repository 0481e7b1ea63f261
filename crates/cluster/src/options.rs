//! The flags of a machine of a cluster: of its server, its node, and how it joins.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use ferry_server::etcd_options::{EtcdAddressFlags, EtcdFlags};
use ferry_server::migration::MigrateTo;
use ferry_server::server_options::ServerOptions;

use crate::kubelet_options::KubeletOptions;

/// Where a cluster keeps its files.
#[derive(Args, Clone, Debug)]
pub struct Folders {
    /// Cluster state, certificates, images and the kubeconfig.
    #[arg(long, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    /// Sockets, locks and other files that need not survive a reboot.
    #[arg(long, default_value = "/run/ferry")]
    pub run_dir: PathBuf,
}

/// One machine of a cluster: where it keeps things, how it is called, what runs its containers.
#[derive(Args, Clone, Debug)]
pub struct NodeOptions {
    #[command(flatten)]
    pub folders: Folders,
    /// The port of the kubelet. Default: 10250.
    #[arg(long)]
    pub kubelet_port: Option<u16>,
    /// The node's name. Default: the host name.
    #[arg(long)]
    pub node_name: Option<String>,
    /// The node's address, or one of each family. Default: the addresses of the default routes.
    #[arg(long, value_delimiter = ',', value_name = "ADDRESS[,ADDRESS]")]
    pub node_ip: Vec<IpAddr>,
    /// A label to register the node with. May be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub node_label: Vec<String>,
    /// A taint to register the node with: `key=value:NoSchedule`. May be given several times.
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT")]
    pub node_taint: Vec<String>,
    /// With `--pod-network cni`: the folder of CNI configurations; the first file is used.
    #[arg(long, default_value = "/etc/cni/net.d", value_name = "FOLDER")]
    pub cni_conf_dir: PathBuf,
    /// With `--pod-network cni`: the folder of CNI plug-ins.
    #[arg(long, default_value = "/opt/cni/bin", value_name = "FOLDER")]
    pub cni_bin_dir: PathBuf,
    /// The bridge that pods are attached to.
    #[arg(long, default_value = "ferry0")]
    pub bridge: String,
    /// The control group in which `kubepods`, the group of all pods, is created.
    #[arg(long, default_value = "/")]
    pub cgroup_root: PathBuf,
    /// A mirror to try first for images of a registry: `docker.io=http://127.0.0.1:5000`. May be given several times.
    #[arg(long, value_name = "REGISTRY=URL")]
    pub registry_mirror: Vec<String>,
    /// The container runtime: `embedded` (Ferry's own, which needs no other program), `containerd` (a separate one that Ferry starts),
    /// or the socket of another one, for example `unix:///run/other.sock`. Default: `embedded`, or `containerd` on a node that
    /// already uses it.
    #[arg(long, value_name = "RUNTIME")]
    pub container_runtime_endpoint: Option<String>,
    /// Where the proxy serves `/healthz` for external load balancers. Empty to disable.
    #[arg(long, default_value = "0.0.0.0:10256", value_name = "ADDRESS:PORT")]
    pub proxy_healthz_bind_address: String,
    /// Where the proxy serves `/metrics`. Empty to disable.
    #[arg(long, default_value = "127.0.0.1:10249", value_name = "ADDRESS:PORT")]
    pub proxy_metrics_bind_address: String,
    /// Serve node ports only at addresses in these ranges, or at the node's primary addresses (`primary`). Default: all addresses.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub nodeport_addresses: Vec<String>,
    #[command(flatten)]
    pub gateway: crate::gateway::GatewayFlags,
    #[command(flatten)]
    pub kubelet: KubeletOptions,
}

#[derive(Args, Clone, Debug)]
pub struct ClusterOptions {
    #[command(flatten)]
    pub node: NodeOptions,
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// Keep the state of a new cluster in an etcd that Ferry runs on this machine, so that more servers can join.
    #[arg(long, conflicts_with = "etcd_servers")]
    pub cluster_init: bool,
    #[command(flatten)]
    pub member: MemberFlags,
    /// The port of the API server.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// The address on which the API server listens.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The port of the cluster DNS on the pod network's gateway.
    #[arg(long, default_value_t = 10053)]
    pub dns_port: u16,
    /// The address range of pods, or one of each family: `10.244.0.0/16,fd00:10:244::/56`.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// The address range of Services, or one of each family in the same order.
    #[arg(long, default_value = "10.96.0.0/16")]
    pub service_cluster_ip_range: String,
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// How pod traffic travels between nodes: `routes` (all nodes in one network segment), `vxlan`, `auto` (routes or VXLAN, for
    /// each node), `wireguard` (encrypted), or `cni` (a plug-in that you install).
    #[arg(long, default_value = "auto", value_name = "MODE")]
    pub pod_network: ferry_network::Mode,
    /// Addresses for LoadBalancer Services, announced by one node with ARP and neighbour discovery: `192.0.2.32/28`,
    /// `192.0.2.40-192.0.2.50`, several with commas. Default: the addresses of the nodes.
    #[arg(long, value_name = "RANGE")]
    pub load_balancer_range: Option<ferry_controllers::AddressPool>,
    /// The image that holds a pod's namespaces.
    #[arg(long, default_value = "registry.k8s.io/pause:3.10")]
    pub pause_image: String,
    #[command(flatten)]
    pub server: ServerOptions,
}

/// The etcd member of a server that others can join.
#[derive(Args, Clone, Debug)]
pub struct MemberFlags {
    /// The etcd program, 3.4 or newer. Default: `etcd` on the path.
    #[arg(long, value_name = "FILE")]
    pub etcd_binary: Option<PathBuf>,
    /// The client port of this server's etcd, for API servers.
    #[arg(long, default_value_t = 2379)]
    pub etcd_client_port: u16,
    /// The peer port of this server's etcd, for the other members.
    #[arg(long, default_value_t = 2380)]
    pub etcd_peer_port: u16,
    /// The size limit of etcd's data. Default: etcd's own.
    #[arg(long, value_name = "BYTES")]
    pub etcd_quota_backend_bytes: Option<u64>,
}

/// `ferry join`: where the cluster is, and this machine.
#[derive(Args, Clone, Debug)]
pub struct JoinOptions {
    /// A server of the cluster: `192.0.2.1` or `192.0.2.1:6443`.
    pub address: String,
    /// What `ferry token create` printed there.
    pub token: String,
    /// Make this machine a server, with a token of `ferry token create --server`.
    #[arg(long)]
    pub server: bool,
    #[command(flatten)]
    pub member: MemberFlags,
    /// With --server: the port of the API server.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// With --server: the address on which the API server listens.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    #[command(flatten)]
    pub node: NodeOptions,
}

/// `ferry store migrate`: where to, and the etcd that it is.
#[derive(Args, Clone, Debug)]
pub struct MigrateOptions {
    /// The target: an etcd (one that Ferry runs, unless --etcd-servers is given), or the embedded store.
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub to: MigrateTo,
    #[command(flatten)]
    pub etcd: EtcdAddressFlags,
    /// The cluster's folder for sockets and locks. It is in use while the server runs.
    #[arg(long, default_value = "/run/ferry")]
    pub run_dir: PathBuf,
    /// For an etcd that Ferry runs: the server's name. Default: the host name.
    #[arg(long)]
    pub node_name: Option<String>,
    /// For an etcd that Ferry runs: the server's address. Default: the address of the default route.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    #[command(flatten)]
    pub member: MemberFlags,
}

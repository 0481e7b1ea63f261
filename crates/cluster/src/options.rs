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
    /// Sockets, locks and what need not outlive a reboot.
    #[arg(long, default_value = "/run/ferry")]
    pub run_dir: PathBuf,
}

/// One machine of a cluster: where it keeps things, how it is called, what runs its containers.
#[derive(Args, Clone, Debug)]
pub struct NodeOptions {
    #[command(flatten)]
    pub folders: Folders,
    /// The port of the kubelet.
    #[arg(long, default_value_t = 10250)]
    pub kubelet_port: u16,
    /// The node's name; the host's name when not given.
    #[arg(long)]
    pub node_name: Option<String>,
    /// The node's address, or one of each family; those that reach the default gateway when not given.
    #[arg(long, value_delimiter = ',', value_name = "ADDRESS[,ADDRESS]")]
    pub node_ip: Vec<IpAddr>,
    /// A label that the node registers with. May be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub node_label: Vec<String>,
    /// A taint that the node registers with: `key=value:NoSchedule`. May be given several times.
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT")]
    pub node_taint: Vec<String>,
    /// With `--pod-network cni`: the folder whose first file configures the pod network.
    #[arg(long, default_value = "/etc/cni/net.d", value_name = "FOLDER")]
    pub cni_conf_dir: PathBuf,
    /// With `--pod-network cni`: the folder with the programs that the configuration names.
    #[arg(long, default_value = "/opt/cni/bin", value_name = "FOLDER")]
    pub cni_bin_dir: PathBuf,
    /// The bridge that pods are attached to.
    #[arg(long, default_value = "ferry0")]
    pub bridge: String,
    /// The control group that holds those of the pods, in `kubepods`.
    #[arg(long, default_value = "/")]
    pub cgroup_root: PathBuf,
    /// Pull images of a registry from elsewhere first: `docker.io=http://127.0.0.1:5000`. May be given several times.
    #[arg(long, value_name = "REGISTRY=URL")]
    pub registry_mirror: Vec<String>,
    /// What runs containers: `embedded`, Ferry's own runtime, which needs no other program; `containerd`, one that Ferry starts
    /// for itself; or the socket of another, as `unix:///run/other.sock`. When not given: `embedded`, and `containerd` on a node
    /// that has it already.
    #[arg(long, value_name = "RUNTIME")]
    pub container_runtime_endpoint: Option<String>,
    /// Where the proxy serves `/healthz` for load balancers in front of the node; empty for nowhere.
    #[arg(long, default_value = "0.0.0.0:10256", value_name = "ADDRESS:PORT")]
    pub proxy_healthz_bind_address: String,
    /// Where the proxy serves `/metrics`; empty for nowhere.
    #[arg(long, default_value = "127.0.0.1:10249", value_name = "ADDRESS:PORT")]
    pub proxy_metrics_bind_address: String,
    /// Node ports are served at addresses in these ranges alone, or at the node's own (`primary`); at all when not given.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub nodeport_addresses: Vec<String>,
    #[command(flatten)]
    pub kubelet: KubeletOptions,
}

#[derive(Args, Clone, Debug)]
pub struct ClusterOptions {
    #[command(flatten)]
    pub node: NodeOptions,
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// Keep the state of a new cluster in an etcd that Ferry runs on this machine, so that other servers can join.
    #[arg(long, conflicts_with = "etcd_servers")]
    pub cluster_init: bool,
    #[command(flatten)]
    pub member: MemberFlags,
    /// The port of the API server.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// The address the API server listens on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The port of the cluster DNS on the pod network's gateway.
    #[arg(long, default_value_t = 10053)]
    pub dns_port: u16,
    /// Pods get their addresses from here: a range, or one of each family such as `10.244.0.0/16,fd00:10:244::/56`.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// Services get their addresses from here: a range, or one of each family in the same order.
    #[arg(long, default_value = "10.96.0.0/16")]
    pub service_cluster_ip_range: String,
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// How packets travel between nodes: `routes` where all are on one segment, `vxlan` anywhere, `auto` chooses for each node,
    /// `wireguard` encrypts what they send each other, `cni` leaves it to a plug-in that you install.
    #[arg(long, default_value = "auto", value_name = "MODE")]
    pub pod_network: ferry_network::Mode,
    /// LoadBalancer Services get addresses of their own from here, which one node announces by ARP and neighbour discovery:
    /// `192.0.2.32/28`, `192.0.2.40-192.0.2.50`, several with commas. Those of the nodes when not given.
    #[arg(long, value_name = "RANGE")]
    pub load_balancer_range: Option<ferry_controllers::AddressPool>,
    /// The image that holds a pod's namespaces.
    #[arg(long, default_value = "registry.k8s.io/pause:3.10")]
    pub pause_image: String,
    #[command(flatten)]
    pub gateway: crate::gateway::GatewayFlags,
    #[command(flatten)]
    pub server: ServerOptions,
}

/// The etcd member of a server that others can join.
#[derive(Args, Clone, Debug)]
pub struct MemberFlags {
    /// The etcd that Ferry runs, 3.4 or newer; `etcd` on the path when not given.
    #[arg(long, value_name = "FILE")]
    pub etcd_binary: Option<PathBuf>,
    /// Where this server's etcd serves API servers.
    #[arg(long, default_value_t = 2379)]
    pub etcd_client_port: u16,
    /// Where this server's etcd meets those of the other servers.
    #[arg(long, default_value_t = 2380)]
    pub etcd_peer_port: u16,
    /// How large etcd's data may become before it takes no more; etcd's own default when not given.
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
    /// The port of the API server of a server.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// The address the API server of a server listens on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    #[command(flatten)]
    pub node: NodeOptions,
}

/// `ferry store migrate`: where to, and the etcd that it is.
#[derive(Args, Clone, Debug)]
pub struct MigrateOptions {
    /// Where the state goes: to an etcd (one that Ferry runs unless --etcd-servers is given), or back to the embedded store.
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub to: MigrateTo,
    #[command(flatten)]
    pub etcd: EtcdAddressFlags,
    /// The folder for sockets of the cluster, which is in use while its server runs.
    #[arg(long, default_value = "/run/ferry")]
    pub run_dir: PathBuf,
    /// For an etcd that Ferry runs: the name of the server; the host's name when not given.
    #[arg(long)]
    pub node_name: Option<String>,
    /// For an etcd that Ferry runs: the address of the server; the one that reaches the default gateway when not given.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    #[command(flatten)]
    pub member: MemberFlags,
}

//! The flags of the components of a node when they run alone, as upstream's kubelet and kube-proxy call them.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use ferry_cluster::kubelet_options::KubeletOptions;

use crate::component_options::ApiAccess;

#[derive(Args, Clone, Debug)]
pub struct KubeletAloneOptions {
    /// How to reach the API server; $KUBECONFIG or the pod's own service account when not given.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// A KubeletConfiguration (docs/promises.md says which fields are followed). Flags win over it.
    #[arg(long, value_name = "FILE", conflicts_with = "kubelet_config")]
    pub config: Option<PathBuf>,
    /// A folder of files ending in `.conf`, each a part of a KubeletConfiguration, which add to the file in the order of their
    /// names.
    #[arg(long, value_name = "DIR", conflicts_with = "kubelet_config_dir")]
    pub config_dir: Option<PathBuf>,
    /// The node's name; the host's name when not given.
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// The node's address; the one that reaches the default gateway when not given.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// The address the kubelet listens on; the node's own when not given.
    #[arg(long)]
    pub address: Option<IpAddr>,
    #[arg(long, default_value_t = 10250)]
    pub port: u16,
    /// The socket of a container runtime, or `embedded` for Ferry's own.
    #[arg(long, default_value = "unix:///run/containerd/containerd.sock", value_name = "RUNTIME")]
    pub container_runtime_endpoint: String,
    /// With `embedded`: pull images of a registry from elsewhere first: `docker.io=http://127.0.0.1:5000`. May be given several
    /// times.
    #[arg(long, value_name = "REGISTRY=URL")]
    pub registry_mirror: Vec<String>,
    /// With `embedded`: the image that holds a pod's namespaces.
    #[arg(long, default_value = "registry.k8s.io/pause:3.10")]
    pub pod_infra_container_image: String,
    /// With `embedded`: sockets and what need not outlive a reboot.
    #[arg(long, default_value = "/run/ferry")]
    pub run_dir: PathBuf,
    /// The DNS servers that pods ask.
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',')]
    pub cluster_dns: Vec<IpAddr>,
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// The resolvers of pods that do not ask the cluster's DNS; those of the host when not given.
    #[arg(long, value_name = "FILE")]
    pub resolv_conf: Option<PathBuf>,
    /// Labels that the node registers with.
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',')]
    pub node_labels: Vec<String>,
    /// Taints that the node registers with.
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT,...", value_delimiter = ',')]
    pub register_with_taints: Vec<String>,
    /// The control group that holds those of the pods, in `kubepods`.
    #[arg(long, default_value = "/")]
    pub cgroup_root: PathBuf,
    /// The kubelet's own certificate; one is made up when not given.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Client certificates signed by one of these CAs name users; the API server is asked about tokens in any case.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub kubelet: KubeletOptions,
}

#[derive(Args, Clone, Debug)]
pub struct ProxyAloneOptions {
    #[command(flatten)]
    pub access: ApiAccess,
    /// The node's name; the host's name when not given.
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// Pods have addresses from here: what comes from elsewhere to a ClusterIP is masqueraded.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// Services have addresses from here: those that no Service has are refused. Nothing is refused when not given.
    #[arg(long)]
    pub service_cluster_ip_range: Option<String>,
    /// Where `/healthz` is served for load balancers in front of the node; empty for nowhere.
    #[arg(long, default_value = "0.0.0.0:10256", value_name = "ADDRESS:PORT")]
    pub healthz_bind_address: String,
    /// Where `/metrics` is served; empty for nowhere.
    #[arg(long, default_value = "127.0.0.1:10249", value_name = "ADDRESS:PORT")]
    pub metrics_bind_address: String,
    /// Node ports are served at addresses in these ranges alone, or at the node's own (`primary`); at all when not given.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub nodeport_addresses: Vec<String>,
    /// The name of the table that holds the rules. They stay when the proxy stops.
    #[arg(long, default_value = ferry_cluster::config::PROXY_TABLE)]
    pub nftables_table: String,
}

#[derive(Args, Clone, Debug)]
pub struct DnsOptions {
    #[command(flatten)]
    pub access: ApiAccess,
    /// Where it answers, over UDP and TCP.
    #[arg(long, default_value = "0.0.0.0:53", value_name = "ADDRESS:PORT,...", value_delimiter = ',')]
    pub listen: Vec<SocketAddr>,
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// The ClusterIP under which pods know it.
    #[arg(long, value_name = "ADDRESS")]
    pub cluster_dns: Option<IpAddr>,
    /// The file that names the servers for all other names; the host's own when not given.
    #[arg(long, value_name = "FILE")]
    pub resolv_conf: Option<PathBuf>,
    /// The Corefile that is in force while the cluster has none in the ConfigMap kube-system/coredns.
    #[arg(long, value_name = "FILE")]
    pub corefile: Option<PathBuf>,
}

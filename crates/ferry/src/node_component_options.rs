//! The flags of the components of a node when they run alone, as upstream's kubelet and kube-proxy call them.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use ferry_cluster::kubelet_options::KubeletOptions;

use crate::component_options::ApiAccess;

#[derive(Args, Clone, Debug)]
pub struct KubeletAloneOptions {
    /// The kubeconfig of the API server. Default: $KUBECONFIG, otherwise the pod's service account.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// A KubeletConfiguration (docs/promises.md lists the supported fields). Flags override it.
    #[arg(long, value_name = "FILE", conflicts_with = "kubelet_config")]
    pub config: Option<PathBuf>,
    /// A folder of partial KubeletConfigurations in files ending in `.conf`, merged into the configuration in the order of
    /// their names.
    #[arg(long, value_name = "DIR", conflicts_with = "kubelet_config_dir")]
    pub config_dir: Option<PathBuf>,
    /// The node's name. Default: the host name.
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// The node's address. Default: the address of the default route.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// The address on which the kubelet listens. Default: the node's address.
    #[arg(long)]
    pub address: Option<IpAddr>,
    /// The port of the kubelet. Default: 10250.
    #[arg(long)]
    pub port: Option<u16>,
    /// The socket of a container runtime, or `embedded` for Ferry's own. Default: `unix:///run/containerd/containerd.sock`.
    #[arg(long, value_name = "RUNTIME")]
    pub container_runtime_endpoint: Option<String>,
    /// With `embedded`: a mirror to try first for images of a registry: `docker.io=http://127.0.0.1:5000`. May be given
    /// several times.
    #[arg(long, value_name = "REGISTRY=URL")]
    pub registry_mirror: Vec<String>,
    /// With `embedded`: the image that holds a pod's namespaces.
    #[arg(long, default_value = "registry.k8s.io/pause:3.10")]
    pub pod_infra_container_image: String,
    /// With `embedded`: the folder for sockets and other files that need not survive a reboot.
    #[arg(long, default_value = "/run/ferry")]
    pub run_dir: PathBuf,
    /// The DNS servers for pods.
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',')]
    pub cluster_dns: Vec<IpAddr>,
    /// The domain of the cluster. Default: `cluster.local`.
    #[arg(long)]
    pub cluster_domain: Option<String>,
    /// The resolv.conf for pods that do not use cluster DNS. Default: the host's.
    #[arg(long, value_name = "FILE")]
    pub resolv_conf: Option<PathBuf>,
    /// Labels to register the node with.
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',')]
    pub node_labels: Vec<String>,
    /// Taints to register the node with.
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT,...", value_delimiter = ',')]
    pub register_with_taints: Vec<String>,
    /// The control group in which `kubepods`, the group of all pods, is created.
    #[arg(long, default_value = "/")]
    pub cgroup_root: PathBuf,
    /// The kubelet's serving certificate. Default: a generated one.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// The CAs of client certificates. Tokens are always reviewed by the API server.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub kubelet: KubeletOptions,
}

#[derive(Args, Clone, Debug)]
pub struct ProxyAloneOptions {
    #[command(flatten)]
    pub access: ApiAccess,
    /// The node's name. Default: the host name.
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// The address range of pods. Traffic to a ClusterIP from other addresses is masqueraded.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// The address range of Services. Connections to unused addresses in it are refused. Default: nothing is refused.
    #[arg(long)]
    pub service_cluster_ip_range: Option<String>,
    /// Where `/healthz` is served for external load balancers. Empty to disable.
    #[arg(long, default_value = "0.0.0.0:10256", value_name = "ADDRESS:PORT")]
    pub healthz_bind_address: String,
    /// Where `/metrics` is served. Empty to disable.
    #[arg(long, default_value = "127.0.0.1:10249", value_name = "ADDRESS:PORT")]
    pub metrics_bind_address: String,
    /// Serve node ports only at addresses in these ranges, or at the node's primary addresses (`primary`). Default: all addresses.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub nodeport_addresses: Vec<String>,
    /// The name of the nftables table. Its rules stay when the proxy stops.
    #[arg(long, default_value = ferry_cluster::config::PROXY_TABLE)]
    pub nftables_table: String,
}

#[derive(Args, Clone, Debug)]
pub struct DnsOptions {
    #[command(flatten)]
    pub access: ApiAccess,
    /// The addresses to listen on, over UDP and TCP.
    #[arg(long, default_value = "0.0.0.0:53", value_name = "ADDRESS:PORT,...", value_delimiter = ',')]
    pub listen: Vec<SocketAddr>,
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// The ClusterIP of the cluster's DNS Service.
    #[arg(long, value_name = "ADDRESS")]
    pub cluster_dns: Option<IpAddr>,
    /// The resolv.conf with the servers for all other names. Default: the host's.
    #[arg(long, value_name = "FILE")]
    pub resolv_conf: Option<PathBuf>,
    /// The Corefile to use while the ConfigMap kube-system/coredns has none.
    #[arg(long, value_name = "FILE")]
    pub corefile: Option<PathBuf>,
}

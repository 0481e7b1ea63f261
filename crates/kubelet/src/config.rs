//! What a kubelet is told about its node and its cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::Clock;
use k8s_openapi::api::core::v1::{Pod, Taint};

use crate::cgroups::CgroupDriver;
use crate::collect::ImageCollection;
use crate::eviction::Eviction;
use crate::manifests::Manifests;
use crate::node_resources::NodeResources;
use crate::pulled::Verification;
use crate::settings::Settings;
use crate::sysctls::Sysctls;

/// The kubelet's own server: its certificate, and whose certificates it believes.
#[derive(Clone)]
pub struct Tls {
    /// Must verify client certificates. Who shows none is asked for a token, which the API server is asked about.
    pub server: Arc<rustls::ServerConfig>,
}

/// Told the addresses of a pod that has its network and no process yet; nothing of the pod starts before the answer, and
/// nothing while that is an error.
pub type NetworkGate =
    Arc<dyn Fn(Arc<Pod>, Vec<IpAddr>) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

#[derive(Clone)]
pub struct Config {
    /// What the node acts by.
    pub clock: Clock,
    pub node_name: String,
    pub node_ip: IpAddr,
    /// Of the other family.
    pub other_node_ips: Vec<IpAddr>,
    /// `/run/containerd/containerd.sock` or `unix:///…`.
    pub cri_endpoint: String,
    /// Volumes and files of pods.
    pub root_dir: PathBuf,
    /// The folder of volumes that are folders of this node; none makes no such volumes.
    pub local_volumes: Option<PathBuf>,
    /// Container logs; upstream's place is `/var/log/pods`.
    pub log_dir: PathBuf,
    /// Links to the logs, named by pod and container, for collectors that follow one folder; upstream's place is
    /// `/var/log/containers`.
    pub log_links: Option<PathBuf>,
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    /// The node's own resolver, for pods that want it.
    pub resolv_conf: PathBuf,
    /// None serves nothing: no logs, no exec.
    pub tls: Option<Tls>,
    /// Where the server listens; the node's address when absent.
    pub listen_ip: Option<IpAddr>,
    /// Zero picks a free port.
    pub port: u16,
    /// Beside those every node has.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Those a new Node gets; one that is there keeps its own.
    pub taints: Vec<Taint>,
    pub max_pods: u32,
    /// What is kept from pods, and which CPUs they get.
    pub resources: NodeResources,
    /// How many processes and threads a pod may have; none for as many as the node gives all pods together.
    pub pod_pids: Option<u64>,
    /// As shown by `kubectl get nodes`.
    pub version: String,
    pub pod_cidr: Option<String>,
    /// The control group that holds the pods' `kubepods`.
    pub cgroup_root: PathBuf,
    /// Who makes control groups, unless the runtime says it.
    pub cgroup_driver: CgroupDriver,
    /// How long a ready pod that is deleted goes on before its containers are told to stop, as a part of its grace
    /// period: time for proxies to stop sending it traffic, as users otherwise buy with a sleeping preStop hook.
    pub drain: Duration,
    /// When pods have to go because the node runs short of something.
    pub eviction: Eviction,
    /// When unused images are removed.
    pub images: ImageCollection,
    /// The runtime's image for sandboxes: no container names it, yet it is needed.
    pub sandbox_image: Option<String>,
    /// A log of this many bytes is set aside, and so many files are kept of each.
    pub log_size: u64,
    pub log_files: usize,
    /// Pods that this node runs without being asked to by the API server.
    pub manifests: Option<Manifests>,
    /// What pods may set of their namespaces.
    pub sysctls: Sysctls,
    /// Whether pods may use images that others have pulled.
    pub image_credentials: Verification,
    pub settings: Settings,
    /// Where pods with a network of their own wait for the rules of that network.
    pub network_gate: Option<NetworkGate>,
}

impl Config {
    pub fn new(node_name: &str, node_ip: IpAddr, cri_endpoint: &str, root_dir: impl Into<PathBuf>) -> Self {
        Self {
            clock: Clock::default(),
            node_name: node_name.to_owned(),
            node_ip,
            other_node_ips: Vec::new(),
            cri_endpoint: cri_endpoint.to_owned(),
            root_dir: root_dir.into(),
            local_volumes: None,
            log_dir: PathBuf::from("/var/log/pods"),
            log_links: None,
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            tls: None,
            listen_ip: None,
            port: 10250,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            max_pods: 110,
            resources: NodeResources::default(),
            pod_pids: None,
            version: "v1.37.0".to_owned(),
            pod_cidr: None,
            cgroup_root: PathBuf::from("/"),
            cgroup_driver: CgroupDriver::default(),
            drain: Duration::from_millis(250),
            eviction: Eviction::default(),
            images: ImageCollection::default(),
            sandbox_image: None,
            log_size: 10 << 20,
            log_files: 5,
            manifests: None,
            sysctls: Sysctls::default(),
            image_credentials: Verification::default(),
            settings: Settings::default(),
            network_gate: None,
        }
    }
}

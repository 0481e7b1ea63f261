//! The flags of components that run alone.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, Subcommand};
use ferry_server::etcd_options::EtcdFlags;
use ferry_server::server_options::{ServerOptions, ServiceAccountOptions, duration};

/// How a component that runs alone reaches the API server.
#[derive(Args, Clone, Debug)]
pub struct ApiAccess {
    /// The kubeconfig of the API server. Default: $KUBECONFIG, otherwise the pod's service account.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The API server's address, instead of the one in the kubeconfig.
    #[arg(long)]
    pub master: Option<String>,
}

/// The certificate with which a component that runs alone serves its health and its metrics.
#[derive(Args, Clone, Debug)]
pub struct ServingCertificate {
    /// The certificate for health and metrics. Default: a generated one.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
}

impl ServingCertificate {
    /// The certificate and its key.
    pub fn files(&self) -> Option<(&Path, &Path)> {
        self.tls_cert_file.as_deref().zip(self.tls_private_key_file.as_deref())
    }
}

#[derive(Args, Clone, Debug)]
pub struct ApiserverOptions {
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// The folder for the embedded store and generated certificates.
    #[arg(long, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The address at which other components reach the API server.
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// The address range of Services. An IPv6 range may follow after a comma, for dual-stack Services.
    #[arg(long, default_value = "10.96.0.0/16")]
    pub service_cluster_ip_range: String,
    /// The serving certificate. Default: one signed by the data folder's CA.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// The CAs of client certificates. Default: the data folder's CA.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// Static tokens: lines of `token,user,uid,"group1,group2"`.
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    /// The folder of the serving certificate (apiserver.crt and apiserver.key) without --tls-cert-file. A generated certificate is
    /// written there.
    #[arg(long, value_name = "FOLDER")]
    pub cert_dir: Option<PathBuf>,
    /// Privileged containers are always allowed here; admission may refuse them. `--allow-privileged=false` is refused.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub allow_privileged: bool,
    #[command(flatten)]
    pub service_accounts: ServiceAccountOptions,
    /// Acknowledge writes before they are on disk. Faster, but a power failure loses them. For tests only.
    #[arg(long)]
    pub unsafe_no_fsync: bool,
    #[command(flatten)]
    pub server: ServerOptions,
    /// Feature gates. `CBORServingAndStorage=true` lets clients use CBOR. May be given several times, or with commas.
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct ControllerManagerOptions {
    #[command(flatten)]
    pub access: ApiAccess,
    /// The controllers to run, separated by commas: `*` for the default ones, `name` to enable one, `-name` to disable one.
    #[arg(long, default_value = "*", allow_hyphen_values = true)]
    pub controllers: String,
    #[arg(long, default_value_t = 10257)]
    pub secure_port: u16,
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    #[command(flatten)]
    pub certificate: ServingCertificate,
    /// Take part in leader election, and run the controllers only as the leader.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub leader_elect: bool,
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    #[arg(long, default_value = "kube-controller-manager")]
    pub leader_elect_resource_name: String,
    #[arg(long, default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
    /// Run each controller with its own service account.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub use_service_account_credentials: bool,
    /// The CA of the API server's certificate, published in a ConfigMap in every namespace.
    #[arg(long)]
    pub root_ca_file: Option<PathBuf>,
    /// Allocate a range of pod addresses to every node.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub allocate_node_cidrs: bool,
    /// The pod address range, or one of each family separated by a comma.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// The prefix length of a node's range, for a single family. Default: 24 for IPv4, 64 for IPv6.
    #[arg(long)]
    pub node_cidr_mask_size: Option<u8>,
    #[arg(long)]
    pub node_cidr_mask_size_ipv4: Option<u8>,
    #[arg(long)]
    pub node_cidr_mask_size_ipv6: Option<u8>,
    #[arg(long, default_value = "40s", value_parser = duration)]
    pub node_monitor_grace_period: Duration,
    /// The key that signs tokens in Secrets. Without it, such Secrets get no token.
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,
    /// The CA that signs certificate requests.
    #[arg(long, requires = "cluster_signing_key_file")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    #[arg(long, requires = "cluster_signing_cert_file")]
    pub cluster_signing_key_file: Option<PathBuf>,
    #[arg(long, default_value = "8760h", value_parser = duration)]
    pub cluster_signing_duration: Duration,
    /// `local` gives LoadBalancer Services the addresses of the nodes. Without it, LoadBalancer Services are not handled.
    #[arg(long)]
    pub cloud_provider: Option<String>,
    /// How many terminated pods are kept. 0 keeps all.
    #[arg(long, default_value_t = 12500)]
    pub terminated_pod_gc_threshold: usize,
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,
    #[arg(long, default_value_t = 0.1)]
    pub horizontal_pod_autoscaler_tolerance: f64,
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub horizontal_pod_autoscaler_initial_readiness_delay: Duration,
}

#[derive(Args, Clone, Debug)]
pub struct SchedulerOptions {
    /// A KubeSchedulerConfiguration. Default: upstream's defaults.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// The kubeconfig of the API server. Default: the one in the configuration, $KUBECONFIG, or the pod's service account.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The API server's address, instead of the one in the kubeconfig.
    #[arg(long)]
    pub master: Option<String>,
    #[arg(long, default_value_t = 10259)]
    pub secure_port: u16,
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    #[command(flatten)]
    pub certificate: ServingCertificate,
    /// Take part in leader election, and schedule only as the leader. These flags override the configuration.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub leader_elect: Option<bool>,
    #[arg(long, value_parser = duration)]
    pub leader_elect_lease_duration: Option<Duration>,
    #[arg(long, value_parser = duration)]
    pub leader_elect_renew_deadline: Option<Duration>,
    #[arg(long, value_parser = duration)]
    pub leader_elect_retry_period: Option<Duration>,
    #[arg(long)]
    pub leader_elect_resource_name: Option<String>,
    #[arg(long)]
    pub leader_elect_resource_namespace: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct GatewayOptions {
    /// The kubeconfig of the API server. Default: $KUBECONFIG, otherwise the pod's service account.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub serving: ferry_cluster::gateway::ServingFlags,
    #[command(subcommand)]
    pub command: Option<GatewayCommand>,
}

#[derive(Subcommand, Clone, Debug)]
pub enum GatewayCommand {
    /// Print the cluster's Ingresses as a Gateway and HTTPRoutes. Names what cannot be converted on standard error. Changes nothing.
    Convert(ConvertOptions),
}

#[derive(Args, Clone, Debug)]
pub struct ConvertOptions {
    /// Only Ingresses in this namespace. Default: all.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Only Ingresses of this class. Default: all.
    #[arg(long, value_name = "NAME")]
    pub ingress_class: Option<String>,
    /// The Gateway for all listeners.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "default/ingress")]
    pub gateway: String,
}

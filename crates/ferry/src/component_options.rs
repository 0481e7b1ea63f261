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
    /// How to reach the API server; $KUBECONFIG or the pod's own service account when not given.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The API server's address, instead of the one in the kubeconfig.
    #[arg(long)]
    pub master: Option<String>,
}

/// The certificate with which a component that runs alone serves its health and its metrics.
#[derive(Args, Clone, Debug)]
pub struct ServingCertificate {
    /// The certificate of health and metrics; one is made up when not given.
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
    /// The embedded store and generated certificates live here.
    #[arg(long, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The address other components reach the API server at.
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// Services get their addresses from here; after a comma a range of IPv6 may follow, for Services of both families.
    #[arg(long, default_value = "10.96.0.0/16")]
    pub service_cluster_ip_range: String,
    /// The serving certificate; one is made from the data folder's CA when not given.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Client certificates signed by one of these CAs are accepted; the data folder's CA when not given.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// Static tokens: lines of `token,user,uid,"group1,group2"`.
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    /// Where the serving certificate is (apiserver.crt and apiserver.key) unless --tls-cert-file says it, and is written to when
    /// it was made here.
    #[arg(long, value_name = "FOLDER")]
    pub cert_dir: Option<PathBuf>,
    /// Privileged containers are always let through to admission; `--allow-privileged=false` is refused.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub allow_privileged: bool,
    #[command(flatten)]
    pub service_accounts: ServiceAccountOptions,
    /// Answer writes before they are on the disk: faster, and lost with the machine's power. For tests.
    #[arg(long)]
    pub unsafe_no_fsync: bool,
    #[command(flatten)]
    pub server: ServerOptions,
    /// `CBORServingAndStorage=true` lets clients speak CBOR. May be given several times, or with commas.
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct ControllerManagerOptions {
    #[command(flatten)]
    pub access: ApiAccess,
    /// Which controllers run: `*` for all, `name` for one, `-name` for all but one; several with commas.
    #[arg(long, default_value = "*", allow_hyphen_values = true)]
    pub controllers: String,
    #[arg(long, default_value_t = 10257)]
    pub secure_port: u16,
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    #[command(flatten)]
    pub certificate: ServingCertificate,
    /// Stand for election and run the controllers while elected.
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
    /// Each controller acts as a service account of its own.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub use_service_account_credentials: bool,
    /// The authority that signs the API server's certificate, for the ConfigMap in every namespace.
    #[arg(long)]
    pub root_ca_file: Option<PathBuf>,
    /// Give every node a range of the cluster's pod addresses.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub allocate_node_cidrs: bool,
    /// One range, or one of each family with a comma between.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// The length of a node's range where there is one family: 24 or 64 when not given.
    #[arg(long)]
    pub node_cidr_mask_size: Option<u8>,
    #[arg(long)]
    pub node_cidr_mask_size_ipv4: Option<u8>,
    #[arg(long)]
    pub node_cidr_mask_size_ipv6: Option<u8>,
    #[arg(long, default_value = "40s", value_parser = duration)]
    pub node_monitor_grace_period: Duration,
    /// The key with which tokens of Secrets are signed; they get none when not given.
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,
    /// The authority with which certificate requests are signed.
    #[arg(long, requires = "cluster_signing_key_file")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    #[arg(long, requires = "cluster_signing_cert_file")]
    pub cluster_signing_key_file: Option<PathBuf>,
    #[arg(long, default_value = "8760h", value_parser = duration)]
    pub cluster_signing_duration: Duration,
    /// `local` gives LoadBalancer Services the nodes' addresses; nobody cares for them when not given.
    #[arg(long)]
    pub cloud_provider: Option<String>,
    /// How many pods that have ended are kept; 0 keeps all.
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
    /// A KubeSchedulerConfiguration; the defaults when not given.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// How to reach the API server; what the configuration says, $KUBECONFIG or the pod's own service account when not given.
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
    /// Stand for election and schedule while elected. These flags win over the configuration.
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
    /// How to reach the API server; $KUBECONFIG or the pod's own service account when not given.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub serving: ferry_cluster::gateway::ServingFlags,
    #[command(subcommand)]
    pub command: Option<GatewayCommand>,
}

#[derive(Subcommand, Clone, Debug)]
pub enum GatewayCommand {
    /// Print the cluster's Ingresses as a Gateway and HTTPRoutes; what cannot be turned is named on standard error. Nothing is changed.
    Convert(ConvertOptions),
}

#[derive(Args, Clone, Debug)]
pub struct ConvertOptions {
    /// Only Ingresses of this namespace; all when not given.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Only Ingresses of this class; of all classes when not given.
    #[arg(long, value_name = "NAME")]
    pub ingress_class: Option<String>,
    /// The Gateway that gets the listeners of all of them.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "default/ingress")]
    pub gateway: String,
}

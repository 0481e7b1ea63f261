//! The flags about where the cluster's state is kept.

use std::path::PathBuf;

use clap::Args;

/// Where an etcd is; names and meaning as upstream's.
#[derive(Args, Clone, Debug)]
pub struct EtcdAddressFlags {
    /// Keep the state in these etcd servers (scheme://ip:port, separated by commas) instead of the data folder.
    #[arg(long, value_delimiter = ',', value_name = "URL,...")]
    pub etcd_servers: Vec<String>,
    /// The authority that signed the certificates of etcd.
    #[arg(long, requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd.
    #[arg(long, requires = "etcd_keyfile", requires = "etcd_servers")]
    pub etcd_certfile: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// What every key in etcd begins with.
    #[arg(long, default_value = "/registry")]
    pub etcd_prefix: String,
}

/// An etcd to keep the cluster's state in.
#[derive(Args, Clone, Debug)]
pub struct EtcdFlags {
    #[command(flatten)]
    pub address: EtcdAddressFlags,
    /// How built-in kinds are written to etcd: application/json or application/vnd.kubernetes.protobuf. Both are read.
    #[arg(long, default_value = "application/json")]
    pub storage_media_type: String,
}

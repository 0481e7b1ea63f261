//! The flags about where the cluster's state is kept.

use std::path::PathBuf;

use clap::Args;

/// Where an etcd is; names and meaning as upstream's.
#[derive(Args, Clone, Debug)]
pub struct EtcdAddressFlags {
    /// Keep the state in these etcd servers (scheme://ip:port, separated by commas) instead of the data folder.
    #[arg(long, value_delimiter = ',', value_name = "URL,...")]
    pub etcd_servers: Vec<String>,
    /// The CA of etcd's certificates.
    #[arg(long, requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd.
    #[arg(long, requires = "etcd_keyfile", requires = "etcd_servers")]
    pub etcd_certfile: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// The prefix of all keys in etcd.
    #[arg(long, default_value = "/registry")]
    pub etcd_prefix: String,
}

/// An etcd to keep the cluster's state in.
#[derive(Args, Clone, Debug)]
pub struct EtcdFlags {
    #[command(flatten)]
    pub address: EtcdAddressFlags,
    /// The format of built-in kinds in etcd: application/json or application/vnd.kubernetes.protobuf. Both can be read.
    #[arg(long, default_value = "application/json")]
    pub storage_media_type: String,
}

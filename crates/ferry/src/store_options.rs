//! The flags of `ferry store`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ferry_server::server_options::duration;

use crate::arguments::{MemberFlags, MigrateOptions};

#[derive(Args, Clone, Debug)]
pub struct StoreOptions {
    /// The cluster's data folder.
    #[arg(long, global = true, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    #[command(subcommand)]
    pub command: StoreCommand,
}

#[derive(Args, Clone, Debug)]
pub struct BackupOptions {
    #[arg(required_unless_present = "dir", conflicts_with = "dir")]
    pub file: Option<PathBuf>,
    /// Write to this folder. The file is named after the time.
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// How many backups to keep in the folder. The oldest are deleted.
    #[arg(long, value_name = "COUNT", requires = "dir", value_parser = clap::value_parser!(u16).range(1..))]
    pub keep: Option<u16>,
    /// Keep running, and make a backup at this interval.
    #[arg(long, value_name = "DURATION", requires = "dir", value_parser = duration)]
    pub every: Option<Duration>,
    /// A shell command that copies each backup elsewhere. The file's name is appended to it.
    #[arg(long, value_name = "COMMAND")]
    pub upload: Option<String>,
    /// Include the cluster's keys, encrypted with the passphrase in this file.
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct RestoreOptions {
    pub file: PathBuf,
    /// The file with the passphrase of the cluster's keys in the backup.
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
    /// For a backup of etcd: the server's name. Default: the host name.
    #[arg(long)]
    pub node_name: Option<String>,
    /// For a backup of etcd: the server's address. Default: the address of the default route.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    #[command(flatten)]
    pub member: MemberFlags,
}

#[derive(Subcommand, Clone, Debug)]
pub enum StoreCommand {
    /// Write everything to one file. The cluster may be running.
    Backup(BackupOptions),
    /// Create a data folder from a backup. Never overwrites an existing store.
    Restore(RestoreOptions),
    /// Move the state of a stopped cluster to the other engine, with all revisions. The source is kept.
    Migrate(Box<MigrateOptions>),
    /// Read everything and report whether it is intact.
    Check {
        /// Check this backup instead of the store.
        #[arg(long, value_name = "FILE")]
        backup: Option<PathBuf>,
    },
    /// Show the changes of one key that are still kept, oldest first.
    History {
        /// For example /registry/pods/default/web-1.
        key: String,
        /// Also print the values. Those of Secrets may be readable.
        #[arg(long)]
        values: bool,
    },
}

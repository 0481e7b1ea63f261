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
    /// Write to this folder, under a name with the time in it.
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// Remove the oldest backups of the folder, and keep so many.
    #[arg(long, value_name = "COUNT", requires = "dir", value_parser = clap::value_parser!(u16).range(1..))]
    pub keep: Option<u16>,
    /// Go on, and make a backup each time this has passed.
    #[arg(long, value_name = "DURATION", requires = "dir", value_parser = duration)]
    pub every: Option<Duration>,
    /// A command of the shell that takes each backup elsewhere; the file's name is its last word.
    #[arg(long, value_name = "COMMAND")]
    pub upload: Option<String>,
    /// Put the cluster's keys into the backup, encrypted with the passphrase in this file.
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct RestoreOptions {
    pub file: PathBuf,
    /// The passphrase of the cluster's keys in the backup.
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
    /// For a backup of etcd: the name of the server; the host's name when not given.
    #[arg(long)]
    pub node_name: Option<String>,
    /// For a backup of etcd: the address of the server; the one that reaches the default gateway when not given.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    #[command(flatten)]
    pub member: MemberFlags,
}

#[derive(Subcommand, Clone, Debug)]
pub enum StoreCommand {
    /// Write everything to one file; the cluster may run meanwhile.
    Backup(BackupOptions),
    /// Make a new data folder from a backup; an existing store is never touched.
    Restore(RestoreOptions),
    /// Move the state of a stopped cluster to the other engine, with all revisions; the source is kept.
    Migrate(Box<MigrateOptions>),
    /// Read everything and say whether it is whole.
    Check {
        /// Look at this backup instead of the store.
        #[arg(long, value_name = "FILE")]
        backup: Option<PathBuf>,
    },
    /// Show the changes of one key that are still kept, oldest first.
    History {
        /// Such as /registry/pods/default/web-1.
        key: String,
        /// Print the values too; those of Secrets may be readable.
        #[arg(long)]
        values: bool,
    },
}

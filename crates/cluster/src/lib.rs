//! The machines of a cluster: which certificates they have, what each of them starts and in which order, how they join and leave,
//! how the cluster is backed up, and how several run on one machine.
//!
//! It sees the client side, the server side and the node side, and puts them together. Commands and their flags are the binary's;
//! here are the flags of a machine only, which become a checked configuration in `config`.

#[macro_use]
pub mod output;

pub mod backup;
pub mod cluster;
pub mod cluster_dns;
pub mod clusters;
pub mod command_line;
pub mod component;
pub mod config;
pub mod container_runtime;
pub mod control_plane;
pub mod fleet;
pub mod folders;
pub mod gateway;
pub mod insight;
pub mod kubeconfig;
pub mod kubelet_options;
pub mod labels;
pub mod local_path;
pub mod log;
pub mod migration;
pub mod node;
pub mod options;
pub mod pki_plan;
pub mod process;
pub mod quorum;
pub mod ranges;
pub mod signals;

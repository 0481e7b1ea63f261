//! Clusters of several nodes on one machine: `ferry cluster`.
//!
//! Each node is a set of namespaces (network, mounts, process ids, host name) with `init` as its first process, which runs an
//! ordinary `ferry run` or `ferry node run` in it. What a node mounts, starts and filters lives in its namespaces and ends with
//! its first process; beside them a cluster has a bridge, one table of packet rules and control groups on the host.

pub mod file;
pub mod host;
pub mod init;
pub mod kubeconfig;
pub mod machine;
pub mod plan;

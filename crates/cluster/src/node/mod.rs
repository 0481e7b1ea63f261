//! What a node of this machine needs around its kubelet: a container runtime of its own, a pod network, clean removal.

pub mod containerd;
pub mod descriptors;
pub mod dns_process;
pub mod embedded;
mod exited;
pub mod manifests;
pub mod network;
pub mod places;
pub mod program_memory;
pub mod remove;
pub mod resolver;
pub mod tools;
pub mod unit;

//! Machines that join a cluster: what a server publishes for them, the token, and the steps from a token to a node.

pub mod approval;
pub mod certificates;
pub mod discover;
pub mod drain;
pub mod join;
pub mod leaving;
pub mod membership;
pub mod node;
pub mod publish;
pub mod servers;
pub mod settings;
pub mod token;
pub mod told;

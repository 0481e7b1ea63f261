//! One file per command.

pub mod apiserver;
pub mod backup;
pub mod cluster;
pub mod completion;
pub mod controller_manager;
pub mod dns;
pub mod down;
pub mod gateway;
pub mod join;
pub mod kubectl;
pub mod kubelet;
pub mod leave;
pub mod node;
pub mod nodes;
pub mod object;
pub mod proxy;
pub mod run;
pub mod scheduler;
pub mod secrets;
pub mod server;
pub mod simulate;
pub mod store;
pub mod token;
pub mod trace;
pub mod up;
pub mod why;

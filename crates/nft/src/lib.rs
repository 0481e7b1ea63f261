//! The packet rules of a machine that others share: changes as one transaction (`run`), word of what others change (`watch`),
//! and pods' packets let through where others drop what they do not know (`foreign`, `legacy`). `guard` keeps all of it.
//! `ports` tells which pod is at which port of a bridge.
//!
//! Must not depend on any other crate of Ferry but `tasks`.

mod foreign;
mod guard;
mod legacy;
mod local;
pub mod netlink;
mod ports;
mod run;
pub mod wait;
mod watch;

pub use foreign::Passage;
pub use guard::{Guard, Guarded, Repaired, remove};
pub use legacy::Legacy;
pub use local::local_addresses;
pub use ports::{Port, bridge_ports};
pub use run::{Nft, NftError};
pub use watch::{Changed, Pace, Watch};

#[cfg(test)]
mod kernel_tests;

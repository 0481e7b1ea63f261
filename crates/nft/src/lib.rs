//! The packet rules of a machine that others share: changes as one transaction (`transaction`, `element`), through the program
//! `nft` or straight to the kernel (`run`, `writer`), word of what others change (`watch`),
//! and pods' packets let through where others drop what they do not know (`foreign`, `legacy`). `guard` keeps all of it.
//! `ports` tells which pod is at which port of a bridge, `room` how many rules a namespace may have.
//!
//! Must not depend on any other crate of Ferry but `tasks`.

mod element;
mod foreign;
mod guard;
mod legacy;
mod local;
pub mod netlink;
mod ports;
mod room;
mod run;
mod transaction;
pub mod wait;
mod watch;
mod writer;

pub use element::{Device, Element, Part, Protocol, Value, Verdict};
pub use foreign::Passage;
pub use guard::{Guard, Guarded, RemoveError, Repaired, remove};
pub use legacy::{Legacy, LegacyError};
pub use local::local_addresses;
pub use ports::{Port, bridge_ports};
pub use room::Room;
pub use run::{Nft, NftError};
pub use transaction::{Elements, Family, Transaction, Verb};
pub use watch::{Changed, Pace, Watch};
pub use writer::Writer;

#[cfg(test)]
mod equality_tests;
#[cfg(test)]
mod kernel_tests;

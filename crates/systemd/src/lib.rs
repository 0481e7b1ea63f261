//! systemd as the owner of control groups: slices and scopes by D-Bus, what their names mean, and which property keeps what a
//! file of a control group says.
//!
//! The kubelet makes slices, the embedded runtime scopes; the kubelet's watch for shutdowns speaks to logind by the same bus.
//! Must not depend on any other Ferry crate.

pub mod bus;
pub mod properties;
pub mod slices;
mod units;
mod wire;

pub use units::{Systemd, SystemdError, scope, slice};
pub use wire::{ANSWER, CALL, ERROR, Message, Property, PropertyValue, SIGNAL, Value, encode};

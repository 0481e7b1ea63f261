//! From a pod's spec to what the runtime is told: sandbox and container configurations.
//!
//! Everything here is computed from its arguments; files and requests are others' work.

pub(crate) mod apparmor;
pub(crate) mod container;
pub(crate) mod dns;
pub(crate) mod env;
pub(crate) mod env_file;
pub(crate) mod fields;
pub(crate) mod hosts;
pub(crate) mod resources;
pub(crate) mod room;
pub(crate) mod sandbox;
pub(crate) mod security;
pub(crate) mod services;

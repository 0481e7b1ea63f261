//! The audit's attacks, against the real binary: a limited user's token, hostile pods, hostile bytes.
//!
//! Each file is one area and lists its scenarios itself. After an attack others are served, memory is bounded, nothing is
//! lost and the process is the same.

mod bodies;
mod connections;
mod escape;
mod events;
mod files;
mod frames;
mod growth;
mod images;
pub mod limited;
mod loopback;
mod node;
mod numbers;
mod promises;
mod proxies;
mod raw;
mod restriction;
mod rights;
mod services;
mod tls;

use super::{Alone, Scenario};

/// On the cluster that all scenarios share.
pub const SCENARIOS: &[&[Scenario]] = &[
    node::SCENARIOS,
    numbers::SCENARIOS,
    files::SCENARIOS,
    frames::SCENARIOS,
    growth::SCENARIOS,
    images::SCENARIOS,
    connections::SCENARIOS,
    services::SCENARIOS,
    promises::SCENARIOS,
    escape::SCENARIOS,
    loopback::SCENARIOS,
];

/// With an API server or a command of their own.
pub const ALONE: &[&[Alone]] = &[
    proxies::ALONE,
    restriction::ALONE,
    rights::ALONE,
    connections::ALONE,
    services::ALONE,
    promises::ALONE,
    bodies::ALONE,
    tls::ALONE,
    events::ALONE,
    numbers::ALONE,
    escape::ALONE,
];

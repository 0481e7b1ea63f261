//! The audit's attacks, against the real binary: a limited user's token, hostile pods, hostile bytes.
//!
//! Each file is one area and lists its scenarios itself. After an attack others are served, memory is bounded, nothing is
//! lost and the process is the same.

mod files;
mod images;
mod limited;
mod node;
mod proxies;
mod restriction;
mod rights;

use super::{Alone, Scenario};

/// On the cluster that all scenarios share.
pub const SCENARIOS: &[&[Scenario]] = &[node::SCENARIOS, files::SCENARIOS, images::SCENARIOS];

/// With an API server or a command of their own.
pub const ALONE: &[&[Alone]] = &[proxies::ALONE, restriction::ALONE, rights::ALONE];

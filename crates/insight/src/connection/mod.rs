//! Why a pod does not reach another pod or a Service: the way of a packet, step by step, to the first thing that stops it.
//!
//! `gather` reads a [`Scene`], `walk` is pure. What cannot be known from objects is said to be unknown.

mod gather;
mod policies;
mod ports;
mod render;
mod steps;
mod target;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::why::Finding;

pub use gather::look;
pub use render::{render, to_json};
pub use target::Target;

/// Everything that a way is found out from. None: it could not be read, and the notes say why.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    pub(crate) source: Value,
    pub(crate) target: Target,
    /// The Service or pod, where it is there.
    pub(crate) object: Option<Value>,
    /// What `ferry why` says of the Service.
    pub(crate) of_service: Vec<Finding>,
    /// Pods of the target's namespace.
    pub(crate) pods: Option<Vec<Value>>,
    pub(crate) slices: Option<Vec<Value>>,
    /// Of both namespaces.
    pub(crate) policies: Option<Vec<Value>>,
    /// None of them where the cluster does not have the kind.
    pub(crate) cluster_policies: Option<Vec<Value>>,
    pub(crate) namespaces: Option<Vec<Value>>,
    pub(crate) nodes: Option<Vec<Value>>,
    /// The endpoints of the cluster's DNS.
    pub(crate) dns: Option<Vec<Value>>,
    pub(crate) unseen: Vec<String>,
    /// Other namespaces that have a Service or pod of the target's name, where it is not there.
    pub(crate) elsewhere: Vec<String>,
    /// The server did not answer everything that it was asked.
    pub is_cut: bool,
}

/// One part of the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub name: &'static str,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By this evidence.
    Passes(String),
    /// Nothing tells, and why.
    Unknown(String),
    Stopped(Box<Finding>),
}

/// The steps up to the first that stops the connection.
pub fn walk(scene: &Scene) -> Vec<Step> {
    let mut way = Vec::new();
    for (name, step) in steps::ALL {
        let Some(outcome) = step(scene) else { continue };
        let ends = matches!(outcome, Outcome::Stopped(_));
        way.push(Step { name, outcome });
        if ends {
            break;
        }
    }
    way
}

/// What stops it.
pub fn stopped(way: &[Step]) -> Option<&Finding> {
    way.iter().find_map(|step| match &step.outcome {
        Outcome::Stopped(finding) => Some(&**finding),
        _ => None,
    })
}

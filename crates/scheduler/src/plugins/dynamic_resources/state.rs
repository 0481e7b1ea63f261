//! What one attempt to place a pod knows of its claims, and finds out node by node.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use parking_lot::Mutex;

use super::claims::{self, Readiness};
use super::extended::{Extended, OnNode};
use crate::devices::{Devices, Limits, Matched, Request, Snapshot, Trouble, WishError, Wishes, allocate};
use crate::framework::Rejection;
use crate::model::labels::NodeRequirement;
use crate::model::{NodeInfo, PodInfo};

/// A request with several possibilities scores so much for the first of them.
const BEST_POSSIBILITY: i64 = 8;

pub(super) struct StateData {
    /// All claims that the pod names, with where those that have devices can be used.
    pub(super) claims: Vec<(Arc<ResourceClaim>, Option<NodeRequirement>)>,
    pub(super) extended: Option<Extended>,
    devices: Arc<Devices>,
    snapshot: Snapshot,
    until: Option<Instant>,
    binding_timeout: Duration,
    /// What is asked for, by the resources that devices have to stand in for: that differs from node to node.
    variants: Mutex<HashMap<Vec<String>, Arc<Variant>>>,
    found: Mutex<HashMap<Arc<str>, Outcome>>,
    /// Claims that have devices which are of no use on some node.
    pub(super) unavailable: Mutex<BTreeSet<usize>>,
}

pub(super) struct Variant {
    wishes: Result<Wishes, WishError>,
    matched: Mutex<Matched>,
    /// The claim for extended resources, after those that the pod names.
    pub(super) extended: Option<OnNode>,
}

/// What the claims without devices get on a node.
#[derive(Clone)]
pub(super) struct Outcome {
    pub(super) allocations: Vec<AllocationResult>,
    pub(super) variant: Arc<Variant>,
}

impl StateData {
    pub(super) fn new(
        pod: &PodInfo,
        claims: Vec<Arc<ResourceClaim>>,
        extended: Option<Extended>,
        devices: &Arc<Devices>,
        timeouts: (Duration, Duration),
    ) -> Result<Self, Rejection> {
        let mut known = Vec::new();
        for claim in claims {
            let usable = match claims::allocation(&claim) {
                Some(allocation) => {
                    allocation.node_selector.as_ref().map(|selector| NodeRequirement::new(None, Some(selector)))
                }
                None => {
                    may_be_allocated(pod, &claim, devices).map_err(Rejection::firm)?;
                    None
                }
            };
            known.push((claim, usable));
        }
        let (filter_timeout, binding_timeout) = timeouts;
        Ok(Self {
            claims: known,
            extended,
            snapshot: devices.snapshot(),
            devices: devices.clone(),
            until: (!filter_timeout.is_zero()).then(|| Instant::now() + filter_timeout),
            binding_timeout,
            variants: Mutex::default(),
            found: Mutex::default(),
            unavailable: Mutex::default(),
        })
    }

    pub(super) fn to_allocate(&self) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.claims.iter().map(|(claim, _)| claim).filter(|claim| claims::allocation(claim).is_none())
    }

    /// Whether one of several possibilities may be found on one node and another on the next.
    pub(super) fn has_preferences(&self) -> bool {
        let variants = self.variants.lock();
        variants.values().any(|variant| variant.wishes.as_ref().is_ok_and(Wishes::has_preferences))
    }

    fn variant(&self, resources: Vec<String>) -> Arc<Variant> {
        let mut variants = self.variants.lock();
        if let Some(known) = variants.get(&resources) {
            return known.clone();
        }
        let extended = self.extended.as_ref().filter(|_| !resources.is_empty());
        let extended = extended.map(|extended| extended.on_node(&resources, &self.devices));
        let all: Vec<Arc<ResourceClaim>> =
            self.to_allocate().cloned().chain(extended.as_ref().map(|on_node| on_node.claim.clone())).collect();
        let class = |name: &str| self.devices.classes.get("", name);
        let wishes = Wishes::new(&all, &class, &self.devices.selectors);
        let variant = Arc::new(Variant { wishes, matched: Mutex::default(), extended });
        variants.insert(resources, variant.clone());
        variant
    }

    pub(super) fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        let resources = match &self.extended {
            Some(extended) => extended.missing(node, &self.devices).map_err(Rejection::firm)?,
            None => Vec::new(),
        };
        if self.claims.is_empty() && resources.is_empty() {
            return Ok(());
        }
        let mut unavailable = Vec::new();
        for (number, (claim, usable)) in self.claims.iter().enumerate() {
            let here = usable.as_ref().is_none_or(|usable| usable.matches(&node.name, &node.labels));
            if !here || (claims::allocation(claim).is_some() && !self.may_wait(claim)) {
                unavailable.push(number);
            }
        }
        let outcome = self.allocate(resources, node)?;
        if !unavailable.is_empty() {
            self.unavailable.lock().extend(unavailable);
            return Err(Rejection::firm("resourceclaim not available on the node"));
        }
        if let Some(outcome) = outcome {
            self.found.lock().insert(node.name.clone(), outcome);
        }
        Ok(())
    }

    /// Devices that failed to become ready are of no use on any node.
    fn may_wait(&self, claim: &ResourceClaim) -> bool {
        match claims::readiness(claim) {
            Readiness::Ready => true,
            Readiness::Waiting => !claims::is_overdue(claim, self.binding_timeout),
            Readiness::Failed(_) => false,
        }
    }

    fn allocate(&self, resources: Vec<String>, node: &NodeInfo) -> Result<Option<Outcome>, Rejection> {
        if resources.is_empty() && self.to_allocate().next().is_none() {
            return Ok(None);
        }
        let variant = self.variant(resources);
        let wishes = variant.wishes.as_ref().map_err(|error| Rejection::error(error.to_string()))?;
        let request = Request { wishes, snapshot: &self.snapshot, node: &node.name, labels: &node.labels };
        let limits = Limits { until: self.until, ..Limits::default() };
        let found = allocate(request, &mut variant.matched.lock(), limits);
        match found {
            Ok(Some(allocations)) => Ok(Some(Outcome { allocations, variant: variant.clone() })),
            Ok(None) => Err(Rejection::firm("cannot allocate all claims")),
            Err(Trouble::Here(message)) => Err(Rejection::firm(message)),
            Err(Trouble::Fatal(message)) => Err(Rejection::error(message)),
            Err(Trouble::Exhausted) => {
                Err(Rejection::error(format!("node {}: timed out trying to allocate devices", node.name)))
            }
        }
    }

    /// What was found for the node that was chosen; nothing where no claim needs anything there.
    pub(super) fn found(&self, node: &str) -> Option<Outcome> {
        self.found.lock().get(node).cloned()
    }

    /// Higher where requests get what they would rather have.
    pub(super) fn score(&self, node: &str) -> i64 {
        let Some(outcome) = self.found(node) else { return 0 };
        let mut fresh = outcome.allocations.iter();
        self.claims
            .iter()
            .filter_map(|(claim, _)| Some((claim, claims::allocation(claim).or_else(|| fresh.next())?)))
            .map(|(claim, allocation)| preference(claim, allocation))
            .sum()
    }
}

fn preference(claim: &ResourceClaim, allocation: &AllocationResult) -> i64 {
    let mut score = 0;
    for request in claims::requests(claim) {
        for (place, possibility) in (0_i64..).zip(request.first_available.iter().flatten()) {
            let name = format!("{}/{}", request.name, possibility.name);
            if claims::results(allocation).any(|result| result.request == name) {
                score += BEST_POSSIBILITY - place;
            }
        }
    }
    score
}

/// Nothing is against giving devices to the claim, as far as that can be told without looking at nodes.
fn may_be_allocated(pod: &PodInfo, claim: &ResourceClaim, devices: &Devices) -> Result<(), String> {
    let name = format!("{}/{}", pod.namespace, claim.metadata.name.as_deref().unwrap_or_default());
    if devices.is_pending(claim) {
        return Err(format!("resource claim {name} is in the process of being allocated"));
    }
    let known = |request: &str, class: &str| match devices.classes.get("", class) {
        Some(_) => Ok(()),
        None => Err(format!("request {request}: device class {class} does not exist")),
    };
    for request in claims::requests(claim) {
        let several = request.first_available.as_deref().unwrap_or_default();
        match &request.exactly {
            Some(exact) => known(&request.name, &exact.device_class_name)?,
            None if several.is_empty() => {
                return Err(format!("resource claim {name}, request {}: unknown request type", request.name));
            }
            None => {
                for one in several {
                    known(&format!("{}/{}", request.name, one.name), &one.device_class_name)?;
                }
            }
        }
    }
    Ok(())
}

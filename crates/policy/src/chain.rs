//! The chain that packets of one pod take in one direction: the Admin tier of ClusterNetworkPolicies, then the pod's
//! NetworkPolicies, then, where there are none of those, the Baseline tier.

use std::net::IpAddr;
use std::sync::Arc;

use crate::compile::{At, Clause, Compiled, Who, digest, readable};
use crate::policy::{Action, Direction, Protocol};
use crate::selection::Selections;
use crate::table::Element;

#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) name: Arc<str>,
    pub(crate) rules: Arc<[String]>,
    admin: Option<Arc<Compiled>>,
    /// In the order of their names.
    policies: Vec<Arc<Compiled>>,
    baseline: Option<Arc<Compiled>>,
}

/// A connection as one of its ends sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// The other end.
    pub(crate) peer: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

/// That a connection is dropped, and by which ClusterNetworkPolicy; none: no NetworkPolicy allows it.
#[derive(Clone, Debug)]
pub(crate) struct Denial {
    pub(crate) by: Option<Arc<str>>,
}

impl Chain {
    /// None where nothing is decided: the pod is not isolated.
    pub(crate) fn new(
        direction: Direction,
        admin: Option<Arc<Compiled>>,
        policies: Vec<(String, Arc<Compiled>)>,
        baseline: Option<Arc<Compiled>>,
    ) -> Option<Arc<Self>> {
        // NetworkPolicies decide everything, and leave nothing to others.
        let baseline = baseline.filter(|_| policies.is_empty());
        if policies.is_empty() && admin.is_none() && baseline.is_none() {
            return None;
        }
        let jump = |(policy, compiled): &(String, Arc<Compiled>)| {
            format!("jump {} comment \"{}\"", compiled.name, readable(policy))
        };
        let mut rules: Vec<String> = admin.iter().map(|tier| format!("jump {}", tier.name)).collect();
        rules.extend(policies.iter().map(jump));
        if !policies.is_empty() {
            rules.push("drop".to_owned());
        }
        rules.extend(baseline.iter().map(|tier| format!("jump {}", tier.name)));
        let prefix = match direction {
            Direction::Ingress => "ingress-",
            Direction::Egress => "egress-",
        };
        let name = digest(prefix, &rules.join("\n"));
        let policies = policies.into_iter().map(|(_, one)| one).collect();
        Some(Arc::new(Self { name, rules: rules.into(), admin, policies, baseline }))
    }

    /// The chains that it jumps to.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Arc<Compiled>> {
        self.admin.iter().chain(&self.policies).chain(&self.baseline)
    }

    /// As the kernel decides: None lets it pass.
    pub(crate) fn denies(&self, packet: Packet, selections: &Selections) -> Option<Denial> {
        let decide = |tier: &Option<Arc<Compiled>>| {
            let clauses = tier.iter().flat_map(|tier| tier.clauses.iter());
            clauses.into_iter().find(|clause| clause.fits(packet, selections)).cloned()
        };
        match decide(&self.admin) {
            Some(Clause { action: Action::Accept, .. }) => return None,
            Some(Clause { action: Action::Deny, by, .. }) => return Some(Denial { by }),
            Some(Clause { action: Action::Pass, .. }) | None => {}
        }
        if !self.policies.is_empty() {
            let mut clauses = self.policies.iter().flat_map(|one| &one.clauses);
            return (!clauses.any(|clause| clause.fits(packet, selections))).then_some(Denial { by: None });
        }
        decide(&self.baseline).filter(|clause| clause.action == Action::Deny).map(|clause| Denial { by: clause.by })
    }
}

impl Clause {
    fn fits(&self, packet: Packet, selections: &Selections) -> bool {
        let Packet { peer, to, protocol, port } = packet;
        let who = match &self.who {
            Who::Anyone => true,
            Who::Pods(selector) => selections.contains(selector, &Element { address: peer, port: None }),
            Who::Block { range, except } => range.contains(&peer) && !except.iter().any(|one| one.contains(&peer)),
        };
        who && match &self.at {
            At::Anything => true,
            At::Ports(wanted, ranges) => {
                let fits = |(first, last): &(u16, u16)| (*first..=*last).contains(&port);
                *wanted == protocol && (ranges.is_empty() || ranges.iter().any(fits))
            }
            At::Named(wanted, selector) => {
                *wanted == protocol && selections.contains(selector, &Element { address: to, port: Some(port) })
            }
        }
    }
}

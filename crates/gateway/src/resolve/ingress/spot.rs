//! Where Ingresses want requests from: a host, a path, and how the path is meant. The oldest that wants it has it; canaries of its
//! namespace take a part.

use std::sync::Arc;

use super::super::conditions::Problem;
use super::super::expressions::Budget;
use super::entries::{Common, entries};
use super::member::{Member, Order};
use crate::table::{Hostname, Rules, Specificity, Target, specificity};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    pub hostname: Option<Hostname>,
    pub path: Box<str>,
    /// The type of the path, or [`Spot::DEFAULT`].
    pub kind: Box<str>,
}

impl Spot {
    /// Of a default backend.
    pub const DEFAULT: &str = "Default";

    /// What stands before all others of a host.
    pub fn first(host: &Hostname) -> Self {
        Self { hostname: Some(host.clone()), path: "".into(), kind: "".into() }
    }

    pub fn is_default(&self) -> bool {
        *self.kind == *Self::DEFAULT
    }

    /// What is for no path in particular comes last.
    pub fn specificity(&self) -> Specificity {
        if self.is_default() { (false, 0) } else { specificity(self.hostname.as_ref()) }
    }
}

/// An Ingress that wants a spot.
pub struct Claim {
    /// Of equals of one Ingress the first goes first.
    pub order: (Order, usize),
    pub common: Arc<Common>,
    pub target: Target,
}

impl Claim {
    fn is_canary(&self) -> bool {
        self.common.annotations.canary.is_some()
    }
}

/// All that want a spot, and what came of it.
#[derive(Default)]
pub struct Claims {
    /// In their order.
    pub list: Vec<Claim>,
    /// The rules at the plain port and at the one with TLS, as they are in the tables.
    pub rules: Option<(Rules, Rules)>,
    /// Who had it when the rules were made, and why there are none.
    had_by: Option<(Order, usize)>,
    problem: Option<Problem>,
}

impl Claims {
    pub fn insert(&mut self, claim: Claim) {
        let place = self.list.partition_point(|known| known.order <= claim.order);
        self.list.insert(place, claim);
    }

    pub fn remove(&mut self, order: &Order) {
        self.list.retain(|claim| claim.order.0 != *order);
    }

    /// Whose it is: canaries stand behind all others.
    fn main(&self) -> Option<&Claim> {
        self.list.first().filter(|first| !first.is_canary())
    }

    /// Makes the rules, and says whether somebody else has the spot now.
    pub fn make(&mut self, budget: &Budget<'_>, spot: &Spot, has_tls: bool) -> bool {
        let Some(main) = self.main() else {
            (self.rules, self.problem) = (None, None);
            return self.had_by.take().is_some();
        };
        // Nobody takes requests from another namespace's Ingress.
        let is_beside = |claim: &&Claim| claim.is_canary() && claim.common.namespace() == main.common.namespace();
        let canaries: Vec<_> = self.list.iter().filter(is_beside).collect();
        let made = entries(budget, spot, main, &canaries, has_tls);
        let by = Some(main.order.clone());
        (self.rules, self.problem) = match made {
            Ok((plain, secure)) => (Some((crate::table::rules(plain), crate::table::rules(secure))), None),
            Err(problem) => (None, Some(problem)),
        };
        std::mem::replace(&mut self.had_by, by.clone()) != by
    }

    /// Why a path of an Ingress is not served as it asks for.
    pub fn trouble(&self, member: &Member, place: usize, spot: &Spot) -> Option<(&'static str, String)> {
        let (main, path) = (self.main(), &spot.path);
        if member.common.annotations.canary.is_some() {
            let is_beside = main.is_some_and(|main| main.common.namespace() == member.namespace());
            return (!is_beside).then(|| {
                let text = format!(
                    "there is no other Ingress for {path} in its namespace: a canary needs one to take requests from"
                );
                ("CanaryWithoutMain", text)
            });
        }
        let main = main?;
        if main.order.0 != member.order {
            let text = format!("an older Ingress has {path} of this host already: it is not served from here");
            return Some(("PathTaken", text));
        }
        let problem = self.problem.as_ref().filter(|_| main.order.1 == place)?;
        Some(("InvalidPath", problem.message.clone()))
    }
}

//! Role-based access control over an in-memory index that follows the roles and bindings of the cluster.

mod aggregate;
mod covers;
mod escalation;
mod index;
mod rule;

use std::sync::Arc;

use arc_swap::ArcSwap;
use ferry_meta::{ObjectReader, UserInfo};
use parking_lot::Mutex;

pub use aggregate::aggregated_rules;
pub use covers::{compact, uncovered};
pub use escalation::{changes_only_references, check_write};
pub use index::RoleError;
pub use rule::{PolicyRule, rules_of};

use crate::authorize::{Attributes, Authorizer, Decision};
use crate::chain::aggregate as aggregate_errors;
use index::Index;

pub struct Rbac {
    reader: Arc<dyn ObjectReader>,
    index: ArcSwap<Index>,
    building: Mutex<()>,
}

/// What a SelfSubjectRulesReview answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleList {
    pub rules: Vec<PolicyRule>,
    /// Errors met on the way, such as roles that are missing.
    pub errors: Vec<String>,
}

impl Rbac {
    pub fn new(reader: Arc<dyn ObjectReader>) -> Self {
        let index = ArcSwap::from_pointee(Index::build(&*reader));
        Self { reader, index, building: Mutex::new(()) }
    }

    /// The index as of now: one load and four comparisons unless something changed.
    fn index(&self) -> Arc<Index> {
        let current = self.index.load_full();
        if current.versions == index::versions(&*self.reader) {
            return current;
        }
        let _one_builder = self.building.lock();
        let current = self.index.load_full();
        if current.versions == index::versions(&*self.reader) {
            return current;
        }
        let fresh = Arc::new(Index::build(&*self.reader));
        self.index.store(fresh.clone());
        fresh
    }

    pub fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let index = self.index();
        // Bindings in a namespace never reach plain paths.
        let namespace = if attributes.is_resource { attributes.namespace } else { "" };
        let mut errors = Vec::new();
        for binding in index.bindings(attributes.user, namespace) {
            match &binding.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    return Decision::Allow { reason: binding.reason(attributes.user) };
                }
                Ok(_) => {}
                Err(error) => errors.push(error.to_string()),
            }
        }
        if errors.is_empty() {
            Decision::no_opinion("")
        } else {
            Decision::no_opinion(format!("RBAC: {}", aggregate_errors(errors)))
        }
    }

    /// Everything a user may do in a namespace.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> RuleList {
        let mut list = RuleList::default();
        for binding in self.index().bindings(user, namespace) {
            match &binding.rules {
                Ok(rules) => list.rules.extend(rules.iter().cloned()),
                Err(error) => list.errors.push(error.to_string()),
            }
        }
        list
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub fn role_rules(&self, namespace: &str, kind: &str, name: &str) -> Result<Arc<Vec<PolicyRule>>, RoleError> {
        self.index().role_rules(namespace, kind, name)
    }
}

#[async_trait::async_trait]
impl Authorizer for Rbac {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.decide(attributes)
    }
}

#[cfg(test)]
mod tests;

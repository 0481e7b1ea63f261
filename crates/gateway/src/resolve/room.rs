//! How much memory the routes of a Gateway and those of a namespace may take in the tables. Who came first has it; who comes
//! too late is told, and let in as soon as there is room.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferry_client::ObjectKey;

use super::conditions::Problem;
use super::objects::Id;

const MIB: usize = 1 << 20;
/// The routes of one namespace, at all Gateways together: whoever may write there takes no more from the others.
const MOST_OF_NAMESPACE: usize = 64 * MIB;
/// The routes of all namespaces at one Gateway.
const MOST_OF_GATEWAY: usize = 256 * MIB;

type Weights = Box<[(Arc<ObjectKey>, usize)]>;

#[derive(Default)]
pub struct Room {
    /// What each route has.
    held: HashMap<Id, Weights>,
    namespaces: HashMap<String, usize>,
    gateways: HashMap<Arc<ObjectKey>, usize>,
    /// What each route that was refused asked for.
    refused: BTreeMap<Id, Weights>,
    /// Whether there is more room than when somebody was refused.
    has_more: bool,
}

fn sum(weights: &[(Arc<ObjectKey>, usize)]) -> usize {
    weights.iter().fold(0, |sum, (_, weight)| sum.saturating_add(*weight))
}

impl Room {
    fn refusal(&self, namespace: &str, weights: &[(Arc<ObjectKey>, usize)]) -> Option<Problem> {
        let is_over =
            |known: Option<&usize>, more: usize, most| known.map_or(0, |known| *known).saturating_add(more) > most;
        let problem = |whose: String, most: usize| {
            let message = format!("the routes of {whose} would take more than {} MiB", most / MIB);
            Some(Problem::new("TooManyRules", message))
        };
        if is_over(self.namespaces.get(namespace), sum(weights), MOST_OF_NAMESPACE) {
            return problem(format!("namespace {namespace}"), MOST_OF_NAMESPACE);
        }
        let full = weights.iter().find(|(key, weight)| is_over(self.gateways.get(key), *weight, MOST_OF_GATEWAY));
        full.and_then(|(key, _)| problem(format!("Gateway {key}"), MOST_OF_GATEWAY))
    }

    pub fn take(&mut self, id: &Id, weights: &Weights) -> Result<(), Problem> {
        self.give_back(id);
        if weights.is_empty() {
            return Ok(());
        }
        if let Some(problem) = self.refusal(&id.key.namespace, weights) {
            self.refused.insert(id.clone(), weights.clone());
            return Err(problem);
        }
        *self.namespaces.entry(id.key.namespace.clone()).or_default() += sum(weights);
        for (gateway, weight) in weights {
            *self.gateways.entry(gateway.clone()).or_default() += weight;
        }
        self.held.insert(id.clone(), weights.clone());
        Ok(())
    }

    pub fn give_back(&mut self, id: &Id) {
        self.refused.remove(id);
        let Some(weights) = self.held.remove(id) else { return };
        self.has_more = true;
        if let Some(known) = self.namespaces.get_mut(&id.key.namespace) {
            *known = known.saturating_sub(sum(&weights));
            if *known == 0 {
                self.namespaces.remove(&id.key.namespace);
            }
        }
        for (gateway, weight) in &weights {
            if let Some(known) = self.gateways.get_mut(gateway) {
                *known = known.saturating_sub(*weight);
                if *known == 0 {
                    self.gateways.remove(gateway);
                }
            }
        }
    }

    /// Those of the refused that fit, one beside the other.
    pub fn admissible(&mut self) -> Vec<Id> {
        if !std::mem::take(&mut self.has_more) || self.refused.is_empty() {
            return Vec::new();
        }
        let mut fitting = Vec::new();
        for (id, weights) in std::mem::take(&mut self.refused) {
            // Otherwise it is among the refused again.
            if self.take(&id, &weights).is_ok() {
                fitting.push(id);
            }
        }
        for id in &fitting {
            self.give_back(id);
        }
        self.has_more = false;
        fitting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(namespace: &str, name: &str) -> Id {
        Id { key: ObjectKey::new(namespace, name), kind: "HTTPRoute" }
    }

    #[test]
    fn who_came_first_has_the_room_until_it_goes() {
        let mut room = Room::default();
        let at = |name: &str, mib: usize| (Arc::new(ObjectKey::new("n", name)), mib * MIB);
        let of = |list: &[(Arc<ObjectKey>, usize)]| -> Weights { list.into() };
        let told = |taken: Result<(), Problem>| taken.err().map(|problem| problem.message).unwrap_or_default();
        assert_eq!(told(room.take(&id("a", "1"), &of(&[at("g", 40)]))), "");
        assert_eq!(
            told(room.take(&id("a", "2"), &of(&[at("g", 20), at("h", 20)]))),
            "the routes of namespace a would take more than 64 MiB"
        );
        assert_eq!(told(room.take(&id("a", "3"), &of(&[at("g", 24)]))), "");
        for namespace in ["b", "c", "d"] {
            assert_eq!(told(room.take(&id(namespace, "1"), &of(&[at("g", 64)]))), "");
        }
        assert_eq!(
            told(room.take(&id("e", "1"), &of(&[at("g", 1)]))),
            "the routes of Gateway n/g would take more than 256 MiB"
        );
        assert_eq!(told(room.take(&id("e", "2"), &of(&[at("h", 1)]))), "");
        assert_eq!(room.admissible(), Vec::new());
        room.give_back(&id("a", "3"));
        assert_eq!(room.admissible(), [id("a", "2"), id("e", "1")][1..], "the first of them is still too large");
        room.give_back(&id("a", "1"));
        assert_eq!(room.admissible(), [id("a", "2")]);
    }

    #[test]
    fn nothing_is_left_of_those_who_went() {
        let mut room = Room::default();
        let weights: Weights = [(Arc::new(ObjectKey::new("n", "g")), 5)].into();
        room.take(&id("a", "1"), &weights).expect("there is room");
        room.take(&id("a", "1"), &weights).expect("there is room");
        assert_eq!(room.namespaces["a"], 5);
        room.give_back(&id("a", "1"));
        assert!(room.held.is_empty() && room.namespaces.is_empty() && room.gateways.is_empty());
    }
}

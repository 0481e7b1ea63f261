//! How much memory the routes of a Gateway and those of a namespace may take in the tables. Who has room keeps it; who asks for
//! too much is told, and let in as soon as there is room. However many namespaces take all that they can get at a Gateway, there is
//! room for the next one.

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
pub const QUARTER: usize = 4;

/// What one of several users of a place may have: such a part of what the others leave. The first has most, and no number of them
/// fills the place.
pub fn share(all: usize, others: usize, part: usize) -> usize {
    all.saturating_sub(others) / part
}

type Weights = Box<[(Arc<ObjectKey>, usize)]>;

#[derive(Default)]
pub struct Room {
    /// What each route has.
    held: HashMap<Id, Weights>,
    namespaces: HashMap<String, usize>,
    gateways: HashMap<Arc<ObjectKey>, Taken>,
    /// What each route that was refused asked for.
    refused: BTreeMap<Id, Weights>,
    /// Whether there is more room than when somebody was refused.
    has_more: bool,
}

/// What is taken of one Gateway.
#[derive(Default)]
struct Taken {
    all: usize,
    namespaces: HashMap<String, usize>,
}

impl Taken {
    fn of(&self, namespace: &str) -> usize {
        self.namespaces.get(namespace).map_or(0, |known| *known)
    }
}

fn sum(weights: &[(Arc<ObjectKey>, usize)]) -> usize {
    weights.iter().fold(0, |sum, (_, weight)| sum.saturating_add(*weight))
}

impl Room {
    /// `had` is what the route had until now. A change that takes no more is never refused: others came meanwhile, and nobody loses
    /// a route by them.
    fn refusal(
        &self,
        namespace: &str,
        weights: &[(Arc<ObjectKey>, usize)],
        had: &[(Arc<ObjectKey>, usize)],
    ) -> Option<Problem> {
        let of_namespace = self.namespaces.get(namespace).map_or(0, |known| *known);
        let more = sum(weights);
        if more > sum(had) && of_namespace.saturating_add(more) > MOST_OF_NAMESPACE {
            let most = MOST_OF_NAMESPACE / MIB;
            let message = format!("the routes of namespace {namespace} would take more than {most} MiB");
            return Some(Problem::new("TooManyRules", message));
        }
        let is_over = |(key, weight): &&(Arc<ObjectKey>, usize)| {
            let had = had.iter().find(|(known, _)| known == key).map_or(0, |(_, had)| *had);
            let own = self.gateways.get(key).map_or(0, |taken| taken.of(namespace));
            *weight > had && own.saturating_add(*weight) > self.share(key, namespace)
        };
        let (key, _) = weights.iter().find(is_over)?;
        let (most, all) = (self.share(key, namespace) / 1024, MOST_OF_GATEWAY / MIB);
        let message = format!(
            "the routes of namespace {namespace} would take more than {most} KiB of Gateway {key}: a quarter of what those of other namespaces leave of {all} MiB"
        );
        Some(Problem::new("TooManyRules", message))
    }

    fn share(&self, gateway: &ObjectKey, namespace: &str) -> usize {
        let others = self.gateways.get(gateway).map_or(0, |taken| taken.all - taken.of(namespace));
        share(MOST_OF_GATEWAY, others, QUARTER)
    }

    /// Gives the route this room in the place of what it had. Who is refused keeps that, until [`Room::keep`] says what of it is
    /// still in use.
    pub fn take(&mut self, id: &Id, weights: &Weights) -> Result<(), Problem> {
        let had_more = self.has_more;
        let had = self.give_back(id);
        let Some(problem) = self.refusal(&id.key.namespace, weights, &had) else {
            self.hold(id, weights);
            return Ok(());
        };
        self.refused.insert(id.clone(), weights.clone());
        self.hold(id, &had);
        self.has_more = had_more;
        Err(problem)
    }

    /// What a route that was refused goes on with: an older form of it, as long as that takes no more than it had or there is room
    /// for it, or nothing. Whether it goes on. It is among the refused as before.
    pub fn keep(&mut self, id: &Id, weights: &Weights) -> bool {
        let refused = self.refused.remove(id);
        let had = self.give_back(id);
        let fits = self.refusal(&id.key.namespace, weights, &had).is_none();
        if fits {
            self.hold(id, weights);
        }
        self.refused.extend(refused.map(|weights| (id.clone(), weights)));
        fits
    }

    pub fn is_refused(&self, id: &Id) -> bool {
        self.refused.contains_key(id)
    }

    fn hold(&mut self, id: &Id, weights: &Weights) {
        if weights.is_empty() {
            return;
        }
        let namespace = &id.key.namespace;
        *self.namespaces.entry(namespace.clone()).or_default() += sum(weights);
        for (gateway, weight) in weights {
            let taken = self.gateways.entry(gateway.clone()).or_default();
            taken.all += weight;
            *taken.namespaces.entry(namespace.clone()).or_default() += weight;
        }
        self.held.insert(id.clone(), weights.clone());
    }

    /// The route has no room any more, and asks for none; returns what it had.
    pub fn give_back(&mut self, id: &Id) -> Weights {
        self.refused.remove(id);
        let Some(weights) = self.held.remove(id) else { return Weights::default() };
        self.has_more = true;
        let namespace = &id.key.namespace;
        lessen(&mut self.namespaces, namespace, sum(&weights));
        for (gateway, weight) in &weights {
            let Some(taken) = self.gateways.get_mut(gateway) else { continue };
            taken.all = taken.all.saturating_sub(*weight);
            lessen(&mut taken.namespaces, namespace, *weight);
            if taken.namespaces.is_empty() {
                self.gateways.remove(gateway);
            }
        }
        weights
    }

    /// Those of the refused that fit, one beside the other.
    pub fn admissible(&mut self) -> Vec<Id> {
        if !std::mem::take(&mut self.has_more) || self.refused.is_empty() {
            return Vec::new();
        }
        let mut fitting = Vec::new();
        for (id, weights) in std::mem::take(&mut self.refused) {
            let had = self.held.get(&id).cloned().unwrap_or_default();
            // Otherwise it is among the refused again.
            if self.take(&id, &weights).is_ok() {
                fitting.push((id, had));
            }
        }
        for (id, had) in &fitting {
            self.give_back(id);
            self.hold(id, had);
        }
        self.has_more = false;
        fitting.into_iter().map(|(id, _)| id).collect()
    }
}

fn lessen(amounts: &mut HashMap<String, usize>, of: &str, by: usize) {
    let Some(known) = amounts.get_mut(of) else { return };
    *known = known.saturating_sub(by);
    if *known == 0 {
        amounts.remove(of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(namespace: &str, name: &str) -> Id {
        Id { key: ObjectKey::new(namespace, name), kind: "HTTPRoute" }
    }

    fn at(name: &str, mib: usize) -> (Arc<ObjectKey>, usize) {
        (Arc::new(ObjectKey::new("n", name)), mib * MIB)
    }

    fn told(taken: Result<(), Problem>) -> String {
        taken.err().map(|problem| problem.message).unwrap_or_default()
    }

    #[test]
    fn who_came_first_has_the_room_until_it_goes() {
        let mut room = Room::default();
        let of = |list: &[(Arc<ObjectKey>, usize)]| -> Weights { list.into() };
        assert_eq!(told(room.take(&id("a", "1"), &of(&[at("g", 40)]))), "");
        assert_eq!(
            told(room.take(&id("a", "2"), &of(&[at("g", 20), at("h", 20)]))),
            "the routes of namespace a would take more than 64 MiB"
        );
        assert_eq!(told(room.take(&id("a", "3"), &of(&[at("g", 24)]))), "");
        assert_eq!(told(room.take(&id("b", "1"), &of(&[at("g", 48)]))), "", "a quarter of 192");
        assert_eq!(
            told(room.take(&id("c", "1"), &of(&[at("g", 37)]))),
            "the routes of namespace c would take more than 36864 KiB of Gateway n/g: a quarter of what those of other namespaces leave of 256 MiB"
        );
        assert_eq!(told(room.take(&id("c", "2"), &of(&[at("h", 37)]))), "");
        assert_eq!(room.admissible(), Vec::new());
        room.give_back(&id("a", "3"));
        assert_eq!(
            room.admissible(),
            [],
            "the first of them is still too large, the other has the namespace against it"
        );
        room.give_back(&id("c", "2"));
        assert_eq!(room.admissible(), [id("c", "1")]);
        room.give_back(&id("a", "1"));
        assert_eq!(room.admissible(), [id("a", "2")], "the other was told before");
    }

    #[test]
    fn no_number_of_namespaces_fills_a_gateway() {
        let mut room = Room::default();
        for greedy in 0..12 {
            let taken = (0..2000)
                .filter(|n| room.take(&id(&format!("g{greedy}"), &n.to_string()), &[at("g", 1)].into()).is_ok());
            assert!(taken.count() > 1, "{greedy}");
        }
        let small: Weights = [(Arc::new(ObjectKey::new("n", "g")), 64 << 10)].into();
        for next in 0..10 {
            for route in 0..4 {
                assert_eq!(told(room.take(&id(&format!("n{next}"), &route.to_string()), &small)), "", "{next}");
            }
        }
    }

    /// It could not have as much today.
    #[test]
    fn a_change_that_takes_no_more_is_not_refused() {
        let mut room = Room::default();
        let mine: Vec<_> = (0..6).map(|number| id("mine", &number.to_string())).collect();
        for one in &mine {
            assert_eq!(told(room.take(one, &[at("g", 10)].into())), "");
        }
        for (greedy, mib) in [("a", 49), ("b", 36), ("c", 27)] {
            assert_eq!(told(room.take(&id(greedy, "1"), &[at("g", mib)].into())), "");
        }
        for one in &mine {
            assert_eq!(told(room.take(one, &[at("g", 10)].into())), "");
        }
        assert_eq!(told(room.take(&mine[0], &[at("g", 9)].into())), "");
        assert!(room.take(&mine[1], &[at("g", 11)].into()).is_err());
    }

    #[test]
    fn who_asks_for_too_much_keeps_what_they_had() {
        let mut room = Room::default();
        let (mine, other) = (id("a", "mine"), id("a", "other"));
        assert_eq!(told(room.take(&mine, &[at("g", 10)].into())), "");
        assert_eq!(told(room.take(&other, &[at("g", 50)].into())), "");
        assert!(room.take(&mine, &[at("g", 20)].into()).is_err());
        assert!(
            room.take(&id("a", "late"), &[at("g", 5)].into()).is_err(),
            "the room is not lost to the next who comes"
        );
        // The form that is served may come to take less, but not more than there is room for.
        assert!(room.keep(&mine, &[at("g", 9)].into()) && room.is_refused(&mine));
        assert_eq!(room.namespaces["a"], 59 * MIB);
        assert!(!room.keep(&id("a", "late"), &[at("g", 6)].into()));
        assert_eq!(room.admissible(), [id("a", "late")]);
        assert_eq!((room.namespaces["a"], room.held.len()), (59 * MIB, 2), "to look changes nothing");
        room.give_back(&other);
        assert_eq!(room.admissible(), [id("a", "mine")]);
        assert_eq!(room.namespaces["a"], 9 * MIB);
        assert_eq!(told(room.take(&mine, &[at("g", 20)].into())), "");
        assert!(!room.is_refused(&mine) && room.namespaces["a"] == 20 * MIB);
        room.give_back(&mine);
        assert!(room.held.is_empty() && room.namespaces.is_empty() && room.gateways.is_empty());
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

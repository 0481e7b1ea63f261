//! How many rules and elements the objects of one namespace may stand for, since a few kilobytes can stand for millions. Who has room
//! keeps it. However many namespaces take all that they can get, there is room for the next one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// `namespace/name` of an object.
type Owner = Arc<str>;

/// A namespace may have such a part of what the others leave.
const PART: usize = 4;

pub struct Room {
    whole: usize,
    held: HashMap<Owner, usize>,
    namespaces: HashMap<Box<str>, usize>,
    all: usize,
    /// What each of those asked for that were refused.
    refused: BTreeMap<Owner, usize>,
    /// Whether there is more room than when somebody was refused.
    has_more: bool,
}

fn namespace(owner: &Owner) -> &str {
    owner.split_once('/').map_or("", |(namespace, _)| namespace)
}

impl Room {
    /// So much there is for all of them.
    pub fn new(whole: usize) -> Self {
        Self {
            whole,
            held: HashMap::new(),
            namespaces: HashMap::new(),
            all: 0,
            refused: BTreeMap::new(),
            has_more: false,
        }
    }

    fn fits(&self, owner: &Owner, weight: usize) -> bool {
        let own = self.namespaces.get(namespace(owner)).map_or(0, |known| *known);
        own.saturating_add(weight) <= self.whole.saturating_sub(self.all - own) / PART
    }

    /// Whether there is room. A change that takes no more than the object has is never refused: others came meanwhile.
    pub fn take(&mut self, owner: &Owner, weight: usize) -> bool {
        let had = self.remove(owner);
        if weight > had && !self.fits(owner, weight) {
            self.has_more |= had > 0;
            self.refused.insert(owner.clone(), weight);
            return false;
        }
        self.has_more |= weight < had;
        self.held.insert(owner.clone(), weight);
        *self.namespaces.entry(namespace(owner).into()).or_default() += weight;
        self.all += weight;
        true
    }

    pub fn give_back(&mut self, owner: &Owner) {
        let had = self.remove(owner);
        self.has_more |= had > 0;
    }

    fn remove(&mut self, owner: &Owner) -> usize {
        self.refused.remove(owner);
        let Some(had) = self.held.remove(owner) else { return 0 };
        self.all -= had;
        if let Some(known) = self.namespaces.get_mut(namespace(owner)) {
            *known -= had;
            if *known == 0 {
                self.namespaces.remove(namespace(owner));
            }
        }
        had
    }

    /// Those that were refused and that there is room for by now, each by itself.
    pub fn admissible(&mut self) -> Vec<Owner> {
        if !std::mem::take(&mut self.has_more) {
            return Vec::new();
        }
        let fitting = self.refused.iter().filter(|(owner, weight)| self.fits(owner, **weight));
        fitting.map(|(owner, _)| owner.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(namespace: &str, number: usize) -> Owner {
        format!("{namespace}/{number}").into()
    }

    #[test]
    fn no_number_of_namespaces_takes_everything() {
        let mut room = Room::new(8_000_000);
        for greedy in 0..12 {
            let taken = (0..1000).filter(|number| room.take(&owner(&format!("g{greedy}"), *number), 50_000));
            assert!(taken.count() > 1, "{greedy}");
        }
        for number in 0..10 {
            assert!(room.take(&owner("later", number), 2000));
        }
        assert!(room.all < 8_000_000);
    }

    #[test]
    fn who_has_room_keeps_it_and_what_is_given_back_is_there_for_others() {
        let mut room = Room::new(8000);
        for number in 0..4 {
            assert!(room.take(&owner("a", number), 500));
        }
        assert!(!room.take(&owner("a", 4), 1));
        assert!(room.take(&owner("b", 0), 1500));
        // It could not have as much today.
        assert!(room.take(&owner("a", 0), 500));
        assert!(room.take(&owner("a", 0), 499));
        assert!(!room.take(&owner("a", 0), 500));
        // The smaller one has a place now, the larger one has lost it.
        assert_eq!(room.admissible(), [owner("a", 4)]);
        assert_eq!(room.admissible(), [] as [Owner; 0]);
        room.give_back(&owner("b", 0));
        assert_eq!(room.admissible(), [owner("a", 0), owner("a", 4)]);
        for number in 0..5 {
            room.give_back(&owner("a", number));
        }
        assert!(room.namespaces.is_empty() && room.held.is_empty() && room.refused.is_empty() && room.all == 0);
    }
}

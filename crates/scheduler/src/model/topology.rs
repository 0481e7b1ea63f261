//! One label of all nodes as a column: the value of each node as a small number, kept as nodes come, change and go.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash for small numbers, which need no protection from collisions.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_u32(&mut self, number: u32) {
        let mixed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

pub type NumberMap<V> = HashMap<u32, V, BuildHasherDefault<NumberHasher>>;

const NOWHERE: u32 = u32::MAX;

/// The values of one topology key.
#[derive(Clone, Debug, Default)]
pub struct Column {
    numbers: HashMap<String, u32>,
    /// How many nodes have each value; a value without nodes is free to be used anew.
    nodes: Vec<u32>,
    free: Vec<u32>,
    /// By the node's slot. Short while no node has the label, so that odd keys cost nothing.
    of_slot: Vec<u32>,
    domains: usize,
    filled: usize,
}

impl Column {
    /// The domain of the node in this slot.
    pub fn at(&self, slot: u32) -> Option<u32> {
        self.of_slot.get(slot as usize).copied().filter(|value| *value != NOWHERE)
    }

    /// How many different values there are.
    pub fn domains(&self) -> usize {
        self.domains
    }

    /// How many nodes have the label.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The values that nodes have.
    pub fn values(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().zip(0_u32..).filter(|(nodes, _)| **nodes > 0).map(|(_, value)| value)
    }

    /// What the node in this slot has now; says what it had before and has after.
    pub fn set(&mut self, slot: u32, text: Option<&str>) -> (Option<u32>, Option<u32>) {
        let before = self.at(slot);
        if text.is_none() && before.is_none() {
            return (None, None);
        }
        if let (Some(before), Some(text)) = (before, text)
            && self.numbers.get(text) == Some(&before)
        {
            return (Some(before), Some(before));
        }
        let after = text.map(|text| self.enter(text));
        if let Some(before) = before {
            self.leave(before);
        }
        let place = slot as usize;
        if self.of_slot.len() <= place {
            self.of_slot.resize(place + 1, NOWHERE);
        }
        self.of_slot[place] = after.unwrap_or(NOWHERE);
        (before, after)
    }

    fn enter(&mut self, text: &str) -> u32 {
        self.filled += 1;
        let number = match self.numbers.get(text) {
            Some(number) => *number,
            None => {
                let number = self.free.pop().unwrap_or_else(|| {
                    self.nodes.push(0);
                    u32::try_from(self.nodes.len() - 1).unwrap_or(NOWHERE)
                });
                self.numbers.insert(text.to_owned(), number);
                self.domains += 1;
                number
            }
        };
        self.nodes[number as usize] += 1;
        number
    }

    fn leave(&mut self, number: u32) {
        self.filled -= 1;
        self.nodes[number as usize] -= 1;
        if self.nodes[number as usize] == 0 {
            self.numbers.retain(|_, known| *known != number);
            self.free.push(number);
            self.domains -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_and_go_with_their_nodes() {
        let mut column = Column::default();
        assert_eq!(column.set(0, None), (None, None));
        let (_, east) = column.set(0, Some("east"));
        assert_eq!(column.set(2, Some("east")), (None, east));
        let (_, west) = column.set(1, Some("west"));
        assert_ne!(east, west);
        assert_eq!((column.domains(), column.filled()), (2, 3));
        assert_eq!(column.set(1, Some("north")).0, west);
        assert_eq!(column.at(1).is_some(), column.at(1) != east);
        assert_eq!(column.set(1, None).1, None);
        assert_eq!((column.domains(), column.filled(), column.at(1)), (1, 2, None));
        assert_eq!(column.values().collect::<Vec<_>>(), east.into_iter().collect::<Vec<_>>());
    }
}

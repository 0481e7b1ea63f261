//! Sets of NUMA nodes.

use std::fmt;

/// Nodes from this number on cannot be in a set.
pub(crate) const HIGHEST: u32 = 64;

/// NUMA nodes by their numbers, up to 63.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NumaMask(u64);

impl NumaMask {
    pub(crate) fn contains(self, node: u32) -> bool {
        node < HIGHEST && self.0 & (1 << node) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn nodes(self) -> impl Iterator<Item = u32> {
        (0..HIGHEST).filter(move |node| self.contains(*node))
    }

    pub(crate) fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Fewer nodes; of as many, those with lower numbers.
    pub(crate) fn is_narrower_than(self, other: Self) -> bool {
        (self.count(), self.0) < (other.count(), other.0)
    }

    /// Every set of these nodes that has any.
    pub(crate) fn combinations(self) -> impl Iterator<Item = Self> {
        // Counts through the bits that are set, as if there were no others.
        let mut next = Some(self.0);
        std::iter::from_fn(move || {
            let mask = next.filter(|mask| *mask != 0)?;
            next = Some((mask - 1) & self.0);
            Some(Self(mask))
        })
    }
}

impl FromIterator<u32> for NumaMask {
    fn from_iter<I: IntoIterator<Item = u32>>(nodes: I) -> Self {
        Self(nodes.into_iter().filter(|node| *node < HIGHEST).fold(0, |mask, node| mask | 1 << node))
    }
}

impl fmt::Debug for NumaMask {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_set().entries(self.nodes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_nodes_are_compared_and_counted() {
        let mask = |nodes: &[u32]| nodes.iter().copied().collect::<NumaMask>();
        assert!(mask(&[5]).is_narrower_than(mask(&[0, 1])) && mask(&[0, 3]).is_narrower_than(mask(&[1, 3])));
        assert!(!mask(&[1]).is_narrower_than(mask(&[1])) && mask(&[64]).is_empty());
        let all: Vec<NumaMask> = mask(&[0, 3, 63]).combinations().collect();
        assert_eq!((all.len(), all.iter().filter(|one| one.count() == 2).count()), (7, 3));
        assert!(all.contains(&mask(&[3, 63])) && all.iter().all(|one| one.is_within(mask(&[0, 3, 63]))));
        assert_eq!(NumaMask::default().combinations().count(), 0);
    }
}

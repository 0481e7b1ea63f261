//! Sets of completion indexes, as ranges: `1,3-5,7`.

use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes {
    /// Ordered, apart from each other, both ends included.
    ranges: Vec<(i32, i32)>,
}

impl Indexes {
    /// Reads the text of a status or a policy; what is not a range, or beyond the completions, is left out.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut indexes = Self::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>())
                && first >= 0
                && first < completions
            {
                indexes.insert(first, last.min(completions - 1));
            }
        }
        indexes
    }

    pub(super) fn insert(&mut self, first: i32, last: i32) {
        if last < first {
            return;
        }
        // Those that overlap or touch become one.
        let start = self.ranges.partition_point(|range| range.1 < first.saturating_sub(1));
        let end = self.ranges.partition_point(|range| range.0 <= last.saturating_add(1));
        let merged =
            self.ranges[start..end].iter().fold((first, last), |all, range| (all.0.min(range.0), all.1.max(range.1)));
        self.ranges.splice(start..end, [merged]);
    }

    pub(super) fn add(&mut self, index: i32) {
        self.insert(index, index);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for range in &other.ranges {
            self.insert(range.0, range.1);
        }
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        let at = self.ranges.partition_point(|range| range.1 < index);
        self.ranges.get(at).is_some_and(|range| range.0 <= index)
    }

    pub(super) fn total(&self) -> i32 {
        self.ranges.iter().map(|range| range.1 - range.0 + 1).sum()
    }

    /// How many of these are in the other set too.
    pub(super) fn shared(&self, other: &Self) -> i32 {
        let overlap = |one: &(i32, i32), two: &(i32, i32)| (one.1.min(two.1) - one.0.max(two.0) + 1).max(0);
        self.ranges.iter().flat_map(|one| other.ranges.iter().map(move |two| overlap(one, two))).sum()
    }

    /// The first `count` indexes below `completions` that are not in the set.
    pub(super) fn missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let mut found = Vec::new();
        let mut next = 0;
        for range in self.ranges.iter().copied().chain([(completions, completions)]) {
            let gap = next..range.0.min(completions);
            found.extend(gap.take(count - found.len()));
            next = next.max(range.1.saturating_add(1));
            if found.len() == count {
                break;
            }
        }
        found
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, added: &[i32], expected: &str, missing: &[i32]) {
        let mut indexes = Indexes::parse(text, 10);
        added.iter().for_each(|index| indexes.add(*index));
        assert_eq!(indexes.to_string(), expected, "{text} {added:?}");
        assert_eq!(indexes.missing(3, 10), missing, "{text} {added:?}");
        assert!(added.iter().all(|index| indexes.contains(*index)));
    }

    #[test]
    fn ranges_grow_together() {
        check("", &[], "", &[0, 1, 2]);
        check("1,3-5,7", &[6], "1,3-7", &[0, 2, 8]);
        check("0-9", &[], "0-9", &[]);
        check("0,1", &[2], "0-2", &[3, 4, 5]);
        check("nonsense,4,12-20,8-99", &[0], "0,4,8,9", &[1, 2, 3]);
        check("2-3", &[0, 5, 4, 1], "0-5", &[6, 7, 8]);
        assert_eq!(Indexes::parse("0-4", 10).shared(&Indexes::parse("3-6,9", 10)), 2);
        assert_eq!(Indexes::parse("0-4,7", 10).total(), 6);
    }
}

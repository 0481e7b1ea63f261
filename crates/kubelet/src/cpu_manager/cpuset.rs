//! Sets of CPUs as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;

/// More than any kernel has: a set is kept as its members.
const HIGHEST: u32 = 65_535;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// An empty text is the empty set.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut found = BTreeSet::new();
        let number = |word: &str| match word.trim().parse::<u32>() {
            Ok(number) if number <= HIGHEST => Ok(number),
            Ok(number) => Err(format!("no CPU has the number {number}")),
            Err(_) => Err(format!("{word:?} is no number of a CPU")),
        };
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("invalid range {part:?} ({first} > {last})"));
            }
            found.extend(first..=last);
        }
        Ok(Self(found))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn insert(&mut self, cpu: u32) {
        self.0.insert(cpu);
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    pub(crate) fn common(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        for (at, (first, last)) in ranges.into_iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last {
                write!(to, "{comma}{first}")?;
            } else {
                write!(to, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_and_written_as_the_kernel_has_them() {
        for (text, want) in [
            ("", Ok("")),
            (" \n", Ok("")),
            ("3", Ok("3")),
            ("0-3,8", Ok("0-3,8")),
            ("8, 2,1,0\n", Ok("0-2,8")),
            ("0,1", Ok("0-1")),
            ("1-0", Err("invalid range \"1-0\" (1 > 0)")),
            ("1,,2", Err("\"\" is no number of a CPU")),
            ("a", Err("\"a\" is no number of a CPU")),
            ("-1", Err("\"\" is no number of a CPU")),
            ("0-4000000000", Err("no CPU has the number 4000000000")),
        ] {
            let got = CpuSet::parse(text).map(|set| set.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{text:?}");
        }
    }
}

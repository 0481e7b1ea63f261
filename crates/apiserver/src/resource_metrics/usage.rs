//! From looks to usage: a rate takes two of them. The rules for containers that start or start again are those of
//! metrics-server.

use std::collections::HashMap;

use super::page::{Look, Page, PodName};

/// A container is looked at again after so long.
pub(super) const RESOLUTION_MS: i64 = 15_000;
/// The processor time of a container that has run for this long says enough, without a look before.
const YOUNGEST_MS: i64 = 10_000;

/// What something used between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// When the later look was, in milliseconds since 1970.
    pub at: i64,
    /// How long before that the other one was, in milliseconds.
    pub window: i64,
    /// Billionths of a core.
    pub cpu: u64,
    /// Bytes.
    pub memory: u64,
}

/// The last look, and one before it.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    last: Look,
    before: Option<Look>,
}

/// What one node told: of itself, and of the containers of its pods.
#[derive(Debug, Default)]
pub(super) struct Record {
    node: Pair,
    pods: HashMap<PodName, HashMap<String, Pair>>,
}

impl Record {
    /// The record after another page.
    pub(super) fn after(&self, page: Page) -> Self {
        let pods = page.pods.into_iter().map(|(pod, containers)| {
            let known = self.pods.get(&pod);
            let containers = containers.into_iter().map(|(name, look)| {
                let pair = Pair::after(known.and_then(|known| known.get(&name)), look);
                (name, pair)
            });
            (pod, containers.collect())
        });
        Self { pods: pods.collect(), node: Pair::after(Some(&self.node), page.node) }
    }

    /// Whether there is something that one more look would make a rate of.
    pub(super) fn wants_another_look(&self) -> bool {
        self.node.usage().is_none()
    }

    pub(super) fn node(&self) -> Option<Usage> {
        self.node.usage()
    }

    /// The containers of a pod by name; None until there are figures for all of them.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<Vec<(&str, Usage)>> {
        let containers = self.pods.get(&(namespace.to_owned(), name.to_owned()))?;
        let mut all: Vec<(&str, Usage)> =
            containers.iter().map(|(name, pair)| Some((name.as_str(), pair.usage()?))).collect::<Option<_>>()?;
        all.sort_by_key(|(name, _)| *name);
        Some(all)
    }
}

impl Pair {
    fn after(known: Option<&Self>, last: Look) -> Self {
        let age = last.started.and_then(|started| last.at.checked_sub(started));
        if let (Some(age), Some(started)) = (age, last.started)
            && (YOUNGEST_MS..RESOLUTION_MS).contains(&age)
        {
            // It began with nothing.
            let start = Look { at: started, cpu: Some(0), ..last };
            return Self { last, before: Some(start) };
        }
        let Some(known) = known.filter(|known| known.last.cpu.is_some()) else { return Self { last, before: None } };
        // Another look at the same moment says nothing new.
        if last.at <= known.last.at {
            return Self { last: known.last, before: known.before };
        }
        // One that was started since then counts from the beginning again.
        let restarted = last.started.is_some_and(|started| started > known.last.at);
        Self { last, before: (!restarted).then_some(known.last) }
    }

    fn usage(&self) -> Option<Usage> {
        let before = self.before?;
        let window = self.last.at.checked_sub(before.at).filter(|window| *window > 0)?;
        let time = self.last.cpu?.checked_sub(before.cpu?)?;
        let cpu = u64::try_from(u128::from(time) * 1000 / u128::try_from(window).ok()?).ok()?;
        // Memory that is not in use at all is that of a container that has ended.
        let memory = self.last.memory.filter(|bytes| *bytes > 0)?;
        Some(Usage { at: self.last.at, window, cpu, memory })
    }
}

/// The time that the figures of several are told for: that of the oldest.
pub(super) fn oldest<N>(all: &[(N, Usage)]) -> Option<Usage> {
    all.iter().map(|(_, usage)| *usage).min_by_key(|usage| usage.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: i64, cpu: u64) -> Look {
        Look { at, cpu: Some(cpu), memory: Some(1 << 20), started: None }
    }

    fn page(looks: &[(&str, Look)]) -> Page {
        let mut page = Page::default();
        for (name, look) in looks {
            page.pods.entry(("n".into(), "p".into())).or_default().insert((*name).to_owned(), *look);
        }
        page
    }

    fn usage(record: &Record) -> Option<Vec<(String, u64, i64)>> {
        let all = record.pod("n", "p")?;
        Some(all.into_iter().map(|(name, usage)| (name.to_owned(), usage.cpu, usage.window)).collect())
    }

    #[test]
    fn a_rate_takes_two_looks() {
        let first = Record::default().after(page(&[("a", look(1_000_000, 500_000_000))]));
        assert_eq!(usage(&first), None);
        let second = first.after(page(&[("a", look(1_010_000, 5_500_000_000))]));
        assert_eq!(usage(&second), Some(vec![("a".into(), 500_000_000, 10_000)]), "half a core");
        let same = second.after(page(&[("a", look(1_010_000, 5_500_000_000))]));
        assert_eq!(usage(&same), usage(&second), "the same moment again");
        let backwards = second.after(page(&[("a", look(1_020_000, 1))]));
        assert_eq!(usage(&backwards), None, "processor time does not run backwards");
    }

    #[test]
    fn a_pod_is_told_of_when_all_its_containers_are_known() {
        let first = Record::default().after(page(&[("a", look(1000, 0))]));
        let second = first.after(page(&[("a", look(2000, 1)), ("b", look(2000, 1))]));
        assert_eq!(usage(&second), None);
        let third = second.after(page(&[("a", look(3000, 2)), ("b", look(3000, 2))]));
        assert_eq!(usage(&third).map(|all| all.len()), Some(2));
        let gone = third.after(page(&[]));
        assert_eq!(usage(&gone), None, "a pod that is gone is forgotten");
    }

    #[test]
    fn a_young_container_counts_from_its_start() {
        let young = |age: i64| Look { started: Some(1_000_000), ..look(1_000_000 + age, 12_000_000_000) };
        for (age, told) in [(5_000, false), (12_000, true), (40_000, false)] {
            let record = Record::default().after(page(&[("a", young(age))]));
            assert_eq!(usage(&record).is_some(), told, "{age}");
        }
        let record = Record::default().after(page(&[("a", young(12_000))]));
        assert_eq!(usage(&record), Some(vec![("a".into(), 1_000_000_000, 12_000)]));
    }

    #[test]
    fn one_that_started_again_is_not_measured_against_its_past() {
        let first = Record::default().after(page(&[("a", look(1_000_000, 50))]));
        let again = Look { started: Some(1_005_000), ..look(1_006_000, 60) };
        assert_eq!(usage(&first.after(page(&[("a", again)]))), None);
    }

    #[test]
    fn figures_that_cannot_be_harm_nothing() {
        let far = Look { started: Some(i64::MIN), ..look(i64::MAX, u64::MAX) };
        let first = Record::default().after(page(&[("a", look(i64::MIN, 0))]));
        assert_eq!(usage(&first.after(page(&[("a", far)]))), None);
    }
}

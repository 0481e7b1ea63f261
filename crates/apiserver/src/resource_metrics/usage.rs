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
mod tests;

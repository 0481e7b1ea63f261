//! Counts of placed pods per topology domain, kept as pods are placed, so that a search looks them up instead of
//! going through all pods.
//!
//! A [`Counter`] counts the pods that a pod's own rule selects. A [`Holding`] counts the pods that carry a term of
//! their own: whether it is about the pod at hand is asked once per distinct term, not once per pod.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::labels::{Labels, Selector};
use super::pod::PodInfo;
use super::topology::{Column, NumberMap};

/// Labels of namespaces, which some rules select by.
pub type Namespaces = HashMap<String, Labels>;

/// Pods by namespace and labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodSelector {
    pub namespaces: BTreeSet<String>,
    pub namespace_selector: Selector,
    pub selector: Selector,
}

impl PodSelector {
    pub fn matches(&self, pod: &PodInfo, namespaces: &Namespaces) -> bool {
        self.selects_namespace(&pod.namespace, namespaces) && self.selector.matches(&pod.labels)
    }

    fn selects_namespace(&self, namespace: &str, namespaces: &Namespaces) -> bool {
        if self.namespaces.contains(namespace) {
            return true;
        }
        if self.namespace_selector.is_empty() {
            return !self.namespace_selector.is_nothing();
        }
        let none = Labels::new();
        self.namespace_selector.matches(namespaces.get(namespace).unwrap_or(&none))
    }

    fn depends_on_namespaces(&self) -> bool {
        !self.namespace_selector.is_empty()
    }
}

/// What a counter counts, and over which domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// A pod counts when all of them select it.
    pub pods: Vec<PodSelector>,
    /// Whether pods that are ending count.
    pub ending: bool,
    pub topology_key: String,
}

impl Rule {
    pub fn matches(&self, pod: &PodInfo, namespaces: &Namespaces) -> bool {
        (self.ending || !pod.is_terminating) && self.pods.iter().all(|pods| pods.matches(pod, namespaces))
    }

    fn depends_on_namespaces(&self) -> bool {
        self.pods.iter().any(PodSelector::depends_on_namespaces)
    }
}

/// Amounts by node and by domain; what is not there is zero.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    by_slot: NumberMap<i64>,
    by_value: NumberMap<i64>,
    /// Over all domains.
    sum: i64,
}

impl Counts {
    pub fn on_node(&self, slot: u32) -> i64 {
        self.by_slot.get(&slot).copied().unwrap_or_default()
    }

    pub fn in_domain(&self, value: u32) -> i64 {
        self.by_value.get(&value).copied().unwrap_or_default()
    }

    pub fn sum(&self) -> i64 {
        self.sum
    }

    /// The least over the domains of the column.
    pub fn least(&self, column: &Column) -> i64 {
        // Every domain counted here has nodes: where some are missing, those have none of the pods.
        if self.by_value.len() < column.domains() {
            return 0;
        }
        self.by_value.values().copied().min().unwrap_or_default()
    }

    fn add(&mut self, slot: u32, value: Option<u32>, amount: i64) {
        add(&mut self.by_slot, slot, amount);
        if let Some(value) = value {
            add(&mut self.by_value, value, amount);
            self.sum += amount;
        }
    }

    fn relabel(&mut self, slot: u32, before: Option<u32>, after: Option<u32>) {
        let amount = self.on_node(slot);
        if amount == 0 {
            return;
        }
        if let Some(before) = before {
            add(&mut self.by_value, before, -amount);
            self.sum -= amount;
        }
        if let Some(after) = after {
            add(&mut self.by_value, after, amount);
            self.sum += amount;
        }
    }

    fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }
}

fn add(map: &mut NumberMap<i64>, key: u32, amount: i64) {
    let count = map.entry(key).or_default();
    *count += amount;
    if *count == 0 {
        map.remove(&key);
    }
}

/// Counts with the column that says which node is in which domain.
#[derive(Clone, Debug)]
pub struct Tally {
    pub counts: Arc<Counts>,
    pub column: Arc<Column>,
    /// What a simulation added or took away, by domain.
    changes: Vec<(u32, i64)>,
}

impl Tally {
    pub(super) fn new(counts: Arc<Counts>, column: Arc<Column>) -> Self {
        Self { counts, column, changes: Vec::new() }
    }

    /// The amount in the node's domain; nothing when the node is in none.
    pub fn at(&self, slot: u32) -> Option<i64> {
        let value = self.column.at(slot)?;
        let changed = self.changes.iter().filter(|(changed, _)| *changed == value).map(|(_, amount)| amount);
        Some(self.counts.in_domain(value) + changed.sum::<i64>())
    }

    pub fn change(&mut self, slot: u32, amount: i64) {
        if let Some(value) = self.column.at(slot) {
            self.changes.push((value, amount));
        }
    }

    pub fn sum(&self) -> i64 {
        self.counts.sum() + self.changes.iter().map(|(_, amount)| amount).sum::<i64>()
    }

    pub fn least(&self) -> i64 {
        if self.changes.is_empty() {
            return self.counts.least(&self.column);
        }
        let changed: BTreeSet<u32> = self.changes.iter().map(|(value, _)| *value).collect();
        let of = |value: u32| {
            let changes = self.changes.iter().filter(|(changed, _)| *changed == value).map(|(_, amount)| amount);
            self.counts.in_domain(value) + changes.sum::<i64>()
        };
        let unchanged = self.column.values().filter(|value| !changed.contains(value));
        let least = unchanged.map(|value| self.counts.in_domain(value)).min();
        changed.iter().map(|value| of(*value)).chain(least).min().unwrap_or_default()
    }
}

/// What a placed pod's own term means for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attitude {
    /// It must not have them near.
    Repels,
    /// It must have them near.
    Needs,
    /// It would like them near, or away where negative.
    Likes(i64),
}

/// A term that placed pods carry, and where they are.
#[derive(Clone, Debug)]
pub struct Holding {
    pub attitude: Attitude,
    pub rule: Arc<Rule>,
    pub tally: Tally,
}

/// Finds rules by the labels of a pod they may select.
#[derive(Debug, Default)]
struct LabelIndex {
    by_label: HashMap<String, HashMap<String, Vec<usize>>>,
    rest: Vec<usize>,
}

impl LabelIndex {
    fn insert(&mut self, rule: &Rule, id: usize) {
        if rule.pods.iter().any(|pods| pods.selector.is_nothing()) {
            return;
        }
        let Some((key, values)) = rule.pods.iter().find_map(|pods| pods.selector.handle()) else {
            return self.rest.push(id);
        };
        let by_value = self.by_label.entry(key.to_owned()).or_default();
        for value in values {
            let list = by_value.entry(value.clone()).or_default();
            // A selector may name a value twice.
            if list.last() != Some(&id) {
                list.push(id);
            }
        }
    }

    fn remove(&mut self, rule: &Rule, id: usize) {
        self.rest.retain(|known| *known != id);
        let Some((key, values)) = rule.pods.iter().find_map(|pods| pods.selector.handle()) else { return };
        let Some(by_value) = self.by_label.get_mut(key) else { return };
        for value in values {
            if let Some(list) = by_value.get_mut(value) {
                list.retain(|known| *known != id);
                if list.is_empty() {
                    by_value.remove(value);
                }
            }
        }
        if by_value.is_empty() {
            self.by_label.remove(key);
        }
    }

    fn candidates(&self, labels: &Labels) -> Vec<usize> {
        let mut found = self.rest.clone();
        for (key, value) in labels {
            if let Some(list) = self.by_label.get(key).and_then(|by_value| by_value.get(value)) {
                found.extend(list);
            }
        }
        found
    }
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    rule: Arc<Rule>,
    counts: Arc<Counts>,
    used: u64,
}

/// Entries by key, found by the labels of pods.
#[derive(Debug)]
struct Table<K> {
    ids: HashMap<K, usize>,
    entries: Vec<Option<Entry<K>>>,
    free: Vec<usize>,
    index: LabelIndex,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self { ids: HashMap::new(), entries: Vec::new(), free: Vec::new(), index: LabelIndex::default() }
    }
}

impl<K: Clone + Eq + std::hash::Hash> Table<K> {
    fn insert(&mut self, key: K, rule: Arc<Rule>, counts: Counts) -> usize {
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.index.insert(&rule, id);
        self.ids.insert(key.clone(), id);
        self.entries[id] = Some(Entry { key, rule, counts: Arc::new(counts), used: 0 });
        id
    }

    fn remove(&mut self, id: usize) {
        if let Some(entry) = self.entries[id].take() {
            self.index.remove(&entry.rule, id);
            self.ids.remove(&entry.key);
            self.free.push(id);
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Entry<K>> {
        self.entries.iter_mut().flatten()
    }
}

/// Counters beyond this number push out those not asked for the longest; they are counted anew when asked for again.
const MOST_COUNTERS: usize = 2048;

/// All counts of a cache.
#[derive(Debug, Default)]
pub struct Tallies {
    columns: HashMap<String, Arc<Column>>,
    counters: Table<Arc<Rule>>,
    holdings: Table<(Attitude, Arc<Rule>)>,
    clock: u64,
}

impl Tallies {
    pub fn column(&mut self, key: &str, nodes: impl Iterator<Item = (u32, Option<String>)>) -> Arc<Column> {
        if let Some(known) = self.columns.get(key) {
            return known.clone();
        }
        let mut column = Column::default();
        for (slot, value) in nodes {
            column.set(slot, value.as_deref());
        }
        let column = Arc::new(column);
        self.columns.insert(key.to_owned(), column.clone());
        column
    }

    pub fn known(&mut self, rule: &Arc<Rule>) -> Option<Tally> {
        self.clock += 1;
        let id = *self.counters.ids.get(rule)?;
        let column = self.columns.get(&rule.topology_key)?.clone();
        let entry = self.counters.entries[id].as_mut()?;
        entry.used = self.clock;
        Some(Tally::new(entry.counts.clone(), column))
    }

    /// Counts a new rule over all placed pods.
    pub fn start<'a>(
        &mut self,
        rule: &Arc<Rule>,
        column: &Arc<Column>,
        placed: impl Iterator<Item = (u32, &'a PodInfo)>,
        namespaces: &Namespaces,
    ) -> Tally {
        if self.counters.ids.len() >= MOST_COUNTERS {
            let oldest =
                self.counters.entries.iter().enumerate().filter_map(|(id, e)| Some((e.as_ref()?.used, id))).min();
            if let Some((_, id)) = oldest {
                self.counters.remove(id);
                self.forget_unused_columns();
            }
        }
        let mut counts = Counts::default();
        for (slot, pod) in placed {
            if rule.matches(pod, namespaces) {
                counts.add(slot, column.at(slot), 1);
            }
        }
        self.columns.entry(rule.topology_key.clone()).or_insert_with(|| column.clone());
        let id = self.counters.insert(rule.clone(), rule.clone(), counts);
        let counts = self.counters.entries[id].as_mut().map(|entry| {
            entry.used = self.clock;
            entry.counts.clone()
        });
        Tally::new(counts.unwrap_or_default(), column.clone())
    }

    /// Columns cost memory per node; only those of rules at hand are kept.
    fn forget_unused_columns(&mut self) {
        let used: BTreeSet<String> = (self.counters.all().map(|entry| entry.rule.topology_key.clone()))
            .chain(self.holdings.all().map(|entry| entry.rule.topology_key.clone()))
            .collect();
        self.columns.retain(|key, _| used.contains(key));
    }

    /// Counts a pod that is placed (1) or leaves (-1) on a node. The columns of its own terms must be there.
    pub fn count(&mut self, pod: &PodInfo, slot: u32, change: i64, namespaces: &Namespaces) {
        for id in self.counters.index.candidates(&pod.labels) {
            if let Some(entry) = &mut self.counters.entries[id]
                && entry.rule.matches(pod, namespaces)
            {
                let value = self.columns.get(&entry.rule.topology_key).and_then(|column| column.at(slot));
                Arc::make_mut(&mut entry.counts).add(slot, value, change);
            }
        }
        for (attitude, rule) in pod.affinities.held() {
            let key = (attitude, rule);
            let id = match self.holdings.ids.get(&key) {
                Some(id) => *id,
                None => self.holdings.insert(key.clone(), key.1.clone(), Counts::default()),
            };
            let Some(entry) = &mut self.holdings.entries[id] else { continue };
            let value = self.columns.get(&entry.rule.topology_key).and_then(|column| column.at(slot));
            let counts = Arc::make_mut(&mut entry.counts);
            counts.add(slot, value, change);
            if counts.is_empty() {
                self.holdings.remove(id);
            }
        }
    }

    /// The terms of placed pods that are about this pod, of the attitudes asked for.
    pub fn holdings(&self, pod: &PodInfo, namespaces: &Namespaces, wanted: impl Fn(Attitude) -> bool) -> Vec<Holding> {
        let about = |id: usize| {
            let entry = self.holdings.entries[id].as_ref()?;
            let (attitude, rule) = &entry.key;
            if !wanted(*attitude) || !rule.matches(pod, namespaces) {
                return None;
            }
            let column = self.columns.get(&rule.topology_key)?.clone();
            Some(Holding { attitude: *attitude, rule: rule.clone(), tally: Tally::new(entry.counts.clone(), column) })
        };
        self.holdings.index.candidates(&pod.labels).into_iter().filter_map(about).collect()
    }

    /// A node got, changed or lost its labels.
    pub fn relabel(&mut self, slot: u32, labels: Option<&Labels>) {
        for (key, column) in &mut self.columns {
            let text = labels.and_then(|labels| labels.get(key)).map(String::as_str);
            if column.at(slot).is_none() && text.is_none() {
                continue;
            }
            let (before, after) = Arc::make_mut(column).set(slot, text);
            if before == after {
                continue;
            }
            for entry in self.counters.all().filter(|entry| entry.rule.topology_key == *key) {
                Arc::make_mut(&mut entry.counts).relabel(slot, before, after);
            }
            for entry in self.holdings.all().filter(|entry| entry.rule.topology_key == *key) {
                Arc::make_mut(&mut entry.counts).relabel(slot, before, after);
            }
        }
    }

    /// The labels of a namespace changed: what was selected by them is counted anew.
    pub fn namespace_changed(&mut self) {
        let stale: Vec<usize> = self
            .counters
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.as_ref().is_some_and(|entry| entry.rule.depends_on_namespaces()))
            .map(|(id, _)| id)
            .collect();
        stale.into_iter().for_each(|id| self.counters.remove(id));
    }
}

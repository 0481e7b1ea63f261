//! The pools with devices for one node: the newest generation of each, and whether all of it is known.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::inventory::{Counters, Inventory, PoolId, Slice};
use crate::model::labels::Labels;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Sound,
    /// Its driver has yet to write some of its slices.
    Incomplete,
    /// Two devices have one name, or a device counts what is not there.
    Invalid,
}

#[derive(Debug)]
pub(super) struct Pool<'a> {
    pub(super) id: &'a PoolId,
    pub(super) standing: Standing,
    /// Slices with devices that the node may use.
    pub(super) slices: Vec<&'a Slice>,
    /// Other nodes' slices: their devices may take from the same counters.
    pub(super) others: Vec<&'a Slice>,
    pub(super) counters: BTreeMap<&'a str, &'a Counters>,
}

impl<'a> Pool<'a> {
    fn broken(id: &'a PoolId, standing: Standing) -> Self {
        Self { id, standing, slices: Vec::new(), others: Vec::new(), counters: BTreeMap::new() }
    }

    fn sound(id: &'a PoolId, slices: Vec<&'a Slice>, others: Vec<&'a Slice>) -> Self {
        let invalid = || Self::broken(id, Standing::Invalid);
        let mut counters = BTreeMap::new();
        for (name, set) in slices.iter().chain(&others).flat_map(|slice| &slice.counters) {
            if counters.insert(name.as_str(), set).is_some() {
                return invalid();
            }
        }
        let with_devices = |list: Vec<&'a Slice>| -> Vec<&'a Slice> {
            list.into_iter().filter(|slice| slice.counters.is_empty()).collect()
        };
        let (slices, others) = (with_devices(slices), with_devices(others));
        let mut names = HashSet::new();
        let unique = slices.iter().flat_map(|slice| &slice.devices).all(|device| names.insert(&device.id.device));
        let mut consumed =
            slices.iter().chain(&others).flat_map(|slice| &slice.devices).flat_map(|device| &device.consumes);
        let known = consumed.all(|(set, taken)| {
            counters.get(set.as_str()).is_some_and(|set| taken.keys().all(|name| set.contains_key(name)))
        });
        if !unique || !known {
            return invalid();
        }
        Self { id, standing: Standing::Sound, slices, others, counters }
    }

    fn waits(&self) -> bool {
        self.slices.iter().flat_map(|slice| &slice.devices).any(|device| !device.binding_conditions.is_empty())
    }
}

/// In the order in which devices are tried: by driver and name, those whose devices must be made ready last.
pub(super) fn gather<'a>(inventory: &'a Inventory, node: &str, labels: &Labels) -> Vec<Pool<'a>> {
    let mut near: HashMap<&'a PoolId, Vec<&'a Slice>> = HashMap::new();
    for slice in inventory.near(node).filter(|slice| !slice.ignored && slice.reaches(node, labels)) {
        let list = near.entry(&slice.pool).or_default();
        match list.first().map_or(slice.generation, |known| known.generation) {
            newest if slice.generation < newest => {}
            newest if slice.generation > newest => *list = vec![slice],
            _ => list.push(slice),
        }
    }
    let mut pools: Vec<Pool<'a>> = near.into_iter().filter_map(|(id, slices)| pool(inventory, id, slices)).collect();
    pools.sort_by(|one, two| (one.waits(), one.id).cmp(&(two.waits(), two.id)));
    pools
}

/// Nothing where its driver is about to replace what is known of it here.
fn pool<'a>(inventory: &'a Inventory, id: &'a PoolId, mut slices: Vec<&'a Slice>) -> Option<Pool<'a>> {
    slices.sort_by(|one, two| one.name.cmp(&two.name));
    let (generation, count) = slices.first().map(|slice| (slice.generation, slice.count))?;
    let is_whole = |known: usize| i64::try_from(known) == Ok(count);
    if is_whole(slices.len()) {
        return Some(Pool::sound(id, slices, Vec::new()));
    }
    if inventory.of_pool(id).any(|slice| slice.generation > generation) {
        return None;
    }
    let near: HashSet<&str> = slices.iter().map(|slice| slice.name.as_str()).collect();
    let others: Vec<&Slice> = inventory
        .of_pool(id)
        .filter(|slice| slice.generation == generation && !slice.ignored && !near.contains(slice.name.as_str()))
        .collect();
    match is_whole(slices.len() + others.len()) {
        true => Some(Pool::sound(id, slices, others)),
        false => Some(Pool::broken(id, Standing::Incomplete)),
    }
}

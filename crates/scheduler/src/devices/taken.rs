//! Devices that claims have: alone, or a share of them.

use std::collections::{BTreeMap, HashMap};

use ferry_meta::Quantity;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};

use super::DeviceId;
use super::capacity::amount;

#[derive(Clone, Debug, Default)]
struct Use {
    /// Claims that have the device to themselves; more than one is somebody's mistake.
    alone: usize,
    shares: usize,
    consumed: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, Default)]
pub struct Taken {
    devices: HashMap<DeviceId, Use>,
}

impl Taken {
    pub fn add(&mut self, allocation: &AllocationResult) {
        for (id, result) in counted(allocation) {
            let device = self.devices.entry(id).or_default();
            if result.share_id.is_none() {
                device.alone += 1;
                continue;
            }
            device.shares += 1;
            for (name, consumed) in result.consumed_capacity.iter().flatten() {
                let sum = device.consumed.entry(name.clone()).or_default();
                *sum = sum.add(&amount(consumed));
            }
        }
    }

    pub fn remove(&mut self, allocation: &AllocationResult) {
        for (id, result) in counted(allocation) {
            let Some(device) = self.devices.get_mut(&id) else { continue };
            if result.share_id.is_none() {
                device.alone = device.alone.saturating_sub(1);
            } else {
                device.shares = device.shares.saturating_sub(1);
                for (name, consumed) in result.consumed_capacity.iter().flatten() {
                    if let Some(sum) = device.consumed.get_mut(name) {
                        *sum = sum.sub(&amount(consumed));
                    }
                }
            }
            if device.alone == 0 && device.shares == 0 {
                self.devices.remove(&id);
            }
        }
    }

    /// Whether a claim has it to itself.
    pub(super) fn alone(&self, id: &DeviceId) -> bool {
        self.devices.get(id).is_some_and(|device| device.alone > 0)
    }

    pub(super) fn shared(&self, id: &DeviceId) -> bool {
        self.devices.get(id).is_some_and(|device| device.shares > 0)
    }

    pub(super) fn in_use(&self, id: &DeviceId) -> bool {
        self.devices.contains_key(id)
    }

    pub(super) fn consumed(&self, id: &DeviceId) -> Option<&BTreeMap<String, Quantity>> {
        self.devices.get(id).map(|device| &device.consumed)
    }

    pub fn len(&self) -> usize {
        self.devices.len()
    }

    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

/// What counts: administrators look at devices without taking them.
fn counted(allocation: &AllocationResult) -> impl Iterator<Item = (DeviceId, &DeviceRequestAllocationResult)> {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    results.filter(|result| result.admin_access != Some(true)).map(|result| {
        let text = |text: &String| text.as_str().into();
        let id = DeviceId { driver: text(&result.driver), pool: text(&result.pool), device: text(&result.device) };
        (id, result)
    })
}

//! Trying one device: whether anything is against it, and taking it back.

use std::collections::BTreeMap;

use ferry_meta::Quantity;
use ferry_semantics::taints::tolerated;
use k8s_openapi::api::resource::v1::DeviceAttribute;

use super::{At, Candidate, Chosen, Search, Trouble, Undo};
use crate::devices::capacity::taken_by;
use crate::devices::inventory::Device;
use crate::devices::wishes::{Alternative, Wish};

impl<'a> Search<'a> {
    /// Gives the device to the request, if nothing is against it.
    pub(super) fn take(
        &mut self,
        at: At,
        wish: &'a Wish,
        alternative: &'a Alternative,
        candidate: Candidate<'a>,
        must: bool,
    ) -> Result<Option<Undo>, Trouble> {
        let device = candidate.device;
        let claims = self.claims;
        let claim = &claims[at.claim];
        if !(device.multiple && alternative.admin) && self.is_used(at.claim, alternative, device) {
            return Ok(None);
        }
        let shared = device.multiple
            && (self.request.snapshot.taken.shared(&device.id) || self.sharing.contains_key(&device.id));
        let mut undo = Undo { counters: false, constraints: 0, marked: false, shared: None };
        // Who shares a device takes nothing more of its counters.
        if !shared && !device.consumes.is_empty() {
            if !self.count_up(candidate) {
                return Ok(None);
            }
            undo.counters = true;
        }
        if self.is_tainted(device, alternative) {
            self.take_back(at.claim, wish, alternative, candidate, undo);
            return Ok(None);
        }
        for number in 0..claim.constraints.len() {
            if !self.constrain(at.claim, number, wish, alternative, device) {
                self.take_back(at.claim, wish, alternative, candidate, undo);
                return match must {
                    true => Err(Trouble::Fatal(format!(
                        "claim {}, request {}: cannot add device {} because a claim constraint would not be satisfied",
                        claim.shown(),
                        alternative.name,
                        device.id
                    ))),
                    false => Ok(None),
                };
            }
            undo.constraints += 1;
        }
        if !device.multiple {
            self.using.entry(&device.id).or_default().push(at.claim);
            undo.marked = true;
        }
        if !self.has_room(claim, alternative, device)? {
            self.take_back(at.claim, wish, alternative, candidate, undo);
            return Ok(None);
        }
        if device.multiple {
            let amounts = taken_by(alternative.capacities.as_ref(), &device.capacity).map_err(|error| {
                let (claim, request) = (claim.shown(), &alternative.name);
                Trouble::Fatal(format!(
                    "claim {claim}, request {request}: computing consumed capacity for device {}: {error}",
                    device.id
                ))
            })?;
            let (shares, sum) = self.sharing.entry(&device.id).or_default();
            *shares += 1;
            for (name, amount) in &amounts {
                let known = sum.entry(name.clone()).or_default();
                *known = known.add(amount);
            }
            undo.shared = Some(amounts);
        }
        let consumed = undo.shared.clone();
        self.chosen[at.claim].push(Chosen { candidate, wish, alternative, consumed });
        Ok(Some(undo))
    }

    pub(super) fn give_back(
        &mut self,
        at: At,
        wish: &Wish,
        alternative: &Alternative,
        candidate: Candidate<'a>,
        undo: Undo,
    ) {
        self.chosen[at.claim].pop();
        self.take_back(at.claim, wish, alternative, candidate, undo);
    }

    fn take_back(
        &mut self,
        claim: usize,
        wish: &Wish,
        alternative: &Alternative,
        candidate: Candidate<'a>,
        undo: Undo,
    ) {
        let id = &candidate.device.id;
        if let Some(amounts) = undo.shared
            && let Some((shares, sum)) = self.sharing.get_mut(id)
        {
            *shares -= 1;
            for (name, amount) in &amounts {
                if let Some(known) = sum.get_mut(name) {
                    *known = known.sub(amount);
                }
            }
            if *shares == 0 {
                self.sharing.remove(id);
            }
        }
        if undo.marked
            && let Some(users) = self.using.get_mut(id)
        {
            users.pop();
        }
        let claims = self.claims;
        for (number, constraint) in claims[claim].constraints.iter().enumerate().take(undo.constraints) {
            if constraint.concerns(wish, alternative) {
                self.values[claim][number].pop();
            }
        }
        if undo.counters {
            let consumed = self.consumed.entry(candidate.pool).or_default();
            for (set, counters) in &candidate.device.consumes {
                for (name, amount) in counters {
                    if let Some(known) = consumed.get_mut(&(set.as_str(), name.as_str())) {
                        *known = known.sub(amount);
                    }
                }
            }
        }
    }

    fn constrain(
        &mut self,
        claim: usize,
        number: usize,
        wish: &Wish,
        alternative: &Alternative,
        device: &'a Device,
    ) -> bool {
        let claims = self.claims;
        let constraint = &claims[claim].constraints[number];
        if !constraint.concerns(wish, alternative) {
            return true;
        }
        let Some(value) = device.attribute(&constraint.attribute) else { return false };
        let values = &mut self.values[claim][number];
        let fits = match constraint.distinct {
            true => values.iter().all(|known| are_same(value, known) == Some(false)),
            false => values.first().is_none_or(|known| are_same(value, known) == Some(true)),
        };
        if fits {
            values.push(value);
        }
        fits
    }

    fn is_tainted(&self, device: &Device, alternative: &Alternative) -> bool {
        let rules = self.request.snapshot.rules.iter().filter(|rule| {
            let selector = rule.spec.device_selector.as_ref();
            let same = |wanted: Option<&String>, name: &str| wanted.is_none_or(|wanted| wanted == name);
            selector.is_none_or(|selector| {
                same(selector.driver.as_ref(), &device.id.driver)
                    && same(selector.pool.as_ref(), &device.id.pool)
                    && same(selector.device.as_ref(), &device.id.device)
            })
        });
        let mut taints = device.taints.iter().chain(rules.map(|rule| &rule.spec.taint));
        taints.any(|taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !tolerated(&alternative.tolerations, taint)
        })
    }

    /// Takes what the device consumes off the counters of its pool; false where there is not enough.
    fn count_up(&mut self, candidate: Candidate<'a>) -> bool {
        let pool = &self.pools[candidate.pool];
        let taken = &self.request.snapshot.taken;
        let available = self.available.entry(candidate.pool).or_insert_with(|| {
            let mut left = BTreeMap::new();
            for (set, counters) in &pool.counters {
                left.extend(counters.iter().map(|(name, amount)| ((*set, name.as_str()), amount.clone())));
            }
            let devices = pool.slices.iter().chain(&pool.others).flat_map(|slice| &slice.devices);
            for device in devices.filter(|device| taken.in_use(&device.id)) {
                for (set, counters) in &device.consumes {
                    for (name, amount) in counters {
                        if let Some(known) = left.get_mut(&(set.as_str(), name.as_str())) {
                            *known = known.sub(amount);
                        }
                    }
                }
            }
            left
        });
        let consumed = self.consumed.entry(candidate.pool).or_default();
        for (set, counters) in &candidate.device.consumes {
            for (name, amount) in counters {
                let known = consumed.entry((set, name)).or_default();
                *known = known.add(amount);
            }
        }
        let none = Quantity::default();
        let enough = available.iter().all(|(counter, left)| consumed.get(counter).unwrap_or(&none) <= left);
        if !enough {
            for (set, counters) in &candidate.device.consumes {
                for (name, amount) in counters {
                    if let Some(known) = consumed.get_mut(&(set.as_str(), name.as_str())) {
                        *known = known.sub(amount);
                    }
                }
            }
        }
        enough
    }
}

/// Nothing where the value is of no kind that can be compared.
fn are_same(one: &DeviceAttribute, two: &DeviceAttribute) -> Option<bool> {
    match one {
        DeviceAttribute { string: Some(value), .. } => Some(two.string.as_ref() == Some(value)),
        DeviceAttribute { int: Some(value), .. } => Some(two.int == Some(*value)),
        DeviceAttribute { bool: Some(value), .. } => Some(two.bool == Some(*value)),
        DeviceAttribute { version: Some(value), .. } => Some(two.version.as_ref() == Some(value)),
        _ => None,
    }
}

//! Devices for the containers of a pod: chosen from what is free, with the plug-in's advice, and given out by it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ferry_plugins::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse, ContainerPreferredAllocationRequest,
    PreferredAllocationRequest,
};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::ledger::{Choice, Wish};
use super::{Devices, Endpoint, Given};
use crate::metrics::Histogram;
use crate::{pod, quantity};

/// Devices that an init container had, by resource: those that run after it may have the same.
type Reusable = BTreeMap<String, BTreeSet<String>>;

/// What was chosen may be gone when it is to be held; then it is chosen again, so often.
const ATTEMPTS: usize = 8;

impl Devices {
    /// Gets all devices that the pod asks for; those it has already stay.
    pub(crate) async fn allocate(&self, of: &Pod) -> Result<(), String> {
        let mut reusable = Reusable::new();
        for container in pod::init_containers(of) {
            self.allocate_container(of, container, &mut reusable, !pod::is_sidecar(container)).await?;
        }
        for container in pod::containers(of) {
            self.allocate_container(of, container, &mut reusable, false).await?;
        }
        Ok(())
    }

    async fn allocate_container(
        &self,
        of: &Pod,
        container: &Container,
        reusable: &mut Reusable,
        ends: bool,
    ) -> Result<(), String> {
        for (resource, count) in self.wanted(of, container) {
            let known = reusable.entry(resource.clone()).or_default();
            let wish = Wish { uid: pod::uid(of), container: &container.name, resource: &resource, count };
            let has = self.allocate_one(wish, known).await?;
            if ends {
                known.extend(has);
            } else {
                known.retain(|id| !has.contains(id));
            }
        }
        Ok(())
    }

    /// How many devices of which resource a container asks for, of the resources that plug-ins answer for.
    pub(super) fn wanted(&self, of: &Pod, container: &Container) -> Vec<(String, usize)> {
        let ledger = self.ledger.lock();
        let limits = container.resources.iter().flat_map(|resources| resources.limits.iter().flatten());
        let known = limits.filter(|(name, _)| ledger.knows(name) && !is_claimed(of, &container.name, name));
        let counted = known.filter_map(|(name, amount)| {
            let count = usize::try_from(quantity::value(amount)?).ok().filter(|count| *count > 0)?;
            Some((name.clone(), count))
        });
        counted.collect()
    }

    async fn allocate_one(&self, wish: Wish<'_>, reusable: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
        let Wish { uid, container, resource, .. } = wish;
        for _ in 0..ATTEMPTS {
            let choice = self.ledger.lock().choice(wish, reusable)?;
            let Some(choice) = choice else {
                let ledger = self.ledger.lock();
                return Ok(ledger
                    .allocation(uid, container, resource)
                    .map(|has| has.devices.clone())
                    .unwrap_or_default());
            };
            let endpoint = self.endpoints.lock().get(resource).cloned();
            let endpoint = endpoint.ok_or_else(|| format!("unknown Device Plugin {resource}"))?;
            let chosen = choose(&endpoint, &choice).await?;
            if !self.ledger.lock().reserve(wish, &chosen, reusable) {
                continue;
            }
            // Given back whatever happens, also when the pod ends meanwhile.
            let held = Reservation { devices: self, whose: (uid, container, resource), chosen: Some(chosen.clone()) };
            let since = Instant::now();
            let answer = ask(&endpoint, &chosen).await;
            self.metrics.took(Histogram::DeviceAllocation, &[("resource_name", resource)], since.elapsed());
            let answer = answer?;
            held.settle(answer);
            self.write().await;
            return Ok(chosen);
        }
        Err(format!("devices of {resource} are taken by others again and again"))
    }

    /// What a container gets by its devices; they are got anew where nothing is known of them.
    pub(crate) async fn given(&self, of: &Pod, container: &Container) -> Result<Given, String> {
        let uid = pod::uid(of);
        for (resource, count) in self.wanted(of, container) {
            let wish = Wish { uid, container: &container.name, resource: &resource, count };
            let ids = self.allocate_one(wish, &BTreeSet::new()).await?;
            let endpoint = self.endpoints.lock().get(&resource).cloned();
            if let Some(endpoint) = endpoint.filter(|endpoint| endpoint.options.pre_start_required) {
                let ready = endpoint.plugin.before_start(ids.into_iter().collect()).await;
                ready.map_err(|status| {
                    format!("device plugin PreStartContainer rpc failed with err: {}", status.message())
                })?;
            }
        }
        let mut given = Given::default();
        for allocation in self.ledger.lock().of_container(uid, &container.name).into_iter().flat_map(BTreeMap::values) {
            given.add(&allocation.answer);
        }
        Ok(given)
    }
}

/// Whether the scheduler has found devices of a claim for this resource.
fn is_claimed(of: &Pod, container: &str, resource: &str) -> bool {
    let status = pod::status(of).extended_resource_claim_status.as_ref();
    let mut mappings = status.into_iter().flat_map(|status| &status.request_mappings);
    mappings.any(|mapping| mapping.container_name == container && mapping.resource_name == resource)
}

struct Reservation<'a> {
    devices: &'a Devices,
    whose: (&'a str, &'a str, &'a str),
    chosen: Option<BTreeSet<String>>,
}

impl Reservation<'_> {
    fn settle(mut self, answer: ContainerAllocateResponse) {
        if let Some(chosen) = self.chosen.take() {
            self.devices.ledger.lock().settle(self.whose, chosen, Some(answer));
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(chosen) = self.chosen.take() {
            self.devices.ledger.lock().settle(self.whose, chosen, None);
        }
    }
}

/// As the plug-in prefers, where it has a say; else those that are first.
async fn choose(endpoint: &Endpoint, choice: &Choice) -> Result<BTreeSet<String>, String> {
    let plain = choice.plain();
    let is_fixed = choice.available.len() == choice.count || choice.first.len() >= choice.count;
    if !endpoint.options.get_preferred_allocation_available || is_fixed {
        return Ok(plain);
    }
    let request = ContainerPreferredAllocationRequest {
        available_device_ids: choice.available.iter().cloned().collect(),
        must_include_device_ids: choice.first.iter().cloned().collect(),
        allocation_size: i32::try_from(choice.count).unwrap_or(i32::MAX),
    };
    let answer = endpoint.plugin.preferred(PreferredAllocationRequest { container_requests: vec![request] }).await;
    let answer = answer
        .map_err(|status| format!("device plugin GetPreferredAllocation rpc failed with err: {}", status.message()))?;
    let Some(preferred) = answer.container_responses.into_iter().next() else { return Ok(plain) };
    let preferred: BTreeSet<String> = preferred.device_ids.into_iter().collect();
    // Advice that cannot be followed is none.
    let fits =
        preferred.len() == choice.count && preferred.is_subset(&choice.available) && choice.first.is_subset(&preferred);
    Ok(if fits { preferred } else { plain })
}

async fn ask(endpoint: &Endpoint, chosen: &BTreeSet<String>) -> Result<ContainerAllocateResponse, String> {
    let request = ContainerAllocateRequest { device_ids: chosen.iter().cloned().collect() };
    let answer = endpoint.plugin.allocate(AllocateRequest { container_requests: vec![request] }).await;
    let answer =
        answer.map_err(|status| format!("rpc error: code = {:?} desc = {}", status.code(), status.message()))?;
    let mut answers = answer.container_responses.into_iter();
    answers.next().ok_or_else(|| "no containers return in allocation response".to_owned())
}

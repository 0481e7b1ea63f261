//! From chosen devices to the allocation that is written into a claim.

use ferry_meta::Quantity;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use uuid::Uuid;

use super::inventory::Reach;
use super::search::Chosen;
use super::wishes::{Alternative, Claim, Wish};

pub(super) fn of_claim(claim: &Claim, chosen: &[Chosen<'_>], node: &str) -> AllocationResult {
    let results: Vec<DeviceRequestAllocationResult> = chosen.iter().map(result).collect();
    // A request without devices has none of several possibilities either.
    let picked: Vec<(&Wish, Option<&Alternative>)> = claim
        .requests
        .iter()
        .map(|wish| {
            let of_wish = chosen.iter().find(|one| std::ptr::eq(one.wish, wish));
            (wish, of_wish.map(|one| one.alternative).or_else(|| wish.alternatives.first()))
        })
        .collect();
    let config = configuration(claim, &picked);
    AllocationResult {
        devices: Some(DeviceAllocationResult {
            config: (!config.is_empty()).then_some(config),
            results: (!results.is_empty()).then_some(results),
        }),
        node_selector: selector(chosen, node),
        allocation_timestamp: None,
    }
}

fn result(chosen: &Chosen<'_>) -> DeviceRequestAllocationResult {
    let (device, alternative) = (chosen.candidate.device, chosen.alternative);
    let list = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
    let wire = |(name, amount): (&String, &Quantity)| (name.clone(), WireQuantity(amount.to_string()));
    let consumed = chosen.consumed.as_ref().filter(|amounts| !amounts.is_empty());
    DeviceRequestAllocationResult {
        request: chosen.wish.named(alternative),
        driver: device.id.driver.to_string(),
        pool: device.id.pool.to_string(),
        device: device.id.device.to_string(),
        admin_access: alternative.admin.then_some(true),
        tolerations: (!alternative.tolerations.is_empty()).then(|| alternative.tolerations.clone()),
        share_id: chosen.consumed.as_ref().map(|_| Uuid::new_v4().to_string()),
        consumed_capacity: consumed.map(|amounts| amounts.iter().map(wire).collect()),
        binding_conditions: list(&device.binding_conditions),
        binding_failure_conditions: list(&device.binding_failure_conditions),
        skip_node_operations: None,
    }
}

/// What classes say, once for each of them, then what the claim says. What is for all requests names none.
fn configuration(claim: &Claim, picked: &[(&Wish, Option<&Alternative>)]) -> Vec<DeviceAllocationConfiguration> {
    let mut config: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut classes: Vec<(&str, std::ops::Range<usize>)> = Vec::new();
    for (wish, alternative) in picked {
        let Some(alternative) = alternative else { continue };
        let (request, class) = (wish.named(alternative), &alternative.class);
        let name = class.metadata.name.as_deref().unwrap_or_default();
        if let Some((_, range)) = classes.iter().find(|(known, _)| *known == name) {
            for one in &mut config[range.clone()] {
                one.requests.get_or_insert_default().push(request.clone());
            }
            continue;
        }
        let start = config.len();
        let of_class = class.spec.iter().flat_map(|spec| spec.config.iter().flatten());
        config.extend(of_class.map(|one| DeviceAllocationConfiguration {
            source: "FromClass".into(),
            requests: Some(vec![request.clone()]),
            opaque: one.opaque.clone(),
        }));
        classes.push((name, start..config.len()));
    }
    let meant = |requests: &[String], (wish, alternative): &(&Wish, Option<&Alternative>)| {
        let full = alternative.map(|alternative| wish.named(alternative));
        requests.iter().any(|name| *name == wish.name || Some(name) == full.as_ref())
    };
    let devices = claim.object.spec.as_ref().and_then(|spec| spec.devices.as_ref());
    let written = devices.into_iter().flat_map(|devices| devices.config.iter().flatten());
    for one in written {
        let requests = one.requests.as_deref().unwrap_or_default();
        if requests.is_empty() || picked.iter().any(|request| meant(requests, request)) {
            config.push(DeviceAllocationConfiguration {
                source: "FromClaim".into(),
                requests: one.requests.clone(),
                opaque: one.opaque.clone(),
            });
        }
    }
    for one in &mut config {
        let requests = one.requests.as_deref().unwrap_or_default();
        if picked.iter().all(|request| meant(requests, request)) {
            one.requests = None;
        }
    }
    config
}

/// From where all of the devices can be used; nothing where that is everywhere.
fn selector(chosen: &[Chosen<'_>], node: &str) -> Option<NodeSelector> {
    let mut term = NodeSelectorTerm::default();
    for one in chosen {
        let (device, slice) = (one.candidate.device, one.candidate.slice);
        match slice.reach_of(device) {
            _ if device.binds_to_node => return Some(only(node)),
            Reach::Node(_) => return Some(only(node)),
            Reach::Selected(selected) => {
                // More than one term is refused when it is written.
                if let Some(other) = selected.1.node_selector_terms.first() {
                    add(&mut term.match_fields, other.match_fields.as_deref());
                    add(&mut term.match_expressions, other.match_expressions.as_deref());
                }
            }
            Reach::Everywhere | Reach::PerDevice | Reach::Nowhere => {}
        }
    }
    let any = term.match_fields.is_some() || term.match_expressions.is_some();
    any.then(|| NodeSelector { node_selector_terms: vec![term] })
}

fn only(node: &str) -> NodeSelector {
    let name = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm { match_fields: Some(vec![name]), match_expressions: None }],
    }
}

fn add(to: &mut Option<Vec<NodeSelectorRequirement>>, from: Option<&[NodeSelectorRequirement]>) {
    let values = |one: &NodeSelectorRequirement| {
        one.values.iter().flatten().cloned().collect::<std::collections::BTreeSet<String>>()
    };
    for new in from.into_iter().flatten() {
        let list = to.get_or_insert_default();
        let same = |known: &NodeSelectorRequirement| {
            known.key == new.key && known.operator == new.operator && values(known) == values(new)
        };
        if !list.iter().any(same) {
            list.push(new.clone());
        }
    }
}

//! VolumeZone: volumes that say by their labels in which zones they can be used.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::{claims_of, volume_name};
use crate::framework::{Cycle, Data, Events, Plugin, Point, PreFilter, Rejection, Verdict};
use crate::model::NodeInfo;

/// Labels of nodes and volumes, the old names with the ones that replaced them.
const LABELS: [(&str, &str); 4] = [
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
];

#[derive(Clone, Debug)]
struct Demand {
    label: &'static str,
    replacement: &'static str,
    values: BTreeSet<String>,
}

pub(in crate::plugins) struct VolumeZone;

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        "VolumeZone"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED.and(Events::NODE_LABELS).and(Events::STORAGE)
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        let mut demands: Vec<Demand> = Vec::new();
        for claim in claims_of(cycle.pod, cycle.listers) {
            let Some(volume) = volume_name(&claim).and_then(|name| cycle.listers.volumes.get("", name)) else {
                continue;
            };
            for (label, replacement) in LABELS {
                if let Some(value) = volume.labels().get(label) {
                    let values = value.split("__").map(str::to_owned).collect();
                    demands.push(Demand { label, replacement, values });
                }
            }
        }
        if demands.is_empty() { PreFilter::Skip } else { PreFilter::with(demands) }
    }

    fn filter(&self, _: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        let Some(demands) = data.and_then(|data| data.downcast_ref::<Vec<Demand>>()) else { return Ok(()) };
        // A cluster of one zone may not label its nodes at all.
        if !LABELS.iter().any(|(label, _)| node.labels.contains_key(*label)) {
            return Ok(());
        }
        let meets = |demand: &Demand| {
            let value = node.labels.get(demand.label).or_else(|| node.labels.get(demand.replacement));
            value.is_some_and(|value| demand.values.contains(value))
        };
        match demands.iter().all(meets) {
            true => Ok(()),
            false => Err(Rejection::firm("node(s) had no available volume zone")),
        }
    }
}

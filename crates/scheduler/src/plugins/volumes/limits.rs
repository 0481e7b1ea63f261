//! NodeVolumeLimits: how many volumes of a driver a node can have attached.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;

use super::{class_of, volume_name};
use crate::framework::{Cycle, Data, Events, Plugin, Point, PreFilter, Rejection, Verdict};
use crate::listers::Listers;
use crate::model::{NodeInfo, PodInfo};

pub(in crate::plugins) struct NodeVolumeLimits;

/// Volumes by driver, each once however many pods use it.
type Attached = BTreeMap<String, BTreeSet<String>>;

fn attach(pod: &PodInfo, listers: &Listers, attached: &mut Attached) {
    for name in &pod.claims {
        if let Some((driver, volume)) =
            listers.claims.get(&pod.namespace, name).and_then(|claim| driver_and_volume(&claim, listers))
        {
            attached.entry(driver).or_default().insert(volume);
        }
    }
}

/// A claim without a volume yet will get one of its class's driver.
fn driver_and_volume(claim: &PersistentVolumeClaim, listers: &Listers) -> Option<(String, String)> {
    match volume_name(claim).and_then(|name| listers.volumes.get("", name)) {
        Some(volume) => {
            let csi = volume.spec.as_ref()?.csi.as_ref()?;
            Some((csi.driver.clone(), csi.volume_handle.clone()))
        }
        None => {
            let class = listers.classes.get("", class_of(claim))?;
            let name = format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any());
            Some((class.provisioner.clone(), name))
        }
    }
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED.and(Events::POD_GONE).and(Events::STORAGE)
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        let mut wanted = Attached::new();
        attach(cycle.pod, cycle.listers, &mut wanted);
        if wanted.is_empty() { PreFilter::Skip } else { PreFilter::with(wanted) }
    }

    fn filter(&self, cycle: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        let Some(wanted) = data.and_then(|data| data.downcast_ref::<Attached>()) else { return Ok(()) };
        let Some(csi_node) = cycle.listers.csi_nodes.get("", &node.name) else { return Ok(()) };
        let limits: BTreeMap<&str, usize> = csi_node
            .spec
            .drivers
            .iter()
            .filter_map(|driver| {
                let count = driver.allocatable.as_ref()?.count?;
                Some((driver.name.as_str(), usize::try_from(count).unwrap_or_default()))
            })
            .collect();
        if !wanted.keys().any(|driver| limits.contains_key(driver.as_str())) {
            return Ok(());
        }
        let mut attached = wanted.clone();
        node.pods.iter().for_each(|pod| attach(pod, cycle.listers, &mut attached));
        let exceeded = |driver: &String| {
            let count = attached.get(driver).map_or(0, BTreeSet::len);
            limits.get(driver.as_str()).is_some_and(|limit| count > *limit)
        };
        match wanted.keys().any(exceeded) {
            true => Err(Rejection::preemptible("node(s) exceed max volume count")),
            false => Ok(()),
        }
    }
}

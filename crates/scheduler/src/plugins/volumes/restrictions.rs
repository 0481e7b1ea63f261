//! VolumeRestrictions: disks that only one pod at a time may use.

use std::any::Any;

use k8s_openapi::api::core::v1::Volume;

use crate::framework::{Cycle, Data, Events, Happening, Plugin, Point, PreFilter, Rejection, Verdict};
use crate::model::{NodeInfo, PodInfo};

const EXCLUSIVE: &str = "ReadWriteOncePod";
const IN_USE: &str =
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// The pod's claims that are for one pod alone, and how often other pods use them.
#[derive(Clone, Debug)]
struct Exclusive {
    claims: Vec<String>,
    users: i64,
}

impl Exclusive {
    fn used_by(&self, pod: &PodInfo, other: &PodInfo) -> i64 {
        if pod.namespace != other.namespace {
            return 0;
        }
        i64::try_from(other.claims.iter().filter(|claim| self.claims.contains(claim)).count()).unwrap_or(i64::MAX)
    }
}

pub(in crate::plugins) struct VolumeRestrictions;

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        "VolumeRestrictions"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED.and(Events::POD_GONE).and(Events::STORAGE)
    }

    fn helps(&self, pod: &PodInfo, happening: &Happening<'_>) -> bool {
        happening
            .pod
            .is_none_or(|gone| pod.claims.iter().any(|claim| gone.claims.contains(claim)) || shares_disk(pod, gone))
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        let pod = cycle.pod;
        let mut exclusive = Exclusive { claims: Vec::new(), users: 0 };
        for name in &pod.claims {
            let Some(claim) = cycle.listers.claims.get(&pod.namespace, name) else {
                return PreFilter::Reject(Rejection::firm(format!("persistentvolumeclaim \"{name}\" not found")));
            };
            let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
            if modes.is_some_and(|modes| modes.iter().any(|mode| mode == EXCLUSIVE)) {
                exclusive.claims.push(name.clone());
            }
        }
        if !exclusive.claims.is_empty() {
            let placed = cycle.cache.nodes().flat_map(|node| &node.pods);
            exclusive.users = placed.map(|other| exclusive.used_by(pod, other)).sum();
        }
        let has_disks = pod.volumes().iter().any(|volume| disk(volume).is_some());
        if exclusive.users == 0 && !has_disks { PreFilter::Skip } else { PreFilter::with(exclusive) }
    }

    fn adjust(&self, cycle: &Cycle<'_>, data: &mut dyn Any, other: &PodInfo, _: &NodeInfo, change: i64) {
        if let Some(exclusive) = data.downcast_mut::<Exclusive>() {
            exclusive.users += change * exclusive.used_by(cycle.pod, other);
        }
    }

    fn filter(&self, cycle: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        if node.pods.iter().any(|other| shares_disk(cycle.pod, other)) {
            return Err(Rejection::preemptible("node(s) had no available disk"));
        }
        match data.and_then(|data| data.downcast_ref::<Exclusive>()) {
            Some(exclusive) if exclusive.users > 0 => Err(Rejection::preemptible(IN_USE)),
            _ => Ok(()),
        }
    }
}

/// What identifies a disk that is attached to one node, and whether it is only read.
fn disk(volume: &Volume) -> Option<(Vec<String>, bool)> {
    let read_only = |flag: Option<bool>| flag.unwrap_or_default();
    if let Some(disk) = &volume.gce_persistent_disk {
        return Some((vec![format!("gce/{}", disk.pd_name)], read_only(disk.read_only)));
    }
    if let Some(disk) = &volume.aws_elastic_block_store {
        return Some((vec![format!("aws/{}", disk.volume_id)], false));
    }
    if let Some(disk) = &volume.iscsi {
        return Some((vec![format!("iscsi/{}", disk.iqn)], read_only(disk.read_only)));
    }
    let disk = volume.rbd.as_ref()?;
    // The same image by way of any common monitor.
    let pool = disk.pool.as_deref().unwrap_or("rbd");
    let names = disk.monitors.iter().map(|monitor| format!("rbd/{monitor}/{pool}/{}", disk.image)).collect();
    Some((names, read_only(disk.read_only)))
}

fn shares_disk(pod: &PodInfo, other: &PodInfo) -> bool {
    pod.volumes().iter().filter_map(disk).any(|(names, reads)| {
        other.volumes().iter().filter_map(disk).any(|(other_names, other_reads)| {
            !(reads && other_reads) && names.iter().any(|name| other_names.contains(name))
        })
    })
}

//! The plugins every cluster knows, under the names operators configure them by.

mod default_binder;
mod default_preemption;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_resources;
mod pod_topology_spread;
mod simple;
mod taint_toleration;
mod volumes;

use std::sync::Arc;

use kube::Client;

use crate::framework::{Plugin, Profile, Registered};

/// Everything but the binder, which needs a client: enough to decide, not to bind.
pub fn default_profile(scheduler_name: &str) -> Profile {
    Profile::new(scheduler_name, default_plugins(volumes::VolumeBinding::default()))
}

/// The default plugins with their weights, and binding through the API.
pub fn binding_profile(scheduler_name: &str, client: Client) -> Profile {
    let mut plugins = default_plugins(volumes::VolumeBinding::new(client.clone()));
    plugins.push(weighted(default_binder::DefaultBinder::new(client), 1));
    Profile::new(scheduler_name, plugins)
}

fn default_plugins(volume_binding: volumes::VolumeBinding) -> Vec<Registered> {
    vec![
        weighted(simple::SchedulingGates, 1),
        weighted(simple::PrioritySort, 1),
        weighted(simple::NodeName, 1),
        weighted(simple::NodeUnschedulable, 1),
        weighted(taint_toleration::TaintToleration, 3),
        weighted(node_affinity::NodeAffinity, 2),
        weighted(simple::NodePorts, 1),
        weighted(node_resources::Fit::default(), 1),
        weighted(volumes::VolumeRestrictions, 1),
        weighted(volumes::NodeVolumeLimits, 1),
        weighted(volume_binding, 1),
        weighted(volumes::VolumeZone, 1),
        weighted(pod_topology_spread::PodTopologySpread::default(), 2),
        weighted(inter_pod_affinity::InterPodAffinity::default(), 2),
        weighted(default_preemption::DefaultPreemption::default(), 1),
        weighted(node_resources::BalancedAllocation::default(), 1),
        weighted(image_locality::ImageLocality, 1),
    ]
}

fn weighted(plugin: impl Plugin, weight: i64) -> Registered {
    Registered { plugin: Arc::new(plugin), weight }
}

#[cfg(test)]
mod tests;

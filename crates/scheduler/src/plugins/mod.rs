//! The plugins every cluster knows, under the names operators configure them by.

mod default_binder;
mod default_preemption;
mod dynamic_resources;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_resources;
mod pod_topology_spread;
mod simple;
mod taint_toleration;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;

use crate::config::{PluginConfig, types};
use crate::framework::{Plugin, Profile, Registered};

/// What a plugin is made from.
pub struct Making<'a> {
    /// Its arguments as they were written; null where none are.
    pub config: PluginConfig,
    /// Resources that extenders manage alone.
    pub ignored_resources: &'a [String],
    /// Nothing where only decisions are asked for.
    pub client: Option<&'a Client>,
}

/// Makes a plugin that is not one of these.
#[derive(Clone, Copy)]
pub struct Factory {
    pub name: &'static str,
    pub make: fn(&Making<'_>) -> Result<Arc<dyn Plugin>, PluginError>,
}

/// Why a plugin cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    #[error("plugin {0:?} does not exist")]
    Unknown(String),
    #[error("{0} needs a client")]
    NoClient(&'static str),
    /// They say of themselves that they are another plugin's.
    #[error("has to match plugin args")]
    OtherArguments,
    #[error("{0}")]
    Arguments(String),
}

/// The plugins of a profile that says nothing, in their order, with the weights of their scores.
pub const DEFAULTS: &[(&str, i64)] = &[
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
];

/// Makes the plugin of that name.
pub(crate) fn make(name: &str, making: &Making<'_>) -> Result<Arc<dyn Plugin>, PluginError> {
    Ok(match name {
        "SchedulingGates" => Arc::new(simple::SchedulingGates),
        "PrioritySort" => Arc::new(simple::PrioritySort),
        "NodeUnschedulable" => Arc::new(simple::NodeUnschedulable),
        "NodeName" => Arc::new(simple::NodeName),
        "TaintToleration" => Arc::new(taint_toleration::TaintToleration),
        "NodeAffinity" => {
            let args: types::NodeAffinityArgs = crate::config::arguments(&making.config)?;
            Arc::new(node_affinity::NodeAffinity::new(args.added_affinity.as_ref()))
        }
        "NodePorts" => Arc::new(simple::NodePorts),
        "NodeResourcesFit" => {
            let args = crate::config::arguments(&making.config)?;
            Arc::new(node_resources::Fit::new(args, making.ignored_resources))
        }
        "VolumeRestrictions" => Arc::new(volumes::VolumeRestrictions),
        "NodeVolumeLimits" => Arc::new(volumes::NodeVolumeLimits),
        "VolumeBinding" => {
            let args: types::VolumeBindingArgs = crate::config::arguments(&making.config)?;
            let timeout = Duration::from_secs(u64::try_from(args.bind_timeout_seconds).unwrap_or_default());
            let mut plugin = making.client.cloned().map_or_else(Default::default, volumes::VolumeBinding::new);
            plugin.bind_timeout = timeout;
            Arc::new(plugin)
        }
        "VolumeZone" => Arc::new(volumes::VolumeZone),
        "PodTopologySpread" => {
            Arc::new(pod_topology_spread::PodTopologySpread::new(&crate::config::arguments(&making.config)?))
        }
        "InterPodAffinity" => {
            let args: types::InterPodAffinityArgs = crate::config::arguments(&making.config)?;
            Arc::new(inter_pod_affinity::InterPodAffinity {
                hard_weight: args.hard_pod_affinity_weight,
                ignore_wishes_of_placed: args.ignore_preferred_terms_of_existing_pods,
            })
        }
        "DynamicResources" => {
            let args: types::DynamicResourcesArgs = crate::config::arguments(&making.config)?;
            Arc::new(dynamic_resources::DynamicResources::new(making.client.cloned(), &args))
        }
        "DefaultPreemption" => {
            let args: types::DefaultPreemptionArgs = crate::config::arguments(&making.config)?;
            let number = |value: i64| usize::try_from(value).unwrap_or_default();
            Arc::new(default_preemption::DefaultPreemption {
                percentage: number(args.min_candidate_nodes_percentage),
                fewest: number(args.min_candidate_nodes_absolute),
            })
        }
        "NodeResourcesBalancedAllocation" => {
            let args: types::BalancedAllocationArgs = crate::config::arguments(&making.config)?;
            Arc::new(node_resources::BalancedAllocation::new(args.resources))
        }
        "ImageLocality" => Arc::new(image_locality::ImageLocality),
        "DefaultBinder" => match making.client {
            Some(client) => Arc::new(default_binder::DefaultBinder::new(client.clone())),
            None => return Err(PluginError::NoClient("DefaultBinder")),
        },
        other => return Err(PluginError::Unknown(other.to_owned())),
    })
}

/// Everything but the binder, which needs a client: enough to decide, not to bind.
pub fn default_profile(scheduler_name: &str) -> Profile {
    profile(scheduler_name, None)
}

/// The default plugins with their weights, and binding through the API.
pub fn binding_profile(scheduler_name: &str, client: &Client) -> Profile {
    profile(scheduler_name, Some(client))
}

fn profile(scheduler_name: &str, client: Option<&Client>) -> Profile {
    let make = |(name, weight): &(&str, i64)| {
        let config = PluginConfig { name: (*name).to_owned(), args: Value::Null };
        let plugin = make(name, &Making { config, ignored_resources: &[], client }).ok()?;
        Some(Registered { plugin, weight: (*weight).max(1) })
    };
    Profile::new(scheduler_name, DEFAULTS.iter().filter_map(make).collect())
}

#[cfg(test)]
mod tests;

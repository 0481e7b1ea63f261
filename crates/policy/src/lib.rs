//! NetworkPolicies, and ClusterNetworkPolicies where the cluster has that kind, as nftables rules on this node, for its pods.
//!
//! Pods, namespaces and policies come from informers, addresses of new pods from the kubelet through a gate (`gate`): a pod that
//! a policy selects is closed before its first process starts. `state` is pure: it keeps which policies select which pods and
//! which addresses each selector stands for, and yields the difference to what the kernel has; `sync` applies it as one
//! transaction. Rules are for both families of addresses. `ports` keeps pods from using addresses that are not theirs.
//!
//! Must not depend on any server-side crate.

mod chain;
mod cluster_policy;
mod compile;
mod conntrack;
mod gate;
mod held;
mod node_policies;
mod pods;
mod policy;
mod ports;
mod selection;
mod served;
mod stored;
mod sync;
mod table;
mod verdict;

use std::net::Ipv4Addr;

use ferry_client::{Api, Informer, Informers, Selection};
use ferry_nft::{Nft, Watch};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

pub use cluster_policy::{GROUP, PLURAL, StoredClusterPolicy, VERSION};
pub use ferry_nft::NftError;
pub use gate::{Gate, GateError, Newcomers, gate};
pub use stored::StoredPolicy;
pub use sync::Sources;
pub use verdict::{Connection, Denied, Rules, Verdict, judge};

impl Sources {
    /// Those that others in the process hold already.
    pub fn shared(informers: &Informers) -> Self {
        Self {
            pods: informers.of(),
            namespaces: informers.of(),
            policies: informers.of(),
            nodes: informers.of(),
            cluster_policies: served::cluster_policies(informers),
        }
    }

    /// Where nobody else needs pods: no more is held of each than policies need.
    pub fn own(informers: &Informers) -> Self {
        let (client, tasks) = (informers.client().clone(), informers.tasks());
        let pods = Informer::trimmed(Api::<Pod>::all(client.clone()), tasks, Selection::default(), pods::trim);
        let trim = |policy: &mut StoredPolicy| {
            policy.0.metadata.managed_fields = None;
            policy.0.metadata.annotations = None;
        };
        let policies = Informer::trimmed(Api::<StoredPolicy>::all(client), tasks, Selection::default(), trim);
        Self {
            pods,
            namespaces: informers.of(),
            policies,
            nodes: informers.of(),
            cluster_policies: served::cluster_policies(informers),
        }
    }
}

/// What the pods of this node are attached to.
#[derive(Clone, Debug)]
pub struct Bridge {
    pub name: String,
    /// What every pod on it takes for an address of its own: the last of their range, and with older kernels the first.
    pub broadcasts: Vec<Ipv4Addr>,
}

/// Running enforcement.
#[derive(Clone, Debug)]
pub struct Policies {
    ready: watch::Receiver<bool>,
}

impl Policies {
    /// Waits until the kernel holds the rules for everything that existed at the start.
    pub async fn ready(&self) {
        // Fails only when it was stopped before: then nobody can be waiting for its rules.
        let _ = self.ready.clone().wait_for(|ready| *ready).await;
    }
}

/// Follows the cluster until `tasks` stops. The rules stay when it stops: pods stay closed while the node restarts.
pub fn start(
    node_name: &str,
    table: &str,
    bridge: Bridge,
    nft: Vec<String>,
    sources: Sources,
    newcomers: Newcomers,
    tasks: &Tasks,
) -> Policies {
    let (sender, ready) = watch::channel(false);
    let sync = sync::Sync::new(node_name, table, bridge, Nft::new(nft), sources, newcomers, sender);
    tasks.child("network policies").spawn_critical_once("network policies", async move {
        match Watch::new(sync.nft()) {
            Ok(watch) => sync.watching(watch).run().await,
            Err(error) => {
                tracing::error!("what others do to the rules of NetworkPolicies is not seen: {error}");
                sync.run().await;
            }
        }
    });
    Policies { ready }
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod cluster_cases;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod node_policies_tests;

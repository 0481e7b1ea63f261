//! Writes the limits of all pods, and of parts of the system, into their control groups.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::EventType;

use super::Enforcement;
use crate::context::Context;
use crate::node::reference;
use crate::volumes::blocking;

const ENFORCED: &str = "NodeAllocatableEnforced";
const FAILED: &str = "FailedNodeAllocatableEnforcement";
/// Pods that have more than the limit may be evicted meanwhile.
const RETRY: Duration = Duration::from_secs(60);

/// Limits the groups of the system at once, an error where that cannot be; the group of all pods as soon as they fit.
pub(crate) async fn enforce(context: &Arc<Context>) -> Result<(), String> {
    let event = |kind, reason, message: String| context.recorder.event_for(reference(context), kind, reason, message);
    let resources = &context.config.resources;
    for (enforcement, what, group, reserved) in [
        (Enforcement::SystemReserved, "System", &resources.system_cgroup, &resources.system_reserved),
        (Enforcement::KubeReserved, "Kube", &resources.kube_cgroup, &resources.kube_reserved),
        (Enforcement::SystemReservedCompressible, "System", &resources.system_cgroup, &resources.system_reserved),
        (Enforcement::KubeReservedCompressible, "Kube", &resources.kube_cgroup, &resources.kube_reserved),
    ] {
        if !resources.enforcements.contains(&enforcement) {
            continue;
        }
        let compressible =
            matches!(enforcement, Enforcement::SystemReservedCompressible | Enforcement::KubeReservedCompressible);
        if let Err(error) = context.hardware.groups.limit_existing(group, reserved, compressible).await {
            let kind = if compressible { "Reserved Compressible" } else { "Reserved" };
            let message = format!("Failed to enforce {what} {kind} Cgroup Limits on {group:?}: {error}");
            event(EventType::Warning, FAILED, message.clone());
            return Err(message);
        }
        let message = format!("Updated limits on {} reserved cgroup {group}", what.to_lowercase());
        event(EventType::Normal, ENFORCED, message);
    }
    let own = context.clone();
    context.tasks.spawn_until_stopped("node allocatable", async move {
        let event = |kind, reason, message: String| own.recorder.event_for(reference(&own), kind, reason, message);
        // Off the workers: where pods use more memory than that already, the write waits until the kernel has taken it from them.
        let limit = || {
            let (own, here) = (own.clone(), tokio::runtime::Handle::current());
            blocking(move || here.block_on(own.hardware.groups.limit_all()).map_err(|error| error.to_string()))
        };
        while let Err(error) = limit().await {
            tracing::warn!("the limits of all pods together are not set: {error}");
            event(EventType::Warning, FAILED, format!("Failed to update Node Allocatable Limits: {error}"));
            tokio::time::sleep(RETRY).await;
        }
        event(EventType::Normal, ENFORCED, "Updated Node Allocatable limit across pods".to_owned());
    });
    Ok(())
}

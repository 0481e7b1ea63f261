//! Moves the containers that run to the CPUs they may use now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_cri::v1::LinuxContainerResources;

use super::CpuSet;
use crate::context::Context;

/// Changes that come together are followed together.
const TOGETHER: Duration = Duration::from_millis(20);

/// For ever: after every change of what is given out, when containers come and go, and now and then, for what has failed.
pub(crate) async fn reconcile(context: Arc<Context>) {
    if !context.hardware.cpus.is_static() {
        return std::future::pending().await;
    }
    let mut given_out = context.hardware.cpus.changes();
    let mut runtime = context.runtime_state.changes.subscribe();
    let period = context.config.resources.cpu_manager_reconcile_period;
    let mut told = HashMap::new();
    loop {
        if let Err(why) = once(&context, &mut told).await {
            tracing::debug!("the CPUs of containers are not looked at: {why}");
        }
        tokio::select! {
            _ = given_out.changed() => {}
            _ = runtime.changed() => {}
            () = tokio::time::sleep(period) => {}
        }
        tokio::time::sleep(TOGETHER).await;
    }
}

/// `told` is what the containers, by their ids, are known to have.
async fn once(context: &Context, told: &mut HashMap<String, CpuSet>) -> Result<(), String> {
    let running = context.runtime.running().await.map_err(|error| error.to_string())?;
    told.retain(|id, _| running.iter().any(|container| container.id == *id));
    for container in running {
        let cpus = context.hardware.cpus.affinity(&container.uid, &container.name);
        // An empty set would be no set to the runtime, and all of them to the kernel.
        if cpus.is_empty() || told.get(&container.id) == Some(&cpus) {
            continue;
        }
        let amounts = LinuxContainerResources { cpuset_cpus: cpus.to_string(), ..LinuxContainerResources::default() };
        match context.runtime.update_resources(&container.id, amounts).await {
            Ok(()) => drop(told.insert(container.id, cpus)),
            Err(error) => tracing::warn!(container = container.name, "not moved to CPUs {cpus}: {error}"),
        }
    }
    Ok(())
}

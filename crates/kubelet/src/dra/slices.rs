//! ResourceSlices of a driver that is gone: the scheduler must not count on its devices.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::{Api, write};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, ListParams};

use crate::context::Context;

/// A driver that is updated is back in this time; upstream's.
const GRACE: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(5);

/// Deletes what the driver published for this node, unless it comes back.
pub(crate) fn withdraw(context: &Arc<Context>, driver: &str) {
    let (context, driver) = (context.clone(), driver.to_owned());
    let tasks = context.tasks.clone();
    tasks.spawn_until_stopped("slices of a driver", async move {
        tokio::time::sleep(GRACE).await;
        let api: Api<ResourceSlice> = Api::all(context.client.clone());
        let node = &context.config.node_name;
        let own = ListParams::default().fields(&format!("spec.nodeName={node},spec.driver={driver}"));
        while !context.hardware.dra.is_registered(&driver) {
            match api.delete_collection(&DeleteParams::default(), &own).await {
                Ok(_) => return,
                Err(error) => tracing::debug!("the slices of {driver} are not deleted: {}", write::short(&error)),
            }
            tokio::time::sleep(RETRY).await;
        }
    });
}

//! What an owner's dependents are by the server's word, where it would be too late to hear of one afterwards.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_client::discovery::ServerResource;
use ferry_client::{Error, write};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::graph::Node;
use super::reconcile::Collector;

#[derive(Clone)]
pub(super) struct Found {
    pub(super) resource: Arc<ServerResource>,
    pub(super) meta: ObjectMeta,
}

/// Everything in a namespace that has an owner, as it was at one time.
struct Sweep {
    namespace: String,
    begun: Instant,
    by_owner: HashMap<String, Vec<Found>>,
}

/// One sweep at a time. Those who wait for it share the next one, so that many owners that go at once do not cost a sweep each.
#[derive(Default)]
pub(super) struct Sweeps {
    last: Mutex<Option<Sweep>>,
}

impl Sweeps {
    /// The dependents that the owner has from now on: nobody makes more of them while it goes.
    pub(super) async fn dependents(&self, collector: &Collector, owner: &Node, uid: &str) -> Result<Vec<Found>, Error> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        let fits = |sweep: &Sweep| sweep.namespace == owner.namespace && sweep.begun >= asked;
        if last.as_ref().is_none_or(|sweep| !fits(sweep)) {
            *last = None;
            *last = Some(sweep(collector, &owner.namespace).await?);
        }
        Ok(last.as_ref().and_then(|sweep| sweep.by_owner.get(uid).cloned()).unwrap_or_default())
    }
}

/// Resources that have no such list, or not for us, have no dependents that we could orphan.
fn is_no_ones(error: &kube::Error) -> bool {
    write::status_of(error).is_some_and(|status| [403, 404, 405].contains(&status.code))
}

/// Whether another server answers for the resource. One that cannot answer must not keep everything else from going; an
/// error of our own server passes, and what it did not list would be collected instead of orphaned.
async fn is_aggregated(collector: &Collector, resource: &ServerResource) -> Result<bool, Error> {
    let (group, version) = (&resource.resource.group, &resource.resource.version);
    if group.is_empty() {
        return Ok(false);
    }
    let found = collector.api_service(&format!("{version}.{group}")).await?;
    Ok(found.is_some_and(|service| !service["spec"]["service"].is_null()))
}

async fn sweep(collector: &Collector, namespace: &str) -> Result<Sweep, Error> {
    let mut made = Sweep { namespace: namespace.to_owned(), begun: Instant::now(), by_owner: HashMap::new() };
    for resource in collector.resources() {
        // What belongs to something in a namespace is in it too.
        if !resource.namespaced && !namespace.is_empty() {
            continue;
        }
        let resource = Arc::new(resource);
        let listed = match collector.api(&resource, namespace).list(&ListParams::default()).await {
            Ok(list) => list.items,
            Err(error) if is_no_ones(&error) || is_aggregated(collector, &resource).await? => {
                tracing::debug!(resource = resource.resource.plural, "cannot be listed: {}", write::short(&error));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for object in listed {
            for owner in object.metadata.owner_references.iter().flatten() {
                let found = Found { resource: resource.clone(), meta: object.metadata.clone() };
                made.by_owner.entry(owner.uid.clone()).or_default().push(found);
            }
        }
    }
    Ok(made)
}

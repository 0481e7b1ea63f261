//! Deletes what is in a namespace, resource by resource, and counts what is left.

use std::time::Duration;

use ferry_client::Api;
use ferry_client::discovery::{self, ServerResource};
use ferry_client::write;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;

use super::plan::Outcome;

type Metadata = PartialObjectMeta<DynamicObject>;

/// One pass over a namespace whose deletion began so long ago; the second value is how long the slowest pod may take to stop.
pub(super) async fn delete(
    client: &Client,
    namespace: &str,
    age: Duration,
) -> Result<(Outcome, Duration), kube::Error> {
    let mut outcome = Outcome::default();
    let found = discovery::resources(client).await?;
    outcome.undiscovered = found.failed;
    let deletable = |known: &ServerResource| known.namespaced && known.allows("delete") && known.allows("list");
    let mut resources: Vec<ServerResource> = found.resources.into_iter().filter(deletable).collect();
    // Pods first, and nothing else while some are left: they may still use what else is there.
    let is_pods = |known: &ServerResource| known.resource.group.is_empty() && known.resource.plural == "pods";
    resources.sort_by_key(|known| !is_pods(known));
    for resource in resources {
        match empty(client, namespace, &resource, &mut outcome).await {
            Err(error) => outcome.failures.push(write::short(&error)),
            // Nothing holds them, and they have had their time.
            Ok(Left::Unheld) if !is_pods(&resource) || grace(client, namespace).await <= age => {
                let (group, version) = (&resource.resource.group, &resource.resource.version);
                outcome.failures.push(format!(
                    "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={}",
                    resource.resource.plural
                ));
            }
            Ok(_) => {}
        }
        if is_pods(&resource) && outcome.remaining.contains_key("pods.") {
            break;
        }
    }
    let grace = if outcome.remaining.contains_key("pods.") { grace(client, namespace).await } else { Duration::ZERO };
    Ok((outcome, grace))
}

/// What there is after everything was deleted.
enum Left {
    Nothing,
    /// Waits for finalizers, at least some of it.
    Held,
    Unheld,
}

async fn empty(
    client: &Client,
    namespace: &str,
    resource: &ServerResource,
    outcome: &mut Outcome,
) -> Result<Left, kube::Error> {
    let api: Api<Metadata> = Api::namespaced_with(client.clone(), namespace, &resource.resource);
    let there = list(&api).await?;
    if there.is_empty() {
        return Ok(Left::Nothing);
    }
    let background = DeleteParams::background();
    let collection: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource.resource);
    if resource.allows("deletecollection") {
        collection.delete_collection(&background, &ListParams::default()).await?;
    } else {
        for object in there.iter().filter(|object| object.metadata.deletion_timestamp.is_none()) {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            if let Err(error) = collection.delete(name, &background).await
                && !write::is_not_found(&error)
            {
                return Err(error);
            }
        }
    }
    let left = list(&api).await?;
    for finalizer in left.iter().flat_map(|object| object.metadata.finalizers.iter().flatten()) {
        *outcome.finalizers.entry(finalizer.clone()).or_default() += 1;
    }
    if left.is_empty() {
        return Ok(Left::Nothing);
    }
    let name = format!("{}.{}", resource.resource.plural, resource.resource.group);
    outcome.remaining.insert(name, left.len());
    let held = left.iter().any(|object| object.metadata.finalizers.iter().flatten().next().is_some());
    Ok(if held { Left::Held } else { Left::Unheld })
}

/// What is gone or cannot be listed is not there.
async fn list(api: &Api<Metadata>) -> Result<Vec<Metadata>, kube::Error> {
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(error) if write::is_not_found(&error) => Ok(Vec::new()),
        Err(error) if write::status_of(&error).is_some_and(|status| status.code == 405) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn grace(client: &Client, namespace: &str) -> Duration {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let longest = pods.iter().filter_map(|pod| pod.metadata.deletion_grace_period_seconds).max().unwrap_or_default();
    Duration::from_secs(u64::try_from(longest).unwrap_or_default())
}

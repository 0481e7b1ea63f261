//! One metadata watch per resource that can be listed, watched and deleted, as the server has them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::discovery::{self, ServerResource};
use ferry_client::{Api, Change, Informer, Informers, Objects, Selection};
use ferry_semantics::backoff::Backoff;
use ferry_tasks::Tasks;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use tokio::sync::Notify;

use super::reconcile::Collector;
use crate::Context;

type Metadata = PartialObjectMeta<DynamicObject>;

/// Resources change with CustomResourceDefinitions and APIServices, which are watched, and by what servers do untold.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
const RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// A definition changes several times while it is being established.
const SETTLE: Duration = Duration::from_millis(200);

/// Where watches come from.
pub(super) struct Source {
    /// Those of all controllers: most kinds are in their caches already.
    informers: Informers,
    client: Client,
    tasks: Tasks,
}

pub(super) async fn run(source: Source, collector: Arc<Collector>) {
    let changed = Arc::new(Notify::new());
    let mut watched: HashMap<ApiResource, Watch> = HashMap::new();
    let (mut watches_definitions, mut watches_services) = (false, false);
    let mut retry = Backoff::new(RETRY, LONGEST_RETRY);
    loop {
        match discovery::resources(&source.client).await {
            Ok(found) => {
                retry.reset();
                let serves = |plural: &str| found.resources.iter().any(|known| known.resource.plural == plural);
                if serves("apiservices") && !watches_services {
                    watches_services = true;
                    let changed = changed.clone();
                    source.informers.of::<APIService>().on_change(move |change| {
                        if change.old().is_none_or(|old| is_available(old) != is_available(change.object())) {
                            changed.notify_one();
                        }
                    });
                }
                if serves("customresourcedefinitions") && !watches_definitions {
                    watches_definitions = true;
                    let changed = changed.clone();
                    let definitions = source.informers.of::<CustomResourceDefinition>();
                    definitions.on_change(move |_| changed.notify_one());
                }
                let complete = found.failed.is_empty();
                sync(&mut watched, found.resources, complete, &source, &collector).await;
                collector.complete();
                tokio::select! {
                    () = changed.notified() => tokio::time::sleep(SETTLE).await,
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                }
            }
            Err(error) => {
                tracing::debug!("cannot discover resources: {}", ferry_client::write::short(&error));
                tokio::time::sleep(retry.next_delay()).await;
            }
        }
    }
}

/// Whether the server behind it answers; until then its resources are not known.
fn is_available(service: &APIService) -> bool {
    let mut conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Available" && condition.status == "True")
}

struct Watch {
    resource: Arc<ServerResource>,
    objects: Objects,
    /// Of a watch that only the collector needs.
    tasks: Tasks,
    /// Whoever shares a watch goes on without us: our handler hears of nothing once this is gone.
    _heard: Arc<()>,
}

async fn sync(
    watched: &mut HashMap<ApiResource, Watch>,
    found: Vec<ServerResource>,
    complete: bool,
    source: &Source,
    collector: &Arc<Collector>,
) {
    let wanted: HashMap<ApiResource, ServerResource> = found
        .into_iter()
        // Events refer to objects without owning or being owned, and there are many.
        .filter(|resource| resource.resource.plural != "events")
        .filter(|resource| ["list", "watch", "delete"].iter().all(|verb| resource.allows(verb)))
        .map(|resource| (resource.resource.clone(), resource))
        .collect();
    collector.set_resources(wanted.values().cloned());
    // While a group does not answer, its resources are not known to be gone.
    if complete {
        let gone: Vec<ApiResource> = watched.keys().filter(|known| !wanted.contains_key(*known)).cloned().collect();
        for watch in gone.into_iter().filter_map(|resource| watched.remove(&resource)) {
            watch.tasks.stop(Duration::from_secs(1)).await;
            for object in watch.objects.list() {
                collector.changed(&watch.resource, &Change::Deleted(object));
            }
        }
    }
    for (resource, server) in wanted {
        watched.entry(resource).or_insert_with(|| start(server, source, collector));
    }
    for watch in watched.values() {
        // A resource that cannot be listed must not hold up the collection of all others.
        let _ = tokio::time::timeout(Duration::from_secs(30), watch.objects.synced()).await;
    }
}

fn start(server: ServerResource, source: &Source, collector: &Arc<Collector>) -> Watch {
    let resource = Arc::new(server);
    let tasks = source.tasks.child("garbage collector's watch");
    let api: Api<Metadata> = Api::all_with(source.client.clone(), &resource.resource);
    let objects = source.informers.held(api.resource_url()).unwrap_or_else(|| {
        let informer = Informer::trimmed(api, &tasks, Selection::default(), |object: &mut Metadata| {
            object.metadata.annotations = None;
            object.metadata.labels = None;
        });
        informer.objects()
    });
    let heard = Arc::new(());
    let (collector, of, hears) = (collector.clone(), resource.clone(), Arc::downgrade(&heard));
    objects.on_change(move |change| {
        if hears.strong_count() > 0 {
            collector.changed(&of, change);
        }
    });
    Watch { resource, objects, tasks, _heard: heard }
}

/// Starts the monitor in the context's tasks.
pub(super) fn start_in(context: &Context, client: Client, collector: Arc<Collector>) {
    let (informers, tasks) = (context.informers.clone(), context.tasks.clone());
    context.tasks.spawn_critical("garbage collector's monitor", move || {
        let (informers, client, collector) = (informers.clone(), client.clone(), collector.clone());
        // Watches of a life that ended in a panic end with it.
        let tasks = tasks.child("garbage collector");
        let end = tasks.stopping().drop_guard();
        async move {
            run(Source { informers, client, tasks }, collector).await;
            drop(end);
        }
    });
}

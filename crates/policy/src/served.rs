//! ClusterNetworkPolicies are a kind that a cluster may get, and lose again, at any time. Here they are an informer that is always there:
//! empty as long as the API server does not have the kind.

use std::time::Duration;

use ferry_client::{Api, Change, Informer, Informers, Selection, Subscription};
use ferry_tasks::Tasks;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

use crate::cluster_policy::{GROUP, PLURAL, StoredClusterPolicy, VERSION};

const RETRY: Duration = Duration::from_secs(1);
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Follows the kind until the tasks of the informers stop. In sync once it is known whether there is one, and all of it.
pub(crate) fn cluster_policies(informers: &Informers) -> Informer<StoredClusterPolicy> {
    let followed = Informer::detached();
    let tasks = informers.tasks().child("cluster network policies");
    let follow = Follow { client: informers.client().clone(), tasks: tasks.clone(), followed: followed.clone() };
    tasks.spawn_until_stopped("the kind ClusterNetworkPolicy", follow.run());
    followed
}

struct Follow {
    client: Client,
    tasks: Tasks,
    followed: Informer<StoredClusterPolicy>,
}

impl Follow {
    async fn run(self) {
        let name = format!("metadata.name={PLURAL}.{GROUP}");
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        let definitions = Informer::trimmed(api, &self.tasks, Selection::fields(name), trim);
        let mut changes = definitions.subscribe();
        // Whoever may not look at definitions may still ask what is served.
        let mut is_served = self.is_served_now().await;
        loop {
            if is_served {
                self.forward(&mut changes).await;
            } else {
                self.followed.mark_synced();
                while !serves(&changes.next().await) {}
            }
            is_served = !is_served;
        }
    }

    async fn is_served_now(&self) -> bool {
        loop {
            match self.client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await {
                Ok(list) => return list.resources.iter().any(|one| one.name == PLURAL),
                Err(kube::Error::Api(status)) if status.code == 404 => return false,
                Err(error) => tracing::debug!("whether there are ClusterNetworkPolicies is not known yet: {error}"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// As long as the kind is there.
    async fn forward(&self, definitions: &mut Subscription<CustomResourceDefinition>) {
        let tasks = self.tasks.child("the objects");
        let source = Informer::<StoredClusterPolicy>::with(self.client.clone(), &tasks, Selection::default());
        let mut changes = source.subscribe();
        let mut is_synced = false;
        loop {
            tokio::select! {
                () = source.synced(), if !is_synced => {
                    while let Some(change) = changes.try_next() {
                        self.take(&change);
                    }
                    is_synced = true;
                    self.followed.mark_synced();
                }
                change = changes.next() => self.take(&change),
                change = definitions.next() => if !serves(&change) { break },
            }
        }
        tasks.stop(STOP_PATIENCE).await;
        for gone in self.followed.list() {
            self.followed.remove((*gone).clone());
        }
    }

    fn take(&self, change: &Change<StoredClusterPolicy>) {
        let object = (**change.object()).clone();
        match change {
            Change::Deleted(_) => self.followed.remove(object),
            _ => self.followed.apply(object),
        }
    }
}

/// Schemas are large, and not looked at.
fn trim(definition: &mut CustomResourceDefinition) {
    for version in &mut definition.spec.versions {
        version.schema = None;
    }
    definition.metadata.annotations = None;
}

fn serves(change: &Change<CustomResourceDefinition>) -> bool {
    if matches!(change, Change::Deleted(_)) {
        return false;
    }
    let definition = change.object();
    let conditions = definition.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let is_established = conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True");
    is_established && definition.spec.versions.iter().any(|one| one.name == VERSION && one.served)
}

//! The ConfigMaps, Secrets and trust bundles that the node's pods refer to.
//!
//! A node may only read the ConfigMaps and Secrets that its pods use, hence one watch per object instead of one per kind.
//! Trust bundles are for everyone, and pods pick them by labels: one watch of all, started when the first pod wants one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferry_client::informer::Cached;
use ferry_client::{Api, Informer, Selection};
use ferry_tasks::Tasks;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::certificates::v1::{ClusterTrustBundle, PodCertificateRequest};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, Resource};
use parking_lot::Mutex;

/// How long a pod waits for the first list of the trust bundles before it says so.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);

type Wake = Arc<dyn Fn(&str) + Send + Sync>;
type Users = Arc<Mutex<HashSet<String>>>;

struct Entry<K> {
    informer: Informer<K>,
    tasks: Tasks,
    /// The uids of the pods that refer to the object.
    users: Users,
}

/// Objects of one kind.
pub(crate) struct Watched<K> {
    client: Client,
    tasks: Tasks,
    wake: Wake,
    /// What every watch selects by besides the name; may be empty.
    fields: String,
    entries: Mutex<HashMap<(String, String), Entry<K>>>,
}

impl<K> Watched<K>
where
    K: Cached + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    fn new(client: Client, tasks: Tasks, wake: Wake) -> Self {
        Self { client, tasks, wake, fields: String::new(), entries: Mutex::default() }
    }

    fn selecting(self, fields: String) -> Self {
        Self { fields, ..self }
    }

    /// The object for a pod, which is woken whenever it changes from now on.
    pub(crate) async fn get(&self, uid: &str, namespace: &str, name: &str) -> Result<Option<Arc<K>>, kube::Error> {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        {
            let mut entries = self.entries.lock();
            let entry = entries.entry((namespace.to_owned(), name.to_owned())).or_insert_with(|| {
                let tasks = self.tasks.child("source");
                let config = Selection::fields(format!("metadata.name={name}{}", self.fields));
                let informer = Informer::over(api.clone(), &tasks, config);
                let users = Users::default();
                let (told, wake) = (users.clone(), self.wake.clone());
                informer.on_change(move |_| {
                    let users: Vec<String> = told.lock().iter().cloned().collect();
                    for uid in users {
                        wake(&uid);
                    }
                });
                Entry { informer, tasks, users }
            });
            entry.users.lock().insert(uid.to_owned());
            if entry.informer.is_synced() {
                return Ok(entry.informer.get(namespace, name));
            }
        }
        // The watch is on its way; an answer with a proper error is to be had at once.
        Ok(api.get_opt(name).await?.map(Arc::new))
    }

    /// Ends the watches that only this pod needed.
    fn release(&self, uid: &str) {
        let mut unused = Vec::new();
        self.entries.lock().retain(|_, entry| {
            let mut users = entry.users.lock();
            users.remove(uid);
            if users.is_empty() {
                unused.push(entry.tasks.clone());
            }
            !users.is_empty()
        });
        for tasks in unused {
            self.tasks.spawn("release", async move {
                tasks.stop(Duration::from_secs(5)).await;
            });
        }
    }
}

/// All trust bundles of the cluster.
pub(crate) struct TrustBundles {
    client: Client,
    tasks: Tasks,
    wake: Wake,
    users: Users,
    informer: OnceLock<Informer<ClusterTrustBundle>>,
}

impl TrustBundles {
    /// Every bundle, for a pod that is woken whenever one of them changes from now on.
    pub(crate) async fn all(&self, uid: &str) -> Result<Vec<Arc<ClusterTrustBundle>>, String> {
        self.users.lock().insert(uid.to_owned());
        let informer = self.informer.get_or_init(|| {
            let informer = Informer::with(self.client.clone(), &self.tasks, Selection::default());
            let (users, wake) = (self.users.clone(), self.wake.clone());
            informer.on_change(move |_| {
                let users: Vec<String> = users.lock().iter().cloned().collect();
                for uid in users {
                    wake(&uid);
                }
            });
            informer
        });
        let synced = tokio::time::timeout(SYNC_PATIENCE, informer.synced()).await;
        synced.map_err(|_| "the trust bundles cannot be listed yet".to_owned())?;
        Ok(informer.list())
    }
}

pub(crate) struct Sources {
    pub(crate) config_maps: Watched<ConfigMap>,
    pub(crate) secrets: Watched<Secret>,
    pub(crate) trust_bundles: TrustBundles,
    pub(crate) certificate_requests: Watched<PodCertificateRequest>,
}

impl Sources {
    /// `wake` is told the uid of every pod whose objects changed.
    pub(crate) fn new(
        client: Client,
        node: &str,
        tasks: &Tasks,
        wake: impl Fn(&str) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let wake: Wake = Arc::new(wake);
        let requests = Watched::new(client.clone(), tasks.child("certificate requests"), wake.clone());
        Arc::new(Self {
            config_maps: Watched::new(client.clone(), tasks.child("config maps"), wake.clone()),
            secrets: Watched::new(client.clone(), tasks.child("secrets"), wake.clone()),
            // A node may watch the requests of its own pods only, and has to say so.
            certificate_requests: requests.selecting(format!(",spec.nodeName={node}")),
            trust_bundles: TrustBundles {
                client,
                tasks: tasks.child("trust bundles"),
                wake,
                users: Users::default(),
                informer: OnceLock::new(),
            },
        })
    }

    pub(crate) fn release(&self, uid: &str) {
        self.config_maps.release(uid);
        self.secrets.release(uid);
        self.certificate_requests.release(uid);
        self.trust_bundles.users.lock().remove(uid);
    }
}

/// How the absence of an object is told.
pub(crate) fn missing(kind: &str, name: &str) -> String {
    format!("{kind} {name:?} not found")
}

//! The controllers and the scheduler of this process: they run at once where the store is its own, and while this process is
//! elected where other servers share it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferry_apiserver::ApiServer;
use ferry_client::leader::{self, Fence};
use ferry_client::{Informers, Metrics};
use ferry_meta::UserInfo;
use ferry_meta::user::MASTERS;
use ferry_server::front_door::FrontDoor;
use ferry_server::legacy_tokens;
use ferry_server::pki::{LEAF_LIFETIME, Pair, Pki};
use ferry_tasks::Tasks;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use parking_lot::Mutex;

use crate::config::{ClusterConfig, ClusterSettings};
use crate::{cluster_dns, component, fleet, local_path};

/// A leader that is killed is followed when this is over; upstream waits for 15 seconds. Long enough for etcd to elect a
/// leader of its own in between.
const LEASE_DURATION: Duration = Duration::from_secs(4);
const RENEW_DEADLINE: Duration = Duration::from_secs(3);
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// What a term is made of. Clones share it.
#[derive(Clone)]
pub struct ControlPlane {
    clients: Arc<dyn Fn(UserInfo) -> Client + Send + Sync>,
    server: ApiServer,
    settings: ClusterSettings,
    root_ca: String,
    signing: ferry_controllers::Authority,
    sign_token: ferry_controllers::SignToken,
    /// Whether new volumes of the local-path provisioner are made.
    local_path: bool,
    metrics: Metrics,
}

impl ControlPlane {
    pub fn new(config: &ClusterConfig, door: &FrontDoor, pki: &Pki) -> Result<Self> {
        let metrics = Metrics::default();
        let told = metrics.clone();
        door.server.add_metrics(move || told.text());
        let Pair { certificate, key } = pki.signing_authority();
        Ok(Self {
            clients: Arc::new(door.clients()),
            server: door.server.clone(),
            settings: config.node.cluster.clone(),
            root_ca: pki.ca_certificate().to_owned(),
            signing: ferry_controllers::Authority { certificate, key, lifetime: LEAF_LIFETIME },
            sign_token: legacy_tokens::signer(&pki.signing_key()?)?,
            local_path: config.server.local_path.unwrap_or(true),
            metrics,
        })
    }

    /// Runs all of it with these informers until the group stops.
    pub async fn start(&self, informers: &Informers, tasks: &Tasks) -> Result<()> {
        self.start_controllers(None, informers, tasks);
        self.start_scheduler(None, informers, tasks).await?;
        self.start_joining(None, informers, tasks).await
    }

    /// Stands for election until the group stops, and again whenever leadership is lost.
    pub fn stand_for_election(&self, tasks: &Tasks) {
        let this = self.clone();
        self.elect("kube-controller-manager", tasks, move |led, fence| {
            let informers = Informers::new(this.client("system:kube-controller-manager", Some(&fence)), led.clone());
            this.start_controllers(Some(&fence), &informers, &led);
            let this = this.clone();
            start_until_it_works(&led, "joining-of-nodes", move |tasks| {
                let (this, fence, informers) = (this.clone(), fence.clone(), informers.clone());
                async move { this.start_joining(Some(&fence), &informers, &tasks).await }.boxed()
            });
        });
        let this = self.clone();
        self.elect("kube-scheduler", tasks, move |led, fence| {
            let informers = Informers::new(this.client("system:kube-scheduler", Some(&fence)), led.clone());
            let this = this.clone();
            start_until_it_works(&led, "scheduler-start", move |tasks| {
                let (this, fence, informers) = (this.clone(), fence.clone(), informers.clone());
                async move { this.start_scheduler(Some(&fence), &informers, &tasks).await }.boxed()
            });
        });
    }

    fn elect(&self, lease: &'static str, tasks: &Tasks, lead: impl Fn(Tasks, Fence) + Send + Sync + 'static) {
        // Leases are taken by whom upstream's components are.
        let client = self.client(&format!("system:{lease}"), None);
        let group = tasks.clone();
        // Not as a critical task: when the group stops, the lease is given up before this ends.
        tasks.spawn(lease, async move {
            // Each term has a name of its own: what is left of one cannot be taken for the next.
            let lead = &lead;
            let run = |noted: Led| {
                leader::run(client.clone(), election(lease), &group, move |led, fence| {
                    *noted.lock() = Some(led.clone());
                    lead(led, fence);
                })
            };
            while !term(lease, &group, run).await {}
        });
    }

    fn client(&self, user: &str, fence: Option<&Fence>) -> Client {
        fenced(fence, (self.clients)(UserInfo::new(user, &[])))
    }

    fn start_controllers(&self, fence: Option<&Fence>, informers: &Informers, tasks: &Tasks) {
        let controllers = ferry_controllers::Config {
            root_ca: self.root_ca.clone(),
            cluster_cidr: Some(self.settings.cluster_cidr.to_string()),
            signing: Some(self.signing.clone()),
            sign_token: Some(self.sign_token.clone()),
            provider: Some(match &self.settings.load_balancer_range {
                Some(pool) => Arc::new(ferry_controllers::Pool::new(pool.clone())),
                None => Arc::new(ferry_controllers::Local),
            }),
            local_path: Some(self.local_path),
            metrics: self.metrics.clone(),
            ..ferry_controllers::Config::default()
        };
        let (clients, fence) = (self.clients.clone(), fence.cloned());
        let clients =
            move |name: &str| fenced(fence.as_ref(), clients(UserInfo::service_account("kube-system", name, "")));
        ferry_controllers::start(informers, clients, tasks, controllers);
    }

    async fn start_scheduler(&self, fence: Option<&Fence>, informers: &Informers, tasks: &Tasks) -> Result<()> {
        let client = self.client("system:kube-scheduler", fence);
        let scheduler = ferry_scheduler::start(ferry_scheduler::Config::new(&client), client, informers, tasks).await?;
        self.server.set_verdicts(move |namespace, name| scheduler.explanation(namespace, name));
        Ok(())
    }

    /// The certificates of joining nodes, nodes that leave, the default StorageClass, and the cluster's DNS.
    async fn start_joining(&self, fence: Option<&Fence>, informers: &Informers, tasks: &Tasks) -> Result<()> {
        let admin = fenced(fence, (self.clients)(UserInfo::new("system:apiserver", &[MASTERS])));
        fleet::approval::start(admin.clone(), informers, self.settings.service_cidr.clone(), tasks);
        fleet::leaving::start(admin.clone(), informers.of(), tasks);
        if self.local_path {
            local_path::start(admin.clone(), tasks).await;
        }
        cluster_dns::publish(&self.settings, admin, informers.of(), tasks).await
    }
}

/// The group that is led, from the moment there is one.
type Led = Arc<Mutex<Option<Tasks>>>;

/// One term as `run` makes it, whether the group stops after it. One that panics has ended, too: what it led is stopped, and
/// without renewals its fence lets nothing through.
async fn term<F>(lease: &str, tasks: &Tasks, run: impl FnOnce(Led) -> F) -> bool
where
    F: Future<Output = bool>,
{
    let group = Led::default();
    let running = run(group.clone());
    if let Ok(stopped) = AssertUnwindSafe(running).catch_unwind().await {
        return stopped;
    }
    tracing::error!(lease, "leader election panicked; restarting it");
    let led = group.lock().take();
    if let Some(led) = led {
        led.stop(RENEW_DEADLINE).await;
    }
    tasks.stopping().run_until_cancelled(tokio::time::sleep(RETRY_PERIOD)).await.is_none()
}

/// Starts something in a group of its own, and again with back-off when that fails; what was started of it has ended before.
fn start_until_it_works(
    led: &Tasks,
    what: &'static str,
    start: impl Fn(Tasks) -> BoxFuture<'static, Result<()>> + Send + 'static,
) {
    let (group, mut last) = (led.clone(), None::<Tasks>);
    led.spawn_critical(what, move || {
        let attempt = group.child(what);
        let before = last.replace(attempt.clone());
        // Also where the start panics.
        let end = attempt.stopping().drop_guard();
        let started = start(attempt);
        async move {
            if let Some(before) = before {
                before.stop(RENEW_DEADLINE).await;
            }
            match started.await {
                Ok(()) => std::future::pending().await,
                Err(error) => tracing::error!("{what} failed: {error:#}"),
            }
            drop(end);
        }
    });
}

fn fenced(fence: Option<&Fence>, client: Client) -> Client {
    match fence {
        Some(fence) => fence.client(client),
        None => client,
    }
}

fn election(lease: &str) -> leader::Config {
    leader::Config {
        lease_duration: LEASE_DURATION,
        renew_deadline: RENEW_DEADLINE,
        retry_period: RETRY_PERIOD,
        ..leader::Config::new(lease, &component::identity())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_start_that_fails_is_tried_again_without_what_it_left() {
        let (tasks, tries, alive) = (Tasks::new("test"), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, living) = (tries.clone(), alive.clone());
        let beside = Arc::new(AtomicUsize::new(0));
        let met = beside.clone();
        start_until_it_works(&tasks, "try", move |group| {
            let (number, living, met) = (counted.fetch_add(1, Ordering::SeqCst), living.clone(), met.clone());
            async move {
                met.fetch_add(living.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                let (held, stopping) = (living.clone(), group.stopping());
                group.spawn("part", async move {
                    stopping.cancelled().await;
                    // Longer than the pause before the next try.
                    tokio::time::sleep(Duration::from_millis(1500)).await;
                    held.fetch_sub(1, Ordering::SeqCst);
                });
                match number {
                    0 => anyhow::bail!("not yet"),
                    1 => panic!("a bug"),
                    _ => Ok(()),
                }
            }
            .boxed()
        });
        let works = async {
            while (tries.load(Ordering::SeqCst), alive.load(Ordering::SeqCst)) != (3, 1) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), works).await.expect("the third try works, and nothing is left");
        assert_eq!(beside.load(Ordering::SeqCst), 0, "no try began while something of another one ran");
        assert!(tasks.stop(Duration::from_secs(5)).await);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn an_election_that_panics_begins_anew_and_stops_what_it_led() {
        let tasks = Tasks::new("test");
        let group = tasks.child("led");
        let panics = |noted: Led| {
            *noted.lock() = Some(group.clone());
            async { panic!("a bug") }
        };
        assert!(!term("x", &tasks, panics).await, "the next term begins");
        assert!(group.stopping().is_cancelled());
        assert!(term("x", &tasks, |_| async { true }).await);
    }
}

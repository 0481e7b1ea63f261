//! Addresses of LoadBalancer Services from a pool, announced to the machines around: one node answers for each, by ARP or
//! neighbour discovery, and another does so when it fails.
//!
//! The kernel answers: the addresses are its proxy neighbours at the device with the node's address. They are no addresses of
//! the node, so that nothing that listens there is reached by them. What the service proxy does not translate ends at a
//! bridge without ports.

mod frames;
mod kernel;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{Informer, Informers};
use ferry_semantics::backoff::Backoff;
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;
use rtnetlink::new_connection;
use tokio::sync::Notify;

use crate::NetworkError;
pub(crate) use kernel::clear;
use kernel::{Announcer, Where};

const GATHER: Duration = Duration::from_millis(20);
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// Who listens hears it at least once: words about neighbours may be lost.
const SAY_AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// Whether an address is one of the pool.
pub type InPool = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

#[derive(Clone)]
pub struct Config {
    pub node_name: String,
    /// The node's addresses; the devices that have them are where it announces.
    pub node_ips: Vec<IpAddr>,
    pub pool: InPool,
    /// The name of the device where packets end that nobody serves, at most 15 characters.
    pub device: String,
}

/// Announces what this node is to announce until the group stops. What is there then stays, as the rules for Services do.
pub fn start(config: Config, informers: &Informers, tasks: &Tasks) -> Result<(), NetworkError> {
    let (connection, handle, _) = new_connection().map_err(NetworkError::Socket)?;
    let tasks = tasks.child("load balancer addresses");
    tasks.spawn_critical_once("netlink", connection);
    let sources = Sources { nodes: informers.of(), services: informers.of(), slices: informers.of() };
    let changed = Arc::new(Notify::new());
    let wake = changed.clone();
    sources.nodes.on_change(move |change| {
        // A node tells of itself every few seconds.
        if change.old().is_none_or(|old| plan::Candidate::of(old) != plan::Candidate::of(change.object()))
            || matches!(change, ferry_client::Change::Deleted(_))
        {
            wake.notify_one();
        }
    });
    let wake = changed.clone();
    sources.services.on_change(move |_| wake.notify_one());
    let wake = changed.clone();
    sources.slices.on_change(move |_| wake.notify_one());
    let announcer = Announcer::new(handle, &config.device);
    tasks.spawn_critical_once("announcements", run(config, announcer, sources, changed, tasks.clone()));
    Ok(())
}

/// What this node announces now.
type Announced = Arc<Mutex<BTreeSet<IpAddr>>>;

struct Sources {
    nodes: Informer<Node>,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
}

async fn run(config: Config, announcer: Announcer, sources: Sources, changed: Arc<Notify>, tasks: Tasks) {
    sources.nodes.synced().await;
    sources.services.synced().await;
    sources.slices.synced().await;
    let mut pause = Backoff::new(RETRY_FIRST, RETRY_LAST);
    // What a run before announced is not known here.
    let mut is_applied = false;
    let announced: Announced = Announced::default();
    loop {
        let wanted = plan::plan(
            &config.node_name,
            &*config.pool,
            &sources.nodes.list(),
            &sources.services.list(),
            &sources.slices.list(),
        );
        if is_applied && wanted == *announced.lock() {
            changed.notified().await;
            tokio::time::sleep(GATHER).await;
            continue;
        }
        match announcer.apply(&config.node_ips, &wanted).await {
            Ok(mut places) => {
                pause.reset();
                tracing::info!(addresses = wanted.len(), "this node announces addresses of LoadBalancer Services");
                let before = std::mem::replace(&mut *announced.lock(), wanted);
                is_applied = true;
                places.retain(|place| !before.contains(&place.address));
                tell(places, &announced, &tasks);
            }
            Err(error) => {
                tracing::warn!("addresses of LoadBalancer Services are not announced as they should be: {error}");
                tokio::time::sleep(pause.next_delay()).await;
            }
        }
    }
}

/// Those around learn at once where the new ones are, instead of when they ask again.
fn tell(places: Vec<Where>, announced: &Announced, tasks: &Tasks) {
    if places.is_empty() {
        return;
    }
    say(&places, announced);
    let announced = announced.clone();
    tasks.spawn_until_stopped("say again", async move {
        for pause in SAY_AGAIN {
            tokio::time::sleep(pause).await;
            say(&places, &announced);
        }
    });
}

/// But for those that are another node's meanwhile.
fn say(places: &[Where], announced: &Announced) {
    let announced = announced.lock().clone();
    for place in places.iter().filter(|place| announced.contains(&place.address)) {
        if let Err(error) = frames::say(place) {
            tracing::warn!("the neighbours were not told that {} is here: {error}", place.address);
        }
    }
}

//! Who serves: the addresses behind the `kubernetes` Service.
//!
//! Where several servers share a store, each keeps a key below `masterleases` that runs out unless it is renewed, as
//! upstream's servers do, and all write the addresses of those that are there into the EndpointSlice and the Endpoints: a
//! server that is gone leaves them within seconds, one that stops does so at once.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferry_meta::{ApiError, object};
use ferry_store::{Op, Range, StoreError, Transaction};
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::controlplane::bootstrap::{Bootstrap, Endpoint};
use crate::server::Core;
use crate::storage::objects::store_error;

const LEASES: &str = "/registry/masterleases/";
/// Upstream's servers take 15 seconds and renew every 10; both kinds may stand beside each other.
const LEASE_SECONDS: u64 = 6;
const RENEWED_EVERY: Duration = Duration::from_secs(2);
const STOP_PATIENCE: Duration = Duration::from_secs(2);

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";

/// Writes this server's address, and keeps the list true until the server stops.
pub(crate) async fn begin(caller: Bootstrap<'_>, endpoint: Endpoint) -> Result<(), ApiError> {
    if endpoint.address.is_loopback() {
        // Pods could not reach it there: validation refuses such endpoints, rightly.
        tracing::warn!("the server is advertised at a loopback address: pods will not find it");
        return Ok(());
    }
    let reconciler = Reconciler { caller, endpoint };
    caller.settle(|| reconciler.reconcile(true)).await?;
    if caller.core.store.is_shared() {
        let (core, token, tasks) = (caller.core.clone(), caller.token.to_owned(), &caller.core.tasks);
        // Held while the list is written: what is under way when the server stops has ended before it leaves.
        let writing = Arc::new(Mutex::new(()));
        tasks.spawn("leave the kubernetes Service", leave(core.clone(), token.clone(), endpoint, writing.clone()));
        tasks.spawn_critical("kubernetes-endpoints", move || {
            keep(core.clone(), token.clone(), endpoint, writing.clone())
        });
    }
    Ok(())
}

/// Renews this server's key and writes the list, for ever.
async fn keep(core: Arc<Core>, token: String, endpoint: Endpoint, writing: Arc<Mutex<()>>) {
    let reconciler = Reconciler { caller: Bootstrap { core: &core, token: &token }, endpoint };
    let mut ticks = tokio::time::interval(RENEWED_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let _writing = writing.lock().await;
        match reconciler.reconcile(false).await {
            // Another server wrote the same at the same moment; if not, the next look shows it.
            Err(error) if error.code() != 409 => {
                tracing::warn!("the endpoints of the kubernetes Service: {}", error.0.message);
            }
            _ => {}
        }
    }
}

/// Takes this server off the list once it is told to stop.
async fn leave(core: Arc<Core>, token: String, endpoint: Endpoint, writing: Arc<Mutex<()>>) {
    core.tasks.stopping().cancelled().await;
    let reconciler = Reconciler { caller: Bootstrap { core: &core, token: &token }, endpoint };
    let left = async {
        let _writing = writing.lock().await;
        reconciler.leave().await
    };
    match tokio::time::timeout(STOP_PATIENCE, left).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("this server stays in the kubernetes Service for now: {}", error.0.message),
        Err(_) => tracing::warn!("this server stays in the kubernetes Service for now: the store does not answer"),
    }
}

struct Reconciler<'a> {
    caller: Bootstrap<'a>,
    endpoint: Endpoint,
}

impl Reconciler<'_> {
    async fn reconcile(&self, starting: bool) -> Result<(), ApiError> {
        let mut servers = BTreeSet::from([self.endpoint.address]);
        if self.caller.core.store.is_shared() {
            self.renew().await?;
            servers.extend(self.servers().await?);
        }
        let family = written_family(&servers);
        if family != self.endpoint.address.is_ipv4() {
            // Two families would take the one slice from each other for ever.
            if starting {
                tracing::warn!(
                    "the kubernetes Service leads to the servers with addresses of IPv4, and not to this one at {}",
                    self.endpoint.address
                );
            }
            return Ok(());
        }
        servers.retain(|address| address.is_ipv4() == family);
        self.write(&servers, starting).await
    }

    fn key(&self) -> String {
        format!("{LEASES}{}", self.endpoint.address)
    }

    /// Puts this server's key anew, with a lease of its own.
    async fn renew(&self) -> Result<(), ApiError> {
        let store = &self.caller.core.store;
        let lease = store.grant_lease(LEASE_SECONDS).await.map_err(|e| store_error(&e))?;
        let value: bytes::Bytes = json!({
            "kind": "Endpoints", "apiVersion": "v1", "metadata": {},
            "subsets": [{"addresses": [{"ip": self.endpoint.address.to_string()}]}],
        })
        .to_string()
        .into();
        loop {
            let key = self.key();
            let found = store.get(&key).await.map_err(|e| store_error(&e))?.entry;
            let op = match found {
                Some(entry) => Op::Update { key, value: value.clone(), expected: entry.modified, lease: Some(lease) },
                None => Op::Create { key, value: value.clone(), lease: Some(lease) },
            };
            match store.commit(Transaction::one(op)).await {
                Ok(_) => return Ok(()),
                // It ran out in between, or a server with the same address renewed it.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(store_error(&error)),
            }
        }
    }

    /// The addresses of those who renewed in time.
    async fn servers(&self) -> Result<BTreeSet<IpAddr>, ApiError> {
        let all = Range { prefix: LEASES.into(), ..Range::default() };
        let found = self.caller.core.store.range(all).await.map_err(|e| store_error(&e))?;
        let addresses = found.entries.iter().filter_map(|entry| entry.key.strip_prefix(LEASES)?.parse().ok());
        Ok(addresses.collect())
    }

    /// A server that stops is no longer found. The last one stays: nodes that come back look where it was.
    async fn leave(&self) -> Result<(), ApiError> {
        let store = &self.caller.core.store;
        let found = store.get(&self.key()).await.map_err(|e| store_error(&e))?.entry;
        if let Some(entry) = found {
            let gone = Op::Delete { key: self.key(), expected: entry.modified };
            match store.commit(Transaction::one(gone)).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(store_error(&error)),
            }
        }
        let mut servers = self.servers().await?;
        servers.remove(&self.endpoint.address);
        // Those of the other family write their own list when this one is gone.
        servers.retain(|address| address.is_ipv4() == self.endpoint.address.is_ipv4());
        if servers.is_empty() {
            return Ok(());
        }
        self.caller.settle(|| self.write(&servers, false)).await
    }

    /// Servers are expected at one port, as upstream's are: who starts writes its own, and later only who is alone does.
    async fn write(&self, servers: &BTreeSet<IpAddr>, starting: bool) -> Result<(), ApiError> {
        let addresses: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let ports = json!([{"name": "https", "port": self.endpoint.port, "protocol": "TCP"}]);
        let own_port = starting || servers.iter().eq([&self.endpoint.address]);
        let endpoints: Vec<Value> =
            addresses.iter().map(|a| json!({"addresses": [a], "conditions": {"ready": true}})).collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes", "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": if self.endpoint.address.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": endpoints, "ports": ports,
        });
        self.put(SLICES, slice, &addresses, own_port).await?;
        let subset = json!({
            "addresses": addresses.iter().map(|a| json!({"ip": a})).collect::<Vec<_>>(), "ports": ports,
        });
        let endpoints = json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {
                "name": "kubernetes", "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": [subset],
        });
        self.put(ENDPOINTS, endpoints, &addresses, own_port).await
    }

    async fn put(
        &self,
        collection: &str,
        mut wanted: Value,
        addresses: &[String],
        own_port: bool,
    ) -> Result<(), ApiError> {
        let path = format!("{collection}/{}", object::name(&wanted));
        match self.caller.call(Method::GET, &path, None).await {
            Ok(existing) => {
                let same_port = !own_port || port_of(&existing) == port_of(&wanted);
                if same_port && addresses_of(&existing) == addresses {
                    return Ok(());
                }
                if object::text(&existing, "/addressType") != object::text(&wanted, "/addressType") {
                    // A slice keeps its family: one of the other is made anew.
                    let only = json!({"preconditions": {"resourceVersion": object::resource_version(&existing)}});
                    self.caller.call(Method::DELETE, &path, Some(&only)).await?;
                    return self.caller.call(Method::POST, collection, Some(&wanted)).await.map(drop);
                }
                wanted["metadata"]["resourceVersion"] = object::resource_version(&existing).into();
                self.caller.call(Method::PUT, &path, Some(&wanted)).await.map(drop)
            }
            Err(error) if error.code() == 404 => {
                self.caller.call(Method::POST, collection, Some(&wanted)).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether the list has the servers with addresses of IPv4: a slice has one family, and all servers must choose the same.
fn written_family(servers: &BTreeSet<IpAddr>) -> bool {
    servers.iter().any(IpAddr::is_ipv4)
}

/// Of a slice or of Endpoints, in order.
fn addresses_of(object: &Value) -> Vec<&str> {
    let slices = object::items(object, "/endpoints").iter().flat_map(|endpoint| object::items(endpoint, "/addresses"));
    let subsets = object::items(object, "/subsets").iter().flat_map(|subset| object::items(subset, "/addresses"));
    slices.filter_map(Value::as_str).chain(subsets.map(|address| object::text(address, "/ip"))).collect()
}

fn port_of(object: &Value) -> Option<&Value> {
    object.pointer("/ports/0/port").or_else(|| object.pointer("/subsets/0/ports/0/port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_two_families_agree_on_one() {
        let servers = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
        assert!(written_family(&servers(&["192.0.2.1", "2001:db8::1"])));
        assert!(!written_family(&servers(&["2001:db8::1", "2001:db8::2"])));
    }

    #[test]
    fn addresses_are_read_from_both_kinds() {
        let slice = json!({"endpoints": [{"addresses": ["a"]}, {"addresses": ["b"]}], "ports": [{"port": 1}]});
        let subsets = json!({"subsets": [{"addresses": [{"ip": "a"}, {"ip": "b"}], "ports": [{"port": 1}]}]});
        for object in [slice, subsets] {
            assert_eq!((addresses_of(&object), port_of(&object)), (vec!["a", "b"], Some(&json!(1))));
        }
    }
}

//! Makes good what was done to IPAddresses by hand: while a Service has an address, its IPAddress is there, so that the
//! address is not given to another. Markers of node ports are no objects; they are looked at when the server starts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ferry_meta::object::{self, text};
use ferry_meta::{ApiError, GroupResource, ObjectReader};
use ferry_registry::Resource;
use ferry_store::{Op, StoreError, Transaction};
use futures::StreamExt;
use serde_json::Value;

use super::{ADDRESS_PREFIX, PORT_PREFIX, address_object, addresses, owner, ports, ports_in_use};
use crate::cache::{CachedObject, FrameKind, StartFrom, WatchOptions};
use crate::server::Core;
use crate::storage::objects;

const BACKOFF: Duration = Duration::from_millis(200);

pub(crate) async fn run(core: Arc<Core>) {
    let table = core.table();
    let Some(services) = table.find("", "v1", "services") else {
        return std::future::pending().await;
    };
    loop {
        if let Err(why) = follow(&core, services).await {
            tracing::warn!("addresses of Services cannot be watched: {why}");
        }
        tokio::time::sleep(BACKOFF).await;
    }
}

async fn follow(core: &Core, services: &Resource) -> Result<(), ApiError> {
    let taken = GroupResource::new("networking.k8s.io", "ipaddresses");
    let Some(cache) = core.cache.find(&taken) else { return Err(ApiError::internal(format!("{taken} is not cached"))) };
    let options = WatchOptions { from: StartFrom::Unset, ..WatchOptions::default() };
    let mut frames = core.cache.watch(&cache, options).await.map_err(ApiError::internal)?;
    let marked: BTreeSet<i64> = ports_in_use(core).await?.into_iter().collect();
    for service in core.cache.list(&services.group_resource(), "") {
        let (namespace, name) = (object::namespace(&service), object::name(&service));
        for address in addresses(&service) {
            if core.cache.get(&taken, "", &address).is_none() {
                mend(core, services, namespace, name, &format!("{ADDRESS_PREFIX}{address}")).await?;
            }
        }
        for port in ports(&service).difference(&marked) {
            mend(core, services, namespace, name, &format!("{PORT_PREFIX}{port}")).await?;
        }
    }
    while let Some(frame) = frames.next().await {
        if let (FrameKind::Deleted, Some(address)) = (frame.kind, &frame.object) {
            let Some((namespace, name)) = user(address) else { continue };
            mend(core, services, &namespace, &name, &format!("{ADDRESS_PREFIX}{}", address.name())).await?;
        }
    }
    Ok(())
}

/// The Service that an IPAddress is for.
fn user(address: &CachedObject) -> Option<(String, String)> {
    let object = address.parse().ok()?;
    let parent = object.pointer("/spec/parentRef")?;
    (text(parent, "/resource") == "services").then(|| (text(parent, "/namespace").into(), text(parent, "/name").into()))
}

/// Writes the IPAddress or the marker of a port again if the Service still has it: a Service that goes takes both with it.
async fn mend(core: &Core, services: &Resource, namespace: &str, name: &str, key: &str) -> Result<(), ApiError> {
    loop {
        let Some(service) = objects::load(core, services, namespace, name).await? else { return Ok(()) };
        let service_key = services.key(namespace, name);
        let unchanged = Op::Check { key: service_key.clone(), expected: service.revision };
        let Some(value) = value_of(key, &service.object) else { return Ok(()) };
        let ops = vec![unchanged, Op::Create { key: key.to_owned(), value: value.into(), lease: None }];
        match core.commit(Transaction { ops }, None).await {
            Ok(_) => {
                tracing::info!(namespace, name, key, "what a Service has was not taken any more; it is again");
                return Ok(());
            }
            // The Service changed meanwhile.
            Err(StoreError::Conflict { key, .. }) if key == service_key => {}
            Err(StoreError::Conflict { .. }) => return Ok(()),
            Err(error) => return Err(objects::store_error(&error)),
        }
    }
}

/// What stands under the key while the Service has the address or the port; none where it has not.
fn value_of(key: &str, service: &Value) -> Option<Vec<u8>> {
    if let Some(address) = key.strip_prefix(ADDRESS_PREFIX) {
        return addresses(service).contains(address).then(|| address_object(address, service));
    }
    let port = key.strip_prefix(PORT_PREFIX)?.parse().ok()?;
    ports(service).contains(&port).then(|| owner(service).into_bytes())
}

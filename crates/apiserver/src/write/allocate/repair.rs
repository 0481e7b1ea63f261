//! Makes good what was done to IPAddresses by hand: while a Service has an address, its IPAddress is there, so that the
//! address is not given to another.

use std::sync::Arc;
use std::time::Duration;

use ferry_meta::object::{self, text};
use ferry_meta::{ApiError, GroupResource, ObjectReader};
use ferry_registry::Resource;
use ferry_store::{Op, StoreError, Transaction};
use futures::StreamExt;

use super::{ADDRESS_PREFIX, address_object, addresses};
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
    for service in core.cache.list(&services.group_resource(), "") {
        for address in addresses(&service) {
            if core.cache.get(&taken, "", &address).is_none() {
                mend(core, services, object::namespace(&service), object::name(&service), &address).await?;
            }
        }
    }
    while let Some(frame) = frames.next().await {
        if let (FrameKind::Deleted, Some(address)) = (frame.kind, &frame.object) {
            let Some((namespace, name)) = user(address) else { continue };
            mend(core, services, &namespace, &name, address.name()).await?;
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

/// Writes the IPAddress again if the Service still has the address: a Service that goes takes its IPAddress with it.
async fn mend(core: &Core, services: &Resource, namespace: &str, name: &str, address: &str) -> Result<(), ApiError> {
    loop {
        let Some(service) = objects::load(core, services, namespace, name).await? else { return Ok(()) };
        if !addresses(&service.object).contains(address) {
            return Ok(());
        }
        let unchanged = Op::Check { key: services.key(namespace, name), expected: service.revision };
        let key = format!("{ADDRESS_PREFIX}{address}");
        let value = address_object(address, &service.object).into();
        let ops = vec![unchanged, Op::Create { key: key.clone(), value, lease: None }];
        match core.commit(Transaction { ops }, None).await {
            Ok(_) => {
                tracing::info!(
                    namespace,
                    name,
                    address,
                    "the address of a Service was not taken any more; it is again"
                );
                return Ok(());
            }
            Err(StoreError::Conflict { key: found, .. }) if found == key => return Ok(()),
            // The Service changed meanwhile.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(objects::store_error(&error)),
        }
    }
}

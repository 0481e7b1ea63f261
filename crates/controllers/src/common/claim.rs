//! Which objects a controller's owner owns: keeps those that match its selector, adopts orphans, releases the rest.

use std::sync::Arc;

use ferry_client::informer::Cached;
use ferry_client::{Api, Error, owner, write};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use super::selector::Selector;

/// What claiming would do, object by object.
pub(crate) struct Claims<K> {
    pub(crate) owned: Vec<Arc<K>>,
    pub(crate) adopt: Vec<Arc<K>>,
    pub(crate) release: Vec<Arc<K>>,
}

/// Sorts candidates: those of other owners are left out.
pub(crate) fn sort<K: Resource>(
    candidates: impl IntoIterator<Item = Arc<K>>,
    owner_uid: &str,
    owner_is_going: bool,
    selector: &Selector,
) -> Claims<K> {
    let mut claims = Claims { owned: Vec::new(), adopt: Vec::new(), release: Vec::new() };
    for object in candidates {
        let matches = selector.matches(object.meta().labels.as_ref());
        match owner::controller_of(&*object) {
            Some(controller) if controller.uid != owner_uid => {}
            Some(_) if matches => claims.owned.push(object),
            Some(_) if !owner_is_going => claims.release.push(object),
            None if matches && !owner_is_going && object.meta().deletion_timestamp.is_none() => {
                claims.adopt.push(object);
            }
            Some(_) | None => {}
        }
    }
    claims
}

/// Adopts and releases as sorted and returns what is owned then. `owner` is read afresh from the server before the
/// first adoption: a cache that lags must not give objects to an owner that is being deleted.
pub(crate) async fn settle<K, Owner>(
    claims: Claims<K>,
    api: &Api<K>,
    owners: &Api<Owner>,
    owner: &OwnerReference,
) -> Result<Vec<Arc<K>>, Error>
where
    K: Cached,
    Owner: Cached,
{
    let Claims { mut owned, adopt, release } = claims;
    for object in release {
        owner::release(api, &*object, &owner.uid).await?;
    }
    if adopt.is_empty() {
        return Ok(owned);
    }
    let fresh = owners.get_opt(&owner.name).await?;
    let alive = fresh.is_some_and(|fresh| {
        fresh.meta().uid.as_deref() == Some(&owner.uid) && fresh.meta().deletion_timestamp.is_none()
    });
    if !alive {
        return Err(format!("{} {} is gone or being deleted", owner.kind, owner.name).into());
    }
    for object in adopt {
        match owner::adopt(api, &*object, owner).await {
            Ok(adopted) => owned.push(Arc::new(adopted)),
            // Gone, or another one now.
            Err(error) if write::is_not_found(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(owned)
}

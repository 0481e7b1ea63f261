//! Helpers for writing: what an error means, retries on conflict, deletion with preconditions, times.

use std::future::Future;
use std::time::Duration;

use crate::api::{Api, exchange};
use crate::codec::Wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::core::Status;
use kube::{Client, Error, Resource};

pub fn status_of(error: &Error) -> Option<&Status> {
    match error {
        Error::Api(status) => Some(status),
        _ => None,
    }
}

pub fn is_not_found(error: &Error) -> bool {
    status_of(error).is_some_and(Status::is_not_found)
}

pub fn is_conflict(error: &Error) -> bool {
    status_of(error).is_some_and(|status| status.reason == "Conflict")
}

pub fn is_already_exists(error: &Error) -> bool {
    status_of(error).is_some_and(Status::is_already_exists)
}

pub fn is_invalid(error: &Error) -> bool {
    status_of(error).is_some_and(Status::is_invalid)
}

pub fn is_forbidden(error: &Error) -> bool {
    status_of(error).is_some_and(Status::is_forbidden)
}

/// A creation was refused because the namespace is being deleted: trying again is of no use.
pub fn is_namespace_terminating(error: &Error) -> bool {
    let causes = status_of(error).and_then(|status| status.details.as_ref()).map(|details| &details.causes);
    causes.into_iter().flatten().any(|cause| cause.reason == "NamespaceTerminating")
}

/// The server's own words, without the dump of the whole Status that kube prints.
pub fn short(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Sends a request whose answer is of no interest as long as it is not an error: it is not parsed.
pub async fn send(client: &Client, request: http::Request<Vec<u8>>) -> Result<(), Error> {
    // Read to the end even so: a connection whose answer is left unread is of no further use.
    exchange(client, request).await.map(|_| ())
}

/// Now, as the wire knows it: in whole seconds, so that what is compared with the cache can be equal.
pub fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// Runs `attempt` until it does not end in a conflict, five times at most. It should read afresh each time.
pub async fn retry_on_conflict<T, F, Fut>(mut attempt: F) -> Result<T, Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    let mut delay = Duration::from_millis(10);
    for _ in 0..4 {
        match attempt().await {
            Err(error) if is_conflict(&error) => {
                tokio::time::sleep(delay.mul_f64(rand::random_range(1.0..1.1))).await;
                delay *= 2;
            }
            other => return other,
        }
    }
    attempt().await
}

/// Deletes the object as it was seen: one that was changed meanwhile stays, and its change brings it back here. True when this
/// call deleted it.
pub async fn delete_as_seen<K>(api: &Api<K>, object: &K) -> Result<bool, Error>
where
    K: Resource + Wire,
{
    let meta = object.meta();
    let seen = Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
    let gone = |error: &Error| is_not_found(error) || is_conflict(error);
    delete_if(api, object, None, seen).await.or_else(|error| if gone(&error) { Ok(false) } else { Err(error) })
}

/// Deletes exactly this object: one that took its name meanwhile stays, which is a conflict. True when this call deleted it,
/// false when it was gone.
pub async fn delete<K>(api: &Api<K>, object: &K, policy: Option<PropagationPolicy>) -> Result<bool, Error>
where
    K: Resource + Wire,
{
    let same = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
    delete_if(api, object, policy, same)
        .await
        .or_else(|error| if is_not_found(&error) { Ok(false) } else { Err(error) })
}

async fn delete_if<K>(
    api: &Api<K>,
    object: &K,
    policy: Option<PropagationPolicy>,
    preconditions: Preconditions,
) -> Result<bool, Error>
where
    K: Resource + Wire,
{
    let parameters =
        DeleteParams { propagation_policy: policy, preconditions: Some(preconditions), ..DeleteParams::default() };
    api.delete(object.meta().name.as_deref().unwrap_or_default(), &parameters).await.map(|_| true)
}

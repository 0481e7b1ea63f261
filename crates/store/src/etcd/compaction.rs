//! Forgets old history in etcd: what was current one interval ago is the oldest that can still be read.
//!
//! A server that is started often would never be up for that long. So what was current is noted in etcd, with the time, and a server that
//! starts goes on from there. Several servers may do it: the second finds nothing to do.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::api::Client;
use super::api::rpc::{CompactionRequest, PutRequest, RangeRequest};
use super::call::Repeat;
use super::connection::Connection;
use super::convert::{number, revision_of};
use crate::types::Revision;
use crate::{Result, StoreError};

/// Outside of every cluster's prefix, which starts with a slash: history is forgotten for all clusters that share an etcd.
const NOTE: &[u8] = b"ferry-compaction";
/// After a failure.
const PAUSE: Duration = Duration::from_secs(15);

/// A revision that was the newest at a time.
struct Observed {
    revision: Revision,
    at: Instant,
}

pub(super) async fn regularly(connection: Connection, interval: Duration) {
    let mut observed = None;
    loop {
        let next = match observed.take() {
            None => begin(&connection, interval).await,
            Some(observed) => follow(&connection, interval, observed).await,
        };
        match next {
            Ok(next) => observed = Some(next),
            Err(error) => {
                tracing::warn!("etcd is not compacted: {error}");
                tokio::time::sleep(PAUSE.min(interval)).await;
            }
        }
    }
}

/// What another server, or this one before it was started again, has noted; or what is newest now.
async fn begin(connection: &Connection, interval: Duration) -> Result<Observed> {
    let response = connection.get(RangeRequest { key: NOTE.to_vec(), ..RangeRequest::default() }).await?;
    let newest = revision_of(response.header.as_ref());
    let now = Instant::now();
    if let Some((revision, age)) = response.kvs.first().and_then(|note| read(&note.value))
        && revision <= newest
        && let Some(at) = now.checked_sub(age.min(interval))
    {
        return Ok(Observed { revision, at });
    }
    note(connection, newest).await?;
    Ok(Observed { revision: newest, at: now })
}

/// Waits until what was observed is old enough, and forgets what is older.
async fn follow(connection: &Connection, interval: Duration, observed: Observed) -> Result<Observed> {
    tokio::time::sleep_until(observed.at + interval).await;
    let newest = connection.revision().await?;
    match compact(connection, number(observed.revision)?).await {
        Ok(()) | Err(StoreError::Compacted { .. }) => {}
        Err(error) => return Err(error),
    }
    let next = Observed { revision: newest, at: Instant::now() };
    note(connection, newest).await?;
    Ok(next)
}

pub(super) async fn compact(connection: &Connection, revision: i64) -> Result<()> {
    // Done twice, the second finds it done.
    let request = CompactionRequest { revision, physical: false };
    let send = |client: Client| async move { client.kv().compact(request).await };
    connection.call(Repeat::Unsent, send).await.map(drop)
}

async fn note(connection: &Connection, revision: Revision) -> Result<()> {
    let value = format!("{revision} {}", since_epoch().as_millis());
    let request = PutRequest { key: NOTE.to_vec(), value: value.into(), ..PutRequest::default() };
    let send = |client: Client| {
        let request = request.clone();
        async move { client.kv().put(request).await }
    };
    connection.call(Repeat::Always, send).await.map(drop)
}

/// A revision and its age. None from a clock that was ahead of this one: nobody knows how old it is.
fn read(value: &[u8]) -> Option<(Revision, Duration)> {
    let (revision, milliseconds) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let noted = Duration::from_millis(milliseconds.parse().ok()?);
    Some((revision.parse().ok()?, since_epoch().checked_sub(noted)?))
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_nobody_and_of_clocks_that_are_ahead_are_not_followed() {
        let at = |time: Duration| format!("17 {}", time.as_millis()).into_bytes();
        let hour = Duration::from_secs(3600);
        let (revision, age) = read(&at(since_epoch() - hour)).expect("a note");
        assert!(revision == 17 && age >= hour && age < hour * 2, "{revision} {age:?}");
        for wrong in
            [at(since_epoch() + hour), b"17".to_vec(), b"17 x".to_vec(), b"-1 5".to_vec(), vec![0xff, b' ', b'1']]
        {
            assert_eq!(read(&wrong), None, "{wrong:?}");
        }
    }
}

//! Looks now and then for connections that have been silent, idle or stalled for too long. One look at all of them
//! instead of a timer for each: a request costs two atomic numbers here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::Connection;
use crate::limits::Limits;
use crate::table::{Connections, Reason};

/// So much later than its limit a connection may end.
const PRECISION: Duration = Duration::from_secs(5);
/// And so much later it gives its buffers back.
const REST_PRECISION: Duration = Duration::from_secs(1);
/// One that was asked to end has so long to do so.
const DRAIN: Duration = Duration::from_secs(10);

/// What becomes of a connection.
enum Action {
    Stays,
    /// Is asked to end.
    Drain,
    Cut(Reason),
}

/// Runs as long as the listener does; asleep while there is no connection.
pub async fn run(table: Connections) {
    loop {
        while table.is_empty() {
            table.arrival().await;
        }
        match table.limits().rest {
            None => tokio::time::sleep(PRECISION).await,
            Some(after) => {
                let until = Instant::now() + PRECISION;
                while Instant::now() < until {
                    tokio::time::sleep(REST_PRECISION).await;
                    rest(&table, after);
                }
            }
        }
        sweep(&table);
    }
}

/// Asks those that are idle to give their buffers back, each once.
pub(crate) fn rest(table: &Connections, after: Duration) {
    let now = table.now();
    table.each(|connection| {
        let is_asked = connection.is_quiet()
            && connection.served.load(Ordering::Relaxed)
            && now.saturating_sub(connection.idle_since.load(Ordering::Relaxed)) >= millis(after)
            && !connection.rested.swap(true, Ordering::Relaxed);
        if is_asked {
            connection.rest.notify_one();
        }
    });
}

pub(crate) fn sweep(table: &Connections) {
    let (limits, now) = (table.limits().clone(), table.now());
    let (mut cut, mut abandoned) = (Vec::new(), Vec::new());
    table.each(|connection| {
        match action(connection, &limits, now) {
            Action::Stays => {}
            Action::Drain => {
                connection.drained_at.store(now, Ordering::Relaxed);
                table.count_drained();
                connection.draining.cancel();
            }
            Action::Cut(why) => cut.push((connection.clone(), why)),
        }
        let streams = connection.streams.lock();
        abandoned.extend(streams.iter().filter_map(std::sync::Weak::upgrade));
    });
    table.cut_all(cut);
    // Outside the table's lock: what they hold is dropped here.
    for stream in abandoned {
        stream.abandon(now, millis(limits.abandoned));
    }
}

fn action(connection: &Arc<Connection>, limits: &Limits, now: u64) -> Action {
    let known = connection.is_authenticated();
    let since = |moment: u64| now.saturating_sub(moment);
    let stalled = connection.stalled_since.load(Ordering::Relaxed);
    let longest = if known { limits.stalled_authenticated } else { limits.stalled_unauthenticated };
    if stalled != 0 && since(stalled) > millis(longest) {
        return Action::Cut(Reason::Stalled);
    }
    if !connection.is_idle() {
        return Action::Stays;
    }
    let idle = since(connection.idle_since.load(Ordering::Relaxed));
    if !connection.served.load(Ordering::Relaxed) {
        // Both the handshake and the first request are late by then.
        let silent = idle > millis(limits.handshake * 2);
        return if silent { Action::Cut(Reason::Silent) } else { Action::Stays };
    }
    match connection.drained_at.load(Ordering::Relaxed) {
        0 => {
            let longest = if known { limits.idle_authenticated } else { limits.idle_unauthenticated };
            if idle > millis(longest) { Action::Drain } else { Action::Stays }
        }
        asked if since(asked) > millis(DRAIN) => Action::Cut(Reason::Idle),
        _ => Action::Stays,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

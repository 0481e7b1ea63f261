//! How much clients may take, in connections, time and memory.

use std::time::Duration;

/// The limits of one listener.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections of clients that have not shown who they are. Each may cost a few hundred kilobytes (see `MOST_HEAD`).
    pub unauthenticated: usize,
    /// Connections of clients that have.
    pub authenticated: usize,
    /// Bytes held on behalf of all connections together: heads and bodies of requests, answers that are not taken.
    pub held_bytes: usize,
    /// For the TLS handshake, and again for the first request behind it.
    pub handshake: Duration,
    /// Without a request under way.
    pub idle_unauthenticated: Duration,
    pub idle_authenticated: Duration,
    /// A connection of HTTP/1.1 without a request under way gives its buffers back after this. None: it keeps them.
    pub rest: Option<Duration>,
    /// A write that waits for the client to read.
    pub stalled_unauthenticated: Duration,
    pub stalled_authenticated: Duration,
    /// A stream of an answer that the client takes nothing of, while others of its connection go on.
    pub abandoned: Duration,
    /// From the server's end until what is still under way is cut off.
    pub farewell: Duration,
}

impl Limits {
    /// So many connections in all, an eighth of them for those who have not shown who they are.
    pub fn new(connections: usize, held_bytes: usize) -> Self {
        let unauthenticated = (connections / 8).max(1);
        Self {
            unauthenticated,
            authenticated: connections.saturating_sub(unauthenticated).max(1),
            held_bytes,
            handshake: Duration::from_secs(10),
            idle_unauthenticated: Duration::from_secs(30),
            // As upstream's, which is how long Go's clients keep them.
            idle_authenticated: Duration::from_secs(90),
            rest: None,
            stalled_unauthenticated: Duration::from_secs(30),
            // Long: somebody may have stopped to read a log, and what is held for them is bounded.
            stalled_authenticated: Duration::from_secs(3600),
            abandoned: Duration::from_secs(60),
            farewell: Duration::from_secs(8),
        }
    }
}

/// The largest head of a request, names and values together.
pub(crate) const MOST_HEAD: usize = 64 << 10;
/// Fields of a head. HTTP/2 can say a field in one byte that takes a hundred here.
pub(crate) const MOST_HEADERS: usize = 512;
/// Requests under way on one HTTP/2 connection, as Go's servers have it.
pub(crate) const MOST_STREAMS: u32 = 250;
/// Streams that a client may reset before they are looked at, and those that had to be reset for its errors: then its
/// connection ends.
pub(crate) const MOST_RESETS: usize = 32;
pub(crate) const MOST_ERRORS: usize = 1024;
/// What one stream of an HTTP/2 connection has waiting to be written.
pub(crate) const SEND_BUFFER: usize = 64 << 10;

//! Bodies of answers: how long they count as under way, and what becomes of those that nobody takes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;

use crate::connection::{Charge, Connection, InFlight};
use crate::{Body, BoxError, Peer};

/// The request counts as under way until its answer is delivered.
pub(crate) struct Delivered {
    pub(crate) body: Body,
    pub(crate) _in_flight: Option<InFlight>,
}

impl http_body::Body for Delivered {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What is larger goes out in pieces of this size, copied from the whole: what a client has been sent of an answer must
/// not keep all of it in memory.
const PIECE: usize = 128 << 10;

/// How a stream ends that its client has abandoned, should it come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtItsEnd {
    /// As if it were complete: a watch may end at any time.
    Complete,
    /// With an error: the client must not take a part for the whole.
    Broken,
}

/// An answer that is there as a whole.
pub(crate) fn whole(connection: &Arc<Connection>, bytes: Bytes) -> Body {
    if bytes.len() <= PIECE {
        return Full::new(connection.hold(bytes)).map_err(|never| match never {}).boxed_unsync();
    }
    let charge = Some(connection.charge(bytes.len()));
    revocable(connection, AtItsEnd::Broken, Inner { body: None, rest: bytes, charge })
}

/// A stream of an answer that lets go of what it holds when its client takes nothing for too long. An HTTP/2 client
/// can stop reading one stream while its connection goes on; nobody asks such a body for anything then.
pub fn abandoned_after(peer: &Peer, end: AtItsEnd, body: Body) -> Body {
    let Some(connection) = &peer.connection else { return body };
    revocable(connection, end, Inner { body: Some(body), rest: Bytes::new(), charge: None })
}

fn revocable(connection: &Arc<Connection>, end: AtItsEnd, inner: Inner) -> Body {
    let stream = Arc::new(Stream { inner: Mutex::new(Some(inner)), handed: AtomicU64::new(0) });
    let known: Arc<dyn Revocable> = stream.clone();
    let mut streams = connection.streams.lock();
    if streams.len() == streams.capacity() {
        streams.retain(|known| known.strong_count() > 0);
    }
    streams.push(Arc::downgrade(&known));
    drop(streams);
    Taken { stream, end, connection: connection.clone() }.boxed_unsync()
}

/// A body that can be taken away from its client.
pub(crate) trait Revocable: Send + Sync {
    /// Where nothing of it was taken for so long.
    fn abandon(&self, now: u64, longest: u64);
    fn revoke(&self);
}

struct Inner {
    /// None when all there is is the rest.
    body: Option<Body>,
    /// Of what came last.
    rest: Bytes,
    /// For the rest.
    charge: Option<Charge>,
}

struct Stream {
    /// None once it was taken away.
    inner: Mutex<Option<Inner>>,
    /// When the client was last handed something that it has not come back from; 0 when it waits for more.
    handed: AtomicU64,
}

impl Revocable for Stream {
    fn abandon(&self, now: u64, longest: u64) {
        let handed = self.handed.load(Ordering::Relaxed);
        if handed != 0 && now.saturating_sub(handed) > longest {
            self.revoke();
        }
    }

    fn revoke(&self) {
        // Whoever holds the lock is asking for more this very moment, and will see that the connection is cut.
        let taken = self.inner.try_lock().and_then(|mut inner| inner.take());
        drop(taken);
    }
}

/// What a client takes.
struct Taken {
    stream: Arc<Stream>,
    end: AtItsEnd,
    connection: Arc<Connection>,
}

impl Inner {
    fn poll(&mut self, context: &mut Context<'_>, connection: &Arc<Connection>) -> Poll<Option<NextFrame>> {
        if self.rest.is_empty() {
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            match ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.len() > PIECE => {
                        self.charge = Some(connection.charge(data.len()));
                        self.rest = data;
                    }
                    Ok(data) => return Poll::Ready(Some(Ok(Frame::data(connection.hold(data))))),
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let piece = Bytes::copy_from_slice(&self.rest[..self.rest.len().min(PIECE)]);
        self.rest.advance(piece.len());
        if self.rest.is_empty() {
            (self.rest, self.charge) = (Bytes::new(), None);
        }
        Poll::Ready(Some(Ok(Frame::data(connection.hold(piece)))))
    }
}

type NextFrame = Result<Frame<Bytes>, BoxError>;

impl http_body::Body for Taken {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<NextFrame>> {
        let mut inner = self.stream.inner.lock();
        self.stream.handed.store(0, Ordering::Relaxed);
        if self.connection.is_cut() {
            *inner = None;
        }
        let Some(stream) = inner.as_mut() else {
            return Poll::Ready(match self.end {
                AtItsEnd::Complete => None,
                AtItsEnd::Broken => Some(Err("nothing of the answer was taken for too long".into())),
            });
        };
        let next = stream.poll(context, &self.connection);
        if next.is_ready() {
            self.stream.handed.store(self.connection.table.now(), Ordering::Relaxed);
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        let inner = self.stream.inner.lock();
        inner
            .as_ref()
            .is_some_and(|inner| inner.rest.is_empty() && inner.body.as_ref().is_none_or(|body| body.is_end_stream()))
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.stream.inner.lock() {
            Some(Inner { body: None, rest, .. }) => SizeHint::with_exact(rest.len() as u64),
            _ => SizeHint::default(),
        }
    }
}

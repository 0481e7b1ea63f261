//! Bodies of requests: what has arrived and was not taken yet counts for its connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::connection::Connection;

/// A body that is on its way.
pub struct Received {
    body: Incoming,
    connection: Arc<Connection>,
    /// It may still come.
    counts: bool,
}

impl Received {
    pub(crate) fn new(body: Incoming, connection: Arc<Connection>) -> Self {
        let counts = !body.is_end_stream();
        if counts {
            connection.body_begins();
        }
        Self { body, connection, counts }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.connection.taken(data.len());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if self.counts {
            self.connection.body_ends();
        }
    }
}

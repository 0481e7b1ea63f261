//! Bodies on their way: bounded, timed, counted, and telling when they are through.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use ferry_connections::{Body, BoxError};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::{Instant, Sleep};

/// A body that says how many bytes it had, when it is through or dropped.
pub struct Watched<F: FnOnce(u64)> {
    inner: Body,
    bytes: u64,
    deadline: Option<Pin<Box<Sleep>>>,
    at_end: Option<F>,
}

impl<F: FnOnce(u64) + Send + Unpin + 'static> Watched<F> {
    pub fn boxed(inner: Body, deadline: Option<Instant>, at_end: F) -> Body {
        let deadline = deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline)));
        Self { inner, bytes: 0, deadline, at_end: Some(at_end) }.boxed_unsync()
    }
}

impl<F: FnOnce(u64)> Watched<F> {
    fn end(&mut self) {
        if let Some(at_end) = self.at_end.take() {
            at_end(self.bytes);
        }
    }
}

impl<F: FnOnce(u64)> Drop for Watched<F> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<F: FnOnce(u64) + Unpin> http_body::Body for Watched<F> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err("the time for the request is over".into())));
        }
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Buf::remaining);
                self.bytes += u64::try_from(length).unwrap_or(u64::MAX);
            }
            Poll::Ready(None) => self.end(),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A body that must not be longer.
pub fn limited(body: Body, most: u64) -> Body {
    Limited::new(body, usize::try_from(most).unwrap_or(usize::MAX)).boxed_unsync()
}

pub fn is_too_long(error: &BoxError) -> bool {
    error.downcast_ref::<LengthLimitError>().is_some()
}

/// The body of a request that may have to be sent more than once.
pub enum Sendable {
    /// Once.
    Stream(Body),
    Whole(Bytes),
}

impl Sendable {
    /// Reads it if it is known to be short.
    pub async fn gather(body: Body, most: u64) -> Result<Self, BoxError> {
        match body.size_hint().upper() {
            Some(0) => Ok(Self::Whole(Bytes::new())),
            Some(length) if length <= most => Ok(Self::Whole(body.collect().await?.to_bytes())),
            _ => Ok(Self::Stream(body)),
        }
    }
}

//! A connection that ends when it stands still for too long: nothing is read from it and nothing written to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

pub(crate) struct Idle<T> {
    inner: T,
    longest: Duration,
    end: Pin<Box<Sleep>>,
}

/// Ten years: no clock goes much further.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl<T> Idle<T> {
    pub(crate) fn new(inner: T, longest: Duration) -> Self {
        let longest = longest.min(FOREVER);
        Self { inner, longest, end: Box::pin(sleep_until(Instant::now() + longest)) }
    }

    fn moved(&mut self) {
        let end = Instant::now() + self.longest;
        self.end.as_mut().reset(end);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Idle<T> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(task, buffer) {
            self.moved();
            return Poll::Ready(read);
        }
        ready!(self.end.as_mut().poll(task));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the session stood still for too long")))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Idle<T> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(task, bytes));
        self.moved();
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(task)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_stands_still_ends() {
        let longest = Duration::from_millis(50);
        let (mut far, near) = tokio::io::duplex(64);
        let mut near = Idle::new(near, longest);
        // What is there is read, however late.
        far.write_all(b"b").await.expect("written");
        tokio::time::sleep(longest * 2).await;
        let mut byte = [0];
        near.read_exact(&mut byte).await.expect("read");
        // Both ways count as life.
        let began = Instant::now();
        near.write_all(b"a").await.expect("written");
        let error = near.read_exact(&mut byte).await.expect_err("nothing comes");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= longest);
    }
}

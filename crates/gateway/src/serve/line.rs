//! An HTTP/1 connection to an endpoint that is moved along by whoever uses it: the request, its answer and the connection
//! are one task, so nobody has to be woken on another thread. Between requests nobody moves it; a sweep looks after it.

use std::pin::Pin;
use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use ferry_connections::{Body, BoxError};
use ferry_tasks::Tasks;
use http::{Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

/// The largest head of an answer.
const MOST_HEAD: usize = 256 << 10;
/// For so many sweeps a connection is kept for the next request, and so many connections are.
const KEPT: u32 = 10;
const MOST_KEPT: usize = 256;

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Connections of one endpoint that wait for a request; the last that came back goes first.
#[derive(Default)]
pub struct Idle {
    /// And since which sweep each waits.
    lines: Mutex<Vec<(Line, u32)>>,
    /// How often it was swept. No clock is needed for less.
    sweeps: AtomicU32,
}

pub struct Line {
    sender: http1::SendRequest<Body>,
    /// None: the connection has ended.
    driver: Option<Driver>,
}

impl Idle {
    /// The endpoint may have closed it since: then the request comes back unsent.
    pub fn take(&self) -> Option<Line> {
        loop {
            let (line, since) = self.lines.lock().pop()?;
            if self.is_young(since) {
                return Some(line);
            }
        }
    }

    fn is_young(&self, since: u32) -> bool {
        self.sweeps.load(Ordering::Relaxed).wrapping_sub(since) < KEPT
    }

    fn give_back(&self, mut line: Line) {
        if !line.is_ready() {
            return;
        }
        let mut all = self.lines.lock();
        if all.len() < MOST_KEPT {
            all.push((line, self.sweeps.load(Ordering::Relaxed)));
        }
    }

    /// Lets go of those that the endpoint has closed, and of those that waited for too long.
    pub fn sweep(&self) {
        self.sweeps.fetch_add(1, Ordering::Relaxed);
        let all = std::mem::take(&mut *self.lines.lock());
        let kept: Vec<_> = all
            .into_iter()
            .filter_map(|(mut line, since)| (self.is_young(since) && line.is_ready()).then_some((line, since)))
            .collect();
        let mut all = self.lines.lock();
        // Those that came back meanwhile are the youngest, and stay last.
        all.splice(0..0, kept);
    }
}

impl Line {
    pub async fn new<S>(stream: S) -> Result<Self, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) =
            http1::Builder::new().max_buf_size(MOST_HEAD).handshake(TokioIo::new(stream)).await?;
        let driver = Box::pin(async move {
            let _ = connection.with_upgrades().await;
        });
        let mut line = Self { sender, driver: Some(driver) };
        // The first look is what makes it ready.
        line.is_ready();
        Ok(line)
    }

    fn advance(&mut self, context: &mut Context<'_>) {
        if self.driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready()) {
            self.driver = None;
        }
    }

    /// Whether it is still there and takes a request.
    fn is_ready(&mut self) -> bool {
        self.advance(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Sends a request. The line comes back to `home` once the answer was read.
    pub async fn send(
        mut self,
        request: Request<Body>,
        home: Weak<Idle>,
        tasks: &Tasks,
    ) -> Result<Response<Body>, TrySendError<Request<Body>>> {
        let mut sending = std::pin::pin!(self.sender.try_send_request(request));
        let answered = std::future::poll_fn(|context| {
            self.advance(context);
            // What it waits for comes from the driver alone: this task is woken for that already.
            sending.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await?;
        if answered.status() == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(driver) = self.driver {
                tasks.spawn("upgraded backend connection", driver);
            }
            return Ok(answered.map(|body| body.map_err(Into::into).boxed_unsync()));
        }
        Ok(answered.map(|body| Answer { body, line: Some(self), home, is_read: false }.boxed_unsync()))
    }
}

/// The body of an answer, which moves its connection along.
struct Answer {
    body: Incoming,
    line: Option<Line>,
    home: Weak<Idle>,
    is_read: bool,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let mut quiet = Context::from_waker(Waker::noop());
        let mut polled = Pin::new(&mut this.body).poll_frame(&mut quiet);
        if polled.is_pending()
            && let Some(line) = &mut this.line
        {
            line.advance(context);
            polled = Pin::new(&mut this.body).poll_frame(&mut quiet);
        }
        match polled {
            Poll::Pending if this.line.as_ref().is_none_or(|line| line.driver.is_none()) => {
                Poll::Ready(Some(Err("the backend's connection ended".into())))
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                this.is_read = true;
                Poll::Ready(None)
            }
            Poll::Ready(Some(frame)) => Poll::Ready(Some(frame.map_err(Into::into))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let is_read = self.is_read || self.body.is_end_stream();
        if let (Some(line), Some(home)) = (self.line.take().filter(|_| is_read), self.home.upgrade()) {
            home.give_back(line);
        }
    }
}

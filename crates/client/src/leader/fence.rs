//! Nobody writes with a lost lease.
//!
//! A leader that was stopped for longer than its lease does not know that it was: when it goes on, another leads. So each
//! write is refused here once the lease may have ended, and carries the lease for those that were on their way already: the
//! API server makes it in one step with a look at who holds the lease.

use std::sync::Arc;

use ferry_tasks::Tasks;
use http::{HeaderValue, Request};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::finishing;

/// `<namespace>/<name of the Lease>/<identity of its holder>`: a write is made only while that one holds it.
pub const HEADER: &str = "ferry-leader-lease";

/// What a leader writes through. Clones share it.
#[derive(Clone)]
pub struct Fence {
    lease: Option<HeaderValue>,
    /// What is led. Its writes are heard out before the lease is given up.
    led: Tasks,
    state: Arc<Mutex<State>>,
}

enum State {
    Candidate,
    HeldUntil(Instant),
    Closed,
}

impl Fence {
    pub(super) fn new(namespace: &str, name: &str, identity: &str, led: Tasks) -> Self {
        let lease = HeaderValue::from_str(&format!("{namespace}/{name}/{identity}")).ok();
        Self { lease, led, state: Arc::new(Mutex::new(State::Candidate)) }
    }

    pub(super) fn hold_until(&self, end: Instant) {
        *self.state.lock() = State::HeldUntil(end);
    }

    pub(super) fn close(&self) {
        *self.state.lock() = State::Closed;
    }

    pub(super) fn was_held(&self) -> bool {
        !matches!(*self.state.lock(), State::Candidate)
    }

    /// Whether nobody else can hold the lease yet.
    fn holds(&self) -> bool {
        matches!(*self.state.lock(), State::HeldUntil(end) if Instant::now() < end)
    }

    /// A client that writes only while the lease is held.
    pub fn client(&self, client: Client) -> Client {
        let (fence, namespace) = (self.clone(), client.default_namespace().to_owned());
        let fenced = tower::service_fn(move |mut request: Request<Body>| {
            let (fence, client) = (fence.clone(), client.clone());
            async move {
                if !finishing::writes(&request) {
                    return client.send(request).await;
                }
                if !fence.holds() {
                    return Err(kube::Error::Service("the leader's lease has ended: nothing was written".into()));
                }
                if let Some(lease) = &fence.lease {
                    request.headers_mut().insert(HEADER, lease.clone());
                }
                finishing::finish(&fence.led, async move { client.send(request).await }).await
            }
        });
        Client::new(fenced, namespace)
    }
}

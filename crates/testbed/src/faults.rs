//! Requests that are refused, conflicts, watches that are cut, and controllers that die with any of their writes, as a seed has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ferry_tasks::Tasks;
use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::sync::{Notify, watch};

/// What goes wrong, decided by one seed.
pub struct Faults {
    random: Mutex<StdRng>,
    on: AtomicBool,
    /// Writes that may pass until the controllers are killed.
    until_death: AtomicUsize,
    death: Notify,
    /// Requests that the server has heard of and not answered.
    under_way: watch::Sender<usize>,
}

/// The server does what it has heard of, whether the one who asked lives or not.
struct UnderWay(Arc<Faults>);

impl UnderWay {
    fn new(faults: &Arc<Faults>) -> Self {
        faults.under_way.send_modify(|number| *number += 1);
        Self(faults.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|number| *number -= 1);
    }
}

enum Fault {
    None,
    Refuse(u16, &'static str),
    /// The watch ends after so many frames.
    Cut(usize),
}

impl Faults {
    fn next(&self, request: &http::Request<Body>) -> Fault {
        if !self.on.load(Ordering::SeqCst) {
            return Fault::None;
        }
        let mut random = self.random.lock();
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if watch {
            return if random.random_ratio(1, 2) { Fault::Cut(random.random_range(1..12)) } else { Fault::None };
        }
        let write = request.method() != http::Method::GET;
        let refused = random.random_range(0..100);
        match refused {
            0..4 => Fault::Refuse(500, "InternalError"),
            4..6 => Fault::Refuse(429, "TooManyRequests"),
            6..10 if write && request.method() != http::Method::POST => Fault::Refuse(409, "Conflict"),
            _ => Fault::None,
        }
    }

    /// Counts a write; true when the controllers die with it.
    fn dies(&self, request: &http::Request<Body>) -> bool {
        let writes = request.method() != http::Method::GET && !request.uri().path().contains("/events");
        if !writes || !self.on.load(Ordering::SeqCst) {
            return false;
        }
        let left = self.until_death.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left == Ok(1) {
            self.death.notify_one();
            return self.random.lock().random();
        }
        false
    }
}

fn refusal(code: u16, reason: &str) -> http::Response<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "injected" });
    let body = Body::from(serde_json::to_vec(&status).unwrap());
    http::Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

impl Faults {
    /// Those of a seed, which is printed; none until they are switched on.
    pub fn new() -> (Arc<Self>, u64) {
        let given = std::env::var("FERRY_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(rand::random::<u64>);
        println!("FERRY_SEED={seed}");
        let faults = Self {
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            on: AtomicBool::new(false),
            until_death: AtomicUsize::new(usize::MAX),
            death: Notify::new(),
            under_way: watch::Sender::new(0),
        };
        (Arc::new(faults), seed)
    }

    /// From now on they happen.
    pub fn switch_on(&self) {
        self.on.store(true, Ordering::SeqCst);
    }

    /// A few writes from now on the controllers die.
    pub fn next_life(&self) {
        let writes = self.random.lock().random_range(1..25);
        self.until_death.store(writes, Ordering::SeqCst);
    }

    pub async fn death(&self) {
        self.death.notified().await;
    }

    /// Waits until the server has answered all that it has heard of.
    pub async fn answered(&self) {
        let mut under_way = self.under_way.subscribe();
        // The sender lives as long as this.
        let _ = under_way.wait_for(|number| *number == 0).await;
    }

    /// A client whose requests suffer.
    pub fn client(self: &Arc<Self>, inner: Client, server: Tasks) -> Client {
        let faults = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (inner, faults, server) = (inner.clone(), faults.clone(), server.clone());
            let cut =
                |body: Body, frames: usize| BodyExt::boxed_unsync(StreamBody::new(BodyStream::new(body).take(frames)));
            async move {
                let fault = faults.next(&request);
                let frames = match fault {
                    Fault::Refuse(code, reason) => {
                        return Ok::<_, kube::Error>(refusal(code, reason).map(|body| cut(body, usize::MAX)));
                    }
                    Fault::Cut(frames) => frames,
                    Fault::None => usize::MAX,
                };
                // Dead before the server hears of it, or after: the answer is lost either way.
                if faults.dies(&request) {
                    std::future::pending::<()>().await;
                }
                let under_way = UnderWay::new(&faults);
                let (answer, answered) = tokio::sync::oneshot::channel();
                server.spawn("request", async move {
                    // Nobody may be left to hear it.
                    let _ = answer.send(inner.send(request).await);
                    drop(under_way);
                });
                let response = answered.await.map_err(|gone| kube::Error::Service(gone.into()))??;
                Ok(response.map(|body| cut(body, frames)))
            }
        });
        Client::new(service, "default")
    }
}

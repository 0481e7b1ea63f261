//! Watches that are behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferry_client::Informers;
use ferry_meta::UserInfo;
use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;

use crate::Kit;

/// Holds back what the watches of one resource tell.
#[derive(Clone)]
pub struct Lag {
    resource: &'static str,
    /// Whether they tell.
    pub open: Arc<watch::Sender<bool>>,
    /// How often one object of it was asked for by name.
    pub asked: Arc<watch::Sender<usize>>,
    /// So many lists of it in a namespace fail from now on.
    pub failing: Arc<AtomicUsize>,
}

impl Lag {
    pub fn of(resource: &'static str) -> Self {
        let (open, asked) = (Arc::new(watch::Sender::new(true)), Arc::new(watch::Sender::new(0)));
        Self { resource, open, asked, failing: Arc::default() }
    }

    pub fn client(&self, inner: Client) -> Client {
        let lag = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (inner, lag) = (inner.clone(), lag.clone());
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            if request.method() == http::Method::GET && request.uri().path().contains(&format!("/{}/", lag.resource)) {
                lag.asked.send_modify(|asked| *asked += 1);
            }
            let of_all = request.uri().path().ends_with(&format!("/{}", lag.resource));
            let held = watches && of_all;
            let listed = !watches && of_all && request.uri().path().contains("/namespaces/");
            let fewer = |left: usize| left.checked_sub(1);
            let fails = listed
                && request.method() == http::Method::GET
                && lag.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok();
            async move {
                if fails {
                    let status =
                        kube::core::Status::failure("the store did not answer", "InternalError").with_code(500);
                    return Err(kube::Error::Api(Box::new(status)));
                }
                let response = inner.send(request).await?;
                Ok::<_, kube::Error>(response.map(|body| {
                    let frames = BodyStream::new(body).then(move |frame| {
                        let mut open = lag.open.subscribe();
                        async move {
                            if held {
                                let _ = open.wait_for(|open| *open).await;
                            }
                            frame
                        }
                    });
                    BodyExt::boxed_unsync(StreamBody::new(frames))
                }))
            }
        });
        Client::new(service, "default")
    }

    /// All controllers, which hear late of that resource.
    pub fn controllers(&self, kit: &Kit) {
        self.controllers_with(kit, kit.config());
    }

    pub fn controllers_with(&self, kit: &Kit, config: ferry_controllers::Config) {
        let clients = kit.door.clients();
        let shared = self.client(clients(UserInfo::new("system:kube-controller-manager", &[])));
        let informers = Informers::new(shared, kit.tasks.clone());
        let (lag, witness) = (self.clone(), kit.witness.clone());
        let account = move |name: &str| {
            let client = clients(UserInfo::service_account("kube-system", name, ""));
            lag.client(witness.watch(name, client))
        };
        ferry_controllers::start(&informers, account, &kit.tasks, config);
    }
}

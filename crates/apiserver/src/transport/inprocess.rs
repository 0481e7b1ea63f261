//! A `kube::Client` that enters the pipeline without sockets. It authenticates like anyone else.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ferry_tasks::Ended;
use http::header::{self, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};

use crate::pipeline;
use crate::response::answer::{Body, BoxError};
use crate::server::Core;
use ferry_connections::Peer;

#[derive(Clone)]
pub(crate) struct InProcess {
    core: Arc<Core>,
    authorization: Option<HeaderValue>,
    agent: Option<HeaderValue>,
    /// What a caller brought that these requests are made for.
    caller: Option<Arc<Caller>>,
}

struct Caller {
    headers: HeaderMap,
    peer: Peer,
}

/// An answer of this size says more than can be looked at on behalf of a caller.
const LARGEST_ANSWER: usize = 32 << 20;

/// What belongs to one request and not to who makes it.
const OF_ONE_REQUEST: [HeaderName; 12] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::USER_AGENT,
    HeaderName::from_static("audit-id"),
];

impl InProcess {
    /// `component`: under whose name its writes are told of.
    pub(crate) fn new(core: Arc<Core>, token: &str, component: &str) -> Self {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}")).ok();
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let agent = HeaderValue::from_str(&format!("{component}/v1.37.0")).ok();
        Self { core, authorization, agent, caller: None }
    }

    /// Its requests prove themselves as the caller of another request did, and may do what that caller may.
    pub(crate) fn of_caller(core: Arc<Core>, headers: &HeaderMap, peer: &Peer) -> Self {
        let mut headers = headers.clone();
        OF_ONE_REQUEST.iter().for_each(|name| drop(headers.remove(name)));
        let peer = Peer { connection: None, ..peer.clone() };
        Self { core, authorization: None, agent: None, caller: Some(Arc::new(Caller { headers, peer })) }
    }

    pub(crate) fn client(self) -> kube::Client {
        kube::Client::new(self, "default")
    }
}

/// The server stops.
fn unavailable(why: &Ended) -> Response<Body> {
    let status = ferry_meta::ApiError::unavailable(why.to_string());
    let mut response = Response::new(crate::response::answer::full(serde_json::to_vec(&*status.0).unwrap_or_default()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

impl tower_service::Service<Request<kube::client::Body>> for InProcess {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let mut request = request.map(|body| body.map_err(|e| -> BoxError { e.into() }).boxed_unsync());
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        if let Some(agent) = &self.agent {
            request.headers_mut().entry(header::USER_AGENT).or_insert_with(|| agent.clone());
        }
        let mut peer = Peer::default();
        if let Some(caller) = &self.caller {
            peer = caller.peer.clone();
            request.headers_mut().extend(caller.headers.clone());
        }
        let core = self.core.clone();
        if core.tasks.is_here() {
            let limited = self.caller.is_some();
            return Box::pin(async move {
                let answer = pipeline::handle(&core, request, peer).await;
                Ok(if limited { answer.map(|body| Limited::new(body, LARGEST_ANSWER).boxed_unsync()) } else { answer })
            });
        }
        // The node's runtime may stand still while a request holds what others wait for.
        Box::pin(async move {
            let own = core.clone();
            let answer = core.tasks.run("request", async move { pipeline::handle(&own, request, peer).await });
            Ok(answer.await.unwrap_or_else(|ended| unavailable(&ended)))
        })
    }
}

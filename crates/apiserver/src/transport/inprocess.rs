//! A `kube::Client` that enters the pipeline without sockets. It authenticates like anyone else.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ferry_tasks::Ended;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;

use crate::pipeline;
use crate::response::answer::{Body, BoxError};
use crate::server::Core;
use ferry_connections::Peer;

#[derive(Clone)]
pub(crate) struct InProcess {
    core: Arc<Core>,
    authorization: Option<HeaderValue>,
}

impl InProcess {
    pub(crate) fn new(core: Arc<Core>, token: &str) -> Self {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}")).ok();
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        Self { core, authorization }
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
        let core = self.core.clone();
        if core.tasks.is_here() {
            return Box::pin(async move { Ok(pipeline::handle(&core, request, Peer::default()).await) });
        }
        // The node's runtime may stand still while a request holds what others wait for.
        Box::pin(async move {
            let own = core.clone();
            let answer =
                core.tasks.run("request", async move { pipeline::handle(&own, request, Peer::default()).await });
            Ok(answer.await.unwrap_or_else(|ended| unavailable(&ended)))
        })
    }
}

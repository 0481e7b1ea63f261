//! A `kube::Client` that enters the pipeline without sockets. It authenticates like anyone else.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response};
use http_body_util::BodyExt;

use crate::answer::{Body, BoxError};
use crate::context::Peer;
use crate::pipeline;
use crate::server::Core;

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
        Box::pin(async move { Ok(pipeline::handle(&core, request, Peer::default()).await) })
    }
}

//! The server of a component that runs on its own: health for everyone, metrics for those the API server lets in.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferry_client::Api;
use ferry_tasks::Tasks;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::PostParams;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const MOST_CONNECTIONS: usize = 100;

/// What the server tells.
pub struct Component {
    /// Asked who a caller is and what they may see.
    pub client: Client,
    /// The text of `/metrics`.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// Further pages as JSON, by path, for those who may see them.
    pub debug: Option<Pages>,
}

type Pages = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Listens and serves until the group stops. The certificate is made up when none is given, as upstream does.
pub async fn start(
    component: Component,
    address: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
    tasks: &Tasks,
) -> Result<SocketAddr> {
    let tls = tls.map_or_else(self_signed, Ok)?;
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("port {} is in use or not allowed; choose another with --secure-port", address.port())
    })?;
    let bound = listener.local_addr()?;
    let (component, group) = (Arc::new(component), tasks.clone());
    tasks.spawn_until_stopped("component-server", async move {
        let (acceptor, room) = (TlsAcceptor::from(tls), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, most likely: a moment later some may be free.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (component, acceptor) = (component.clone(), acceptor.clone());
            group.spawn_until_stopped("component-connection", async move {
                let _permit = permit;
                if let Err(error) = connection(component, acceptor, stream).await {
                    tracing::debug!("a connection ended: {error:#}");
                }
            });
        }
    });
    Ok(bound)
}

async fn connection(component: Arc<Component>, acceptor: TlsAcceptor, stream: TcpStream) -> Result<()> {
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let service = service_fn(move |request: Request<Incoming>| {
        let component = component.clone();
        async move {
            Ok::<_, Infallible>(
                component.answer(request.method().as_str(), request.uri().path(), request.headers()).await,
            )
        }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(100);
    builder.serve_connection(TokioIo::new(stream), service).await.map_err(|error| anyhow::anyhow!(error))?;
    Ok(())
}

type Answer = Response<Full<Bytes>>;

fn text(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl Component {
    async fn answer(&self, method: &str, path: &str, headers: &header::HeaderMap) -> Answer {
        if matches!(path.split('/').nth(1), Some("healthz" | "livez" | "readyz")) {
            return text(StatusCode::OK, "ok");
        }
        match self.judge(method, path, headers).await {
            Ok(None) => {}
            Ok(Some(refusal)) => return refusal,
            Err(error) => {
                tracing::debug!("a caller cannot be judged: {error}");
                return text(StatusCode::INTERNAL_SERVER_ERROR, "the API server cannot be asked who you are\n");
            }
        }
        match path {
            "/metrics" => text(StatusCode::OK, (self.metrics)()),
            _ => match self.debug.as_ref().and_then(|pages| pages(path)) {
                Some(page) => text(StatusCode::OK, page),
                None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
            },
        }
    }

    /// Asks the API server who the caller is and whether they may; none when they may.
    async fn judge(
        &self,
        method: &str,
        path: &str,
        headers: &header::HeaderMap,
    ) -> Result<Option<Answer>, kube::Error> {
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = header.and_then(|value| value.strip_prefix("Bearer ")) else {
            return Ok(Some(text(StatusCode::UNAUTHORIZED, "Unauthorized\n")));
        };
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Some(text(StatusCode::UNAUTHORIZED, "Unauthorized\n")));
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(method.to_lowercase()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let allowed =
            reviews.create(&PostParams::default(), &review).await?.status.is_some_and(|status| status.allowed);
        Ok((!allowed).then(|| text(StatusCode::FORBIDDEN, "Forbidden\n")))
    }
}

fn self_signed() -> Result<Arc<rustls::ServerConfig>> {
    let made = rcgen::generate_simple_self_signed([crate::config::host_name(), "localhost".to_owned()])
        .context("cannot make a serving certificate")?;
    let pair = crate::pki::Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() };
    crate::pki::server_tls(crate::renewal::Current::new(&pair)?, &pair.certificate)
}

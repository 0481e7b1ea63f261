//! The server of a component that runs on its own: health for everyone, metrics for those the API server lets in.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use ferry_client::Api;
use ferry_connections::{Connections, Handler, Limits, Peer, Protocols};
use ferry_server::certificate_rotation::Current;
use ferry_server::pki::{Pair, server_tls};
use ferry_tasks::Tasks;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::PostParams;
use tokio::net::TcpListener;

const MOST_CONNECTIONS: usize = 100;
const HELD_BYTES: usize = 16 << 20;

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
    let tls = tls.map_or_else(|| self_signed(None), Ok)?;
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("port {} is in use or not allowed; choose another with --secure-port", address.port())
    })?;
    let bound = listener.local_addr()?;
    let (component, tree) = (Arc::new(component), tasks.root());
    let handler: Handler = Arc::new(move |request, peer| {
        let (component, tree) = (component.clone(), tree.clone());
        Box::pin(async move {
            let answer = match request.uri().path().split('/').nth(1) {
                Some("healthz" | "livez" | "readyz") => health(&tree),
                _ => component.answer(request.method().as_str(), request.uri().path(), request.headers(), &peer).await,
            };
            answer.map(|body| body.map_err(|never| match never {}).boxed_unsync())
        })
    });
    let connections = Connections::new(Limits::new(MOST_CONNECTIONS, HELD_BYTES));
    let (listener, group) = (Arc::new(listener), tasks.clone());
    tasks.spawn_critical("component-server", move || {
        let (listener, tls, connections) = (listener.clone(), tls.clone(), connections.clone());
        ferry_connections::serve(listener, tls, Protocols::Http1AndHttp2, connections, group.clone(), handler.clone())
    });
    Ok(bound)
}

type Answer = Response<Full<Bytes>>;

fn text(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// By the tree of tasks: reasons stay here, as upstream has it, and are in the log.
fn health(tree: &Tasks) -> Answer {
    let failed: Vec<_> = tree.health().into_iter().filter(|health| health.failure.is_some()).collect();
    if failed.is_empty() {
        return text(StatusCode::OK, "ok");
    }
    let lines: String = failed.iter().map(|health| format!("[-]{} failed: reason withheld\n", health.name)).collect();
    text(StatusCode::INTERNAL_SERVER_ERROR, lines)
}

impl Component {
    async fn answer(&self, method: &str, path: &str, headers: &header::HeaderMap, peer: &Peer) -> Answer {
        match self.judge(method, path, headers, peer).await {
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
        peer: &Peer,
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
        peer.authenticated(user.username.as_deref().unwrap_or_default());
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

/// The certificate of files, where they are given. Client certificates of `client_ca` name users.
pub fn serving(files: Option<(&Path, &Path)>, client_ca: Option<&Path>) -> Result<Option<Arc<rustls::ServerConfig>>> {
    let Some((certificate, key)) = files else { return Ok(None) };
    serving_with(&Pair { certificate: read(certificate)?, key: read(key)? }, client_ca).map(Some)
}

fn serving_with(pair: &Pair, client_ca: Option<&Path>) -> Result<Arc<rustls::ServerConfig>> {
    // Without authorities nobody's certificate is believed: one's own has signed no other.
    let authorities = client_ca.map(read).transpose()?;
    server_tls(Current::new(pair)?, authorities.as_deref().unwrap_or(&pair.certificate))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A certificate that is made up, as upstream does.
pub fn self_signed(client_ca: Option<&Path>) -> Result<Arc<rustls::ServerConfig>> {
    let made = rcgen::generate_simple_self_signed([crate::config::host_name(), "localhost".to_owned()])
        .context("cannot make a serving certificate")?;
    serving_with(&Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }, client_ca)
}

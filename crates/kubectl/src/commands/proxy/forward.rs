//! Requests to the API server, with the credentials of the kubeconfig, and connections that change their protocol.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;

use super::{Answer, Request, plain};
use crate::config::connect::chain;
use crate::error::{Error, Result};
use crate::log;

/// The body of a request is held until it is whole; the answer is not.
const LARGEST: usize = 64 << 20;

pub struct Forward {
    client: kube::Client,
    /// For requests that bring credentials of their own.
    without_credentials: kube::Client,
    host: HeaderValue,
}

/// Two connections that speak another protocol from now on.
pub struct Tunnel {
    client: OnUpgrade,
    server: OnUpgrade,
}

impl Tunnel {
    pub async fn run(self) {
        let (Ok(client), Ok(server)) = futures::future::join(self.client, self.server).await else { return };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}

impl Forward {
    pub fn new(mut config: kube::Config, append_path: bool) -> Result<Self> {
        let path = config.cluster_url.path().trim_end_matches('/').to_owned();
        if !append_path && !path.is_empty() {
            log::warning(
                "proxy.go",
                &format!(
                    "Your kube context contains a server path {path}, use --append-server-path to automatically append the path to each request"
                ),
            );
            let mut parts = config.cluster_url.into_parts();
            parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
            config.cluster_url = http::Uri::from_parts(parts).map_err(|error| Error::say(error.to_string()))?;
        }
        let host = config.cluster_url.authority().map_or(Ok(HeaderValue::from_static("")), |at| {
            HeaderValue::from_str(at.as_str()).map_err(|error| Error::say(error.to_string()))
        })?;
        let mut bare = config.clone();
        let user = &mut bare.auth_info;
        (user.token, user.token_file, user.username, user.password) = (None, None, None, None);
        (user.exec, user.auth_provider) = (None, None);
        let made = |config: kube::Config| kube::Client::try_from(config).map_err(|error| Error::say(chain(&error)));
        Ok(Self { client: made(config)?, without_credentials: made(bare)?, host })
    }

    pub async fn answer(
        &self,
        mut request: Request,
        path: &str,
        from: &str,
        tunnels: &mpsc::UnboundedSender<Tunnel>,
    ) -> Answer {
        let upgrade = upgrade_of(request.headers());
        let on_client = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, LARGEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body of the request is too large");
            }
            Err(_) => return plain(StatusCode::BAD_REQUEST, "400 Bad Request"),
        };
        let mut sent = http::Request::new(kube::client::Body::from(body.to_vec()));
        *sent.method_mut() = head.method;
        match path.parse() {
            Ok(uri) => *sent.uri_mut() = uri,
            Err(_) => return plain(StatusCode::BAD_REQUEST, "400 Bad Request"),
        }
        let mut headers = head.headers;
        between_ends(&mut headers);
        headers.insert(header::HOST, self.host.clone());
        headers.remove(header::CONTENT_LENGTH);
        if let Some(protocol) = &upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(header::UPGRADE, protocol.clone());
        }
        forwarded_for(&mut headers, from);
        let client = match headers.contains_key(header::AUTHORIZATION) {
            true => &self.without_credentials,
            false => &self.client,
        };
        *sent.headers_mut() = headers;
        let mut answer = match client.send(sent).await {
            Ok(answer) => answer,
            Err(error) => {
                let why = chain(&error);
                log::error("proxy_server.go", &format!("Error while proxying request: {why}"));
                return plain(StatusCode::INTERNAL_SERVER_ERROR, &why);
            }
        };
        let protocol = upgrade_of(answer.headers());
        between_ends(answer.headers_mut());
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = on_client else {
                return plain(StatusCode::BAD_GATEWAY, "the server changed the protocol and was not asked to");
            };
            let tunnel = Tunnel { client, server: hyper::upgrade::on(&mut answer) };
            if tunnels.send(tunnel).is_err() {
                return plain(StatusCode::SERVICE_UNAVAILABLE, "the proxy ends");
            }
            let headers = answer.headers_mut();
            headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            if let Some(protocol) = protocol {
                headers.insert(header::UPGRADE, protocol);
            }
        }
        let (mut head, body) = answer.into_parts();
        // The connection to the client has an end of its own.
        head.extensions = http::Extensions::new();
        head.version = http::Version::HTTP_11;
        let body = body.map_err(Into::into).boxed_unsync();
        http::Response::from_parts(head, body)
    }
}

/// The protocol that is asked for, or agreed on.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asked = asked.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| asked).cloned()
}

/// Removes what is said between two ends of one connection.
fn between_ends(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        "connection",
        "proxy-connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ] {
        headers.remove(name);
    }
}

fn forwarded_for(headers: &mut HeaderMap, from: &str) {
    if from.is_empty() {
        return;
    }
    let before: Vec<&str> = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok()).collect();
    let all = before.into_iter().chain([from]).collect::<Vec<_>>().join(", ");
    if let Ok(value) = HeaderValue::from_str(&all) {
        headers.insert("x-forwarded-for", value);
    }
}

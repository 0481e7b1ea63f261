//! Registries over HTTP: manifests and blobs, with the tokens and passwords they ask for.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ferry_cri::image_name::{Reference, ReferenceError};
use ferry_cri::v1::AuthConfig;
use ferry_outbound::HttpsClient;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use super::trust;
use super::unpack::Room;

const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// A body that stands still for so long has ended.
const BODY_PATIENCE: Duration = Duration::from_secs(60);
const MOST_REDIRECTS: usize = 5;
const LONGEST_DOCUMENT: usize = 4 * 1024 * 1024;
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json";

#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    #[error(transparent)]
    Name(#[from] ReferenceError),
    #[error("{0}: not found")]
    NotFound(String),
    #[error("pull access denied, repository does not exist or may require authorization: {0}")]
    Denied(String),
    #[error("failed to do request: {method} {url}: {why}")]
    Request { method: Method, url: String, why: String },
    #[error("unexpected status from {method} request to {url}: {status}{detail}")]
    Status { method: Method, url: String, status: StatusCode, detail: String },
    #[error("{what} is corrupt: its content has the digest {found}")]
    Corrupt { what: String, found: String },
    #[error("{what} is not understood: {why}")]
    Malformed { what: String, why: String },
    #[error("layer {layer} cannot be unpacked: {why}")]
    Unpack { layer: String, why: String },
    #[error("{what}: {error}")]
    Disk { what: String, error: std::io::Error },
}

impl PullError {
    pub(crate) fn disk(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::Disk { what, error }
    }
}

/// Where a registry is reached, in the order of trying.
#[derive(Clone, Debug, Default)]
pub struct Mirrors(pub Vec<(String, String)>);

/// A pull from one place: keeps the token between its requests.
pub(crate) struct Session<'a> {
    client: &'a HttpsClient,
    base: String,
    namespace: Option<String>,
    reference: &'a Reference,
    auth: Option<&'a AuthConfig>,
    authorization: tokio::sync::Mutex<Option<String>>,
}

impl Mirrors {
    /// The addresses to try, and the name to tell where the address is another's.
    pub(crate) fn places(&self, reference: &Reference) -> Vec<(String, Option<String>)> {
        let registry = &reference.registry;
        let mirrors = self.0.iter().filter(|(name, _)| name == registry);
        let mut places: Vec<_> = mirrors.map(|(_, url)| (url.clone(), Some(registry.clone()))).collect();
        let host = trust::own_host(registry);
        let scheme = if is_loopback(host) { "http" } else { "https" };
        places.push((format!("{scheme}://{host}"), None));
        places
    }
}

/// A registry on this machine is spoken to in plain HTTP.
fn is_loopback(host: &str) -> bool {
    let name = if host.starts_with('[') {
        host.split(']').next().unwrap_or_default().trim_start_matches('[')
    } else {
        host.split(':').next().unwrap_or_default()
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(crate) struct Document {
    pub(crate) kind: String,
    pub(crate) digest: String,
    pub(crate) bytes: Bytes,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        client: &'a HttpsClient,
        (base, namespace): (String, Option<String>),
        reference: &'a Reference,
        auth: Option<&'a AuthConfig>,
    ) -> Self {
        let authorization = tokio::sync::Mutex::new(None);
        let place = base.parse::<Uri>().ok();
        let auth = auth.filter(|auth| place.as_ref().is_some_and(|place| trust::is_for(auth, reference, place)));
        Self { client, base, namespace, reference, auth, authorization }
    }

    fn url(&self, kind: &str, name: &str) -> String {
        let namespace = self.namespace.as_ref().map(|name| format!("?ns={name}")).unwrap_or_default();
        format!("{}/v2/{}/{kind}/{name}{namespace}", self.base, self.reference.repository)
    }

    /// A manifest or an index by tag or digest; what is asked for by digest is checked against it.
    pub(crate) async fn manifest(&self, version: &str) -> Result<Document, PullError> {
        let url = self.url("manifests", version);
        let response = self.get(&url, Some(MANIFESTS)).await?;
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_owned();
        let bytes = small(response, &url, LONGEST_DOCUMENT).await?;
        let digest = format!("sha256:{:x}", Sha256::digest(&bytes));
        if ferry_cri::image_name::is_digest(version) && version != digest {
            return Err(PullError::Corrupt { what: format!("manifest {version}"), found: digest });
        }
        Ok(Document { kind, digest, bytes })
    }

    pub(crate) async fn small_blob(&self, digest: &str) -> Result<Bytes, PullError> {
        let url = self.url("blobs", digest);
        let bytes = small(self.get(&url, None).await?, &url, LONGEST_DOCUMENT).await?;
        let found = format!("sha256:{:x}", Sha256::digest(&bytes));
        if found != digest {
            return Err(PullError::Corrupt { what: format!("blob {digest}"), found });
        }
        Ok(bytes)
    }

    /// A layer into a file; never more than its manifest announced.
    pub(crate) async fn blob(&self, digest: &str, size: u64, place: &Path) -> Result<(), PullError> {
        let url = self.url("blobs", digest);
        let mut body = self.get(&url, None).await?.into_body();
        let failed = |why: String| PullError::Request { method: Method::GET, url: url.clone(), why };
        let disk = || PullError::disk(format!("cannot keep layer {digest} in {}", place.display()));
        let file = tokio::fs::File::create(place).await.map_err(disk())?;
        // The manifest may announce any size.
        let mut room = Room::new(file.as_fd().try_clone_to_owned().map_err(disk())?).map_err(disk())?;
        let mut to = tokio::io::BufWriter::with_capacity(256 * 1024, file);
        let (mut hash, mut length) = (Sha256::new(), 0u64);
        loop {
            let frame = tokio::time::timeout(BODY_PATIENCE, body.frame()).await;
            let frame = match frame.map_err(|_| failed("the body stopped coming".to_owned()))? {
                None => break,
                Some(frame) => frame.map_err(|error| failed(ferry_outbound::deepest(&error)))?,
            };
            let Ok(data) = frame.into_data() else { continue };
            length += data.len() as u64;
            if length > size {
                let why = format!("it is longer than the {size} bytes of its manifest");
                return Err(PullError::Malformed { what: format!("layer {digest}"), why });
            }
            hash.update(&data);
            room.take(data.len() as u64).map_err(disk())?;
            to.write_all(&data).await.map_err(disk())?;
        }
        to.flush().await.map_err(disk())?;
        let found = format!("sha256:{:x}", hash.finalize());
        if found != digest {
            return Err(PullError::Corrupt { what: format!("layer {digest} ({length} of {size} bytes)"), found });
        }
        Ok(())
    }

    async fn get(&self, url: &str, accept: Option<&str>) -> Result<Response<Incoming>, PullError> {
        let mut asked = false;
        loop {
            let authorization = self.authorization.lock().await.clone();
            let response = self.follow(url, accept, authorization.as_deref()).await?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            if status == StatusCode::UNAUTHORIZED && !asked {
                asked = true;
                let challenges: Vec<String> = response
                    .headers()
                    .get_all(header::WWW_AUTHENTICATE)
                    .iter()
                    .filter_map(|value| value.to_str().ok().map(str::to_owned))
                    .collect();
                if let Some(answer) = self.authorize(&challenges).await? {
                    *self.authorization.lock().await = Some(answer);
                    continue;
                }
            }
            if refused {
                return Err(PullError::Denied(self.reference.to_string()));
            }
            if status == StatusCode::NOT_FOUND {
                return Err(PullError::NotFound(self.reference.to_string()));
            }
            let detail = small(response, url, 64 * 1024).await.unwrap_or_default();
            let detail = complaints(&detail).map(|text| format!(": {text}")).unwrap_or_default();
            return Err(PullError::Status { method: Method::GET, url: url.to_owned(), status, detail });
        }
    }

    /// Follows redirects; what proves who we are goes to the first host only, and nothing goes from TLS to plain HTTP.
    async fn follow(
        &self,
        url: &str,
        accept: Option<&str>,
        authorization: Option<&str>,
    ) -> Result<Response<Incoming>, PullError> {
        let failed = |why: String| PullError::Request { method: Method::GET, url: url.to_owned(), why };
        let first: Uri = url.parse().map_err(|e| failed(format!("{e}")))?;
        let mut next = first.clone();
        for _ in 0..=MOST_REDIRECTS {
            let mut request = Request::get(next.clone()).header(header::USER_AGENT, "ferry");
            if let Some(host) = next.authority() {
                request = request.header(header::HOST, host.as_str());
            }
            if let Some(accept) = accept {
                request = request.header(header::ACCEPT, accept);
            }
            if let Some(authorization) = authorization.filter(|_| trust::is_same(&first, &next)) {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            let request = request.body(Full::default()).map_err(|e| failed(e.to_string()))?;
            let response = self.send(request, url).await?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let to = response.headers().get(header::LOCATION).and_then(|v| v.to_str().ok());
            let to = to.ok_or_else(|| failed("a redirect without a place".to_owned()))?;
            let target = absolute(&next, to).filter(|target| trust::may_follow(&next, target));
            next = target.ok_or_else(|| failed(format!("a redirect to {to:?} is not followed")))?;
        }
        Err(failed("too many redirects".to_owned()))
    }

    async fn send(&self, request: Request<Full<Bytes>>, url: &str) -> Result<Response<Incoming>, PullError> {
        let failed = |why: String| PullError::Request { method: Method::GET, url: url.to_owned(), why };
        match tokio::time::timeout(ANSWER_PATIENCE, self.client.request(request)).await {
            Err(_) => Err(failed("no answer in a minute".to_owned())),
            Ok(Err(error)) => Err(failed(ferry_outbound::deepest(&error))),
            Ok(Ok(response)) => Ok(response),
        }
    }

    /// The header that the registry's challenge asks for; none where there is nothing to show.
    async fn authorize(&self, challenges: &[String]) -> Result<Option<String>, PullError> {
        if let Some(token) = self.auth.map(|a| a.registry_token.as_str()).filter(|token| !token.is_empty()) {
            return Ok(Some(format!("Bearer {token}")));
        }
        let basic = self.auth.and_then(basic);
        for challenge in challenges {
            let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
            if scheme.eq_ignore_ascii_case("basic") {
                if let Some(basic) = &basic {
                    return Ok(Some(format!("Basic {basic}")));
                }
            } else if scheme.eq_ignore_ascii_case("bearer") {
                return self.token(&parse_parameters(parameters), basic.as_deref()).await.map(Some);
            }
        }
        Ok(None)
    }

    async fn token(&self, challenge: &HashMap<String, String>, basic: Option<&str>) -> Result<String, PullError> {
        let what = || format!("the challenge of {}", self.base);
        let Some(realm) = challenge.get("realm") else {
            return Err(PullError::Malformed { what: what(), why: "no realm".to_owned() });
        };
        let asked = realm.parse::<Uri>().ok().zip(self.base.parse::<Uri>().ok());
        if !asked.is_some_and(|(realm, base)| trust::may_ask(&base, &realm)) {
            let why = format!("it sends us to {realm:?} for a token, which is not https, or not outside");
            return Err(PullError::Malformed { what: what(), why });
        }
        let scope = format!("repository:{}:pull", self.reference.repository);
        let scope = challenge.get("scope").unwrap_or(&scope);
        let service = challenge.get("service").map(String::as_str).unwrap_or_default();
        let identity = self.auth.map(|a| a.identity_token.as_str()).filter(|token| !token.is_empty());
        let form = format!("service={}&scope={}", escaped(service), escaped(scope));
        let request = match identity {
            Some(identity) => {
                let form =
                    format!("grant_type=refresh_token&client_id=ferry&refresh_token={}&{form}", escaped(identity));
                Request::post(realm.as_str())
                    .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(Full::from(form))
            }
            None => {
                let joint = if realm.contains('?') { '&' } else { '?' };
                let mut request = Request::get(format!("{realm}{joint}{form}"));
                if let Some(basic) = basic {
                    request = request.header(header::AUTHORIZATION, format!("Basic {basic}"));
                }
                request.body(Full::default())
            }
        };
        let request = request.map_err(|e| PullError::Malformed { what: what(), why: e.to_string() })?;
        let response = self.send(request, realm).await?;
        if !response.status().is_success() {
            return Err(PullError::Denied(format!("{}: {} of {realm}", self.reference, response.status())));
        }
        let bytes = small(response, realm, LONGEST_DOCUMENT).await?;
        let answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let token = answer["token"].as_str().or_else(|| answer["access_token"].as_str());
        match token {
            Some(token) => Ok(format!("Bearer {token}")),
            None => Err(PullError::Malformed { what: format!("the answer of {realm}"), why: "no token".to_owned() }),
        }
    }
}

/// What a registry complains about, in the words of its protocol. What else answers there is not shown: an image may name any
/// server that the node reaches, and whoever made the pod reads the Event.
fn complaints(body: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    let errors = answer.get("errors")?.as_array()?;
    let words = errors.iter().filter_map(|error| {
        let code = error.get("code")?.as_str()?;
        Some(format!("{code}: {}", error.get("message").and_then(|text| text.as_str()).unwrap_or_default()))
    });
    let text: String = words.collect::<Vec<_>>().join(", ").chars().take(512).collect();
    (!text.is_empty()).then_some(text)
}

/// The whole of a short body.
async fn small(response: Response<Incoming>, url: &str, most: usize) -> Result<Bytes, PullError> {
    let failed = |why: String| PullError::Request { method: Method::GET, url: url.to_owned(), why };
    let body = http_body_util::Limited::new(response.into_body(), most).collect();
    let body = tokio::time::timeout(BODY_PATIENCE, body).await.map_err(|_| failed("the body stopped coming".into()))?;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| failed(error.to_string()))
}

fn basic(auth: &AuthConfig) -> Option<String> {
    if !auth.auth.is_empty() {
        return Some(auth.auth.trim().to_owned());
    }
    (!auth.username.is_empty()).then(|| STANDARD.encode(format!("{}:{}", auth.username, auth.password)))
}

fn absolute(from: &Uri, to: &str) -> Option<Uri> {
    let uri = if to.starts_with('/') {
        format!("{}://{}{to}", from.scheme_str()?, from.authority()?).parse().ok()?
    } else {
        to.parse::<Uri>().ok()?
    };
    matches!(uri.scheme_str(), Some("http" | "https")).then_some(uri)
}

/// `realm="https://…",service="…"`.
fn parse_parameters(text: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    let mut rest = text.trim();
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']).to_ascii_lowercase();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.insert(name, value.to_owned());
        rest = after;
    }
    found
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests;

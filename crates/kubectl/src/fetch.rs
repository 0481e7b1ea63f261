//! Files of other machines: `-f https://…` and the resources of kustomizations.

use std::time::Duration;

use http::{StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};

use crate::config::connect::{chain, clients};
use crate::config::proxy;
use crate::error::Error;
use crate::text::quote;

/// A file of objects is not larger.
const LARGEST: usize = 64 << 20;
const REDIRECTS: usize = 10;
const ATTEMPTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(120);

pub fn is_url(name: &str) -> bool {
    name.starts_with("http://") || name.starts_with("https://")
}

/// The body. A server that fails is asked again, one that refuses is not.
pub async fn get(url: &str) -> Result<Vec<u8>, Error> {
    let mut why = Error::say("");
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let asked = tokio::time::timeout(PATIENCE, follow(url)).await;
        match asked.unwrap_or_else(|_| Err(lost(url, "the server does not answer".into()))) {
            Ok((StatusCode::OK, body)) => return Ok(body),
            Ok((code, _)) => {
                let (number, name) = (code.as_u16(), code.canonical_reason().unwrap_or_default());
                why = Error::say(format!(
                    "unable to read URL {}, server reported {number} {name}, status code={number}",
                    quote(url)
                ));
                if !code.is_server_error() {
                    break;
                }
            }
            Err(failed) => why = failed,
        }
    }
    Err(why)
}

/// Nobody answered.
fn lost(host: &str, why: String) -> Error {
    Error::Connection { host: host.to_owned(), refused: why == REFUSED, why }
}

const REFUSED: &str = "connection refused";

async fn follow(url: &str) -> Result<(StatusCode, Vec<u8>), Error> {
    let fail = |why: String| lost(url.split('/').nth(2).unwrap_or_default(), why);
    let mut at: Uri = url.parse().map_err(|error| fail(format!("{error}")))?;
    for _ in 0..REDIRECTS {
        let answer = ask(&at).await.map_err(fail)?;
        let moved = answer.headers().get(header::LOCATION).and_then(|place| place.to_str().ok());
        match moved.filter(|_| answer.status().is_redirection()) {
            Some(place) => at = resolved(&at, place).map_err(fail)?,
            None => {
                let code = answer.status();
                let body = Limited::new(answer.into_body(), LARGEST).collect().await;
                let body = body.map_err(|error| fail(format!("cannot read the answer: {error}")))?;
                return Ok((code, body.to_bytes().to_vec()));
            }
        }
    }
    Err(fail(format!("stopped after {REDIRECTS} redirects")))
}

async fn ask(at: &Uri) -> Result<http::Response<kube::client::Body>, String> {
    let authority = at.authority().ok_or("no Host in request URL")?;
    let scheme = at.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https")).ok_or("unsupported protocol")?;
    let base = format!("{scheme}://{}", authority.as_str());
    // Several parts of the process bring a provider of their own; the first to ask decides for all.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = kube::Config::new(base.parse().map_err(|error| format!("{error}"))?);
    config.connect_timeout = Some(Duration::from_secs(30));
    config.default_retry = false;
    let proxy = proxy::Environment::read().proxy(&base).map_err(|error| error.inner())?;
    let (client, _) = clients(config, proxy).map_err(|error| chain(&error))?;
    let path = at.path_and_query().map_or("/", |path| path.as_str());
    let request = http::Request::get(path).header(header::USER_AGENT, "Go-http-client/1.1");
    let request = request.body(kube::client::Body::empty()).map_err(|error| error.to_string())?;
    client.send(request).await.map_err(|error| refused(&error, authority.as_str()))
}

/// Go's words for what is seen most.
fn refused(error: &kube::Error, authority: &str) -> String {
    let why = chain(error);
    if why.to_lowercase().contains("connection refused") {
        return REFUSED.into();
    }
    // A proxy's refusal stands behind the library's words.
    if let Some(at) = why.find("proxyconnect tcp: ") {
        return why[at..].to_owned();
    }
    if why.contains("failed to lookup address") {
        let name = authority.rsplit_once(':').map_or(authority, |(name, _)| name);
        return format!("dial tcp: lookup {name}: no such host");
    }
    why
}

/// Where a redirect leads. It does not lead from TLS to plain text.
fn resolved(from: &Uri, place: &str) -> Result<Uri, String> {
    let broken = |error: http::uri::InvalidUri| format!("failed to parse Location header {}: {error}", quote(place));
    if place.contains("://") {
        let to: Uri = place.parse().map_err(broken)?;
        if from.scheme_str() == Some("https") && to.scheme_str() == Some("http") {
            return Err(format!("the redirect to {} is not encrypted", quote(place)));
        }
        return Ok(to);
    }
    let (scheme, authority) = (from.scheme_str().unwrap_or("http"), from.authority().map_or("", |at| at.as_str()));
    let path = match place.strip_prefix('/') {
        Some(_) => place.to_owned(),
        None => format!("{}/{place}", from.path().rsplit_once('/').map_or("", |(folder, _)| folder)),
    };
    format!("{scheme}://{authority}{path}").parse().map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_encrypted() {
        let from: Uri = "https://a.example/x/y.yaml".parse().unwrap();
        assert_eq!(resolved(&from, "/z").unwrap(), "https://a.example/z");
        assert_eq!(resolved(&from, "z").unwrap(), "https://a.example/x/z");
        assert_eq!(resolved(&from, "https://b.example/z").unwrap(), "https://b.example/z");
        assert!(resolved(&from, "http://b.example/z").is_err());
    }
}

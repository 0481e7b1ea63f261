//! From an address and a token to a cluster that can be trusted: `cluster-info` is read from whoever answers, and believed
//! only when the token's secret signed it and the CA in it is the one that the token names.

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Config;
use kube::client::Body;
use serde_json::Value;

use super::token::JoinToken;
use crate::kubeconfig;

const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
/// More than any object has, and not more than a machine can hold.
const MOST_BYTES: usize = 4 << 20;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
const MOST_OFF: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);
const CONNECT: std::time::Duration = std::time::Duration::from_secs(2);

/// How to reach the cluster, and by which CA to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub server: String,
    pub ca: String,
}

/// `host`, `host:port` or a whole URL.
pub fn server_url(address: &str) -> Result<http::Uri> {
    let text = if address.contains("://") { address.to_owned() } else { format!("https://{address}") };
    let uri: http::Uri = text.parse().with_context(|| format!("{address:?} is not a valid server address"))?;
    ensure!(uri.scheme_str() == Some("https") && uri.host().is_some(), "{address:?} is not a valid server address");
    if uri.port().is_some() {
        return Ok(uri);
    }
    let host = uri.host().unwrap_or_default();
    format!("https://{host}:6443").parse().with_context(|| format!("{address:?} is not a valid server address"))
}

/// Asks the server at this address what its cluster is, and checks the answer. Nothing secret is sent.
pub async fn discover(address: &str, token: &JoinToken) -> Result<Cluster> {
    let asked = tokio::time::timeout(PATIENCE, ask(address, token)).await;
    asked.with_context(|| format!("the server at {address} does not answer within {PATIENCE:?}"))?
}

async fn ask(address: &str, token: &JoinToken) -> Result<Cluster> {
    let mut config = Config::new(server_url(address)?);
    // Whoever answers is not believed: the signature and the hash decide.
    config.accept_invalid_certs = true;
    let client = kubeconfig::connect(config)?;
    let map = cluster_info(&client).await.with_context(|| {
        format!("the server at {address} does not tell its cluster-info; is it an API server, and is it up?")
    })?;
    let mut cluster = check(map.data.as_ref().map(|data| (data, token)))?;
    check_clock(&client).await?;
    // Of several servers it names the one that started last, which may be gone; the one that was asked is there.
    if !takes_connections(&cluster.server).await {
        cluster.server = server_url(address)?.to_string().trim_end_matches('/').to_owned();
    }
    Ok(cluster)
}

async fn cluster_info(client: &kube::Client) -> Result<ConfigMap> {
    let request = http::Request::get(CLUSTER_INFO).body(Body::empty())?;
    let answer = client.send(request).await?;
    let status = answer.status();
    let text = bounded(answer.into_body()).await?;
    ensure!(status.is_success(), "it answers {status}");
    serde_json::from_slice(&text).context("its answer is no ConfigMap")
}

/// Whoever answers may go on without end.
async fn bounded<B: hyper::body::Body<Error: Into<tower::BoxError>>>(body: B) -> Result<hyper::body::Bytes> {
    let read = Limited::new(body, MOST_BYTES).collect().await;
    Ok(read.map_err(|error| anyhow::anyhow!("its answer cannot be read: {error}"))?.to_bytes())
}

/// Certificates that the cluster signs are good from five minutes before it signs them: a machine whose clock is further
/// behind, or long ahead, would not take them, and others would not take what it says.
async fn check_clock(client: &kube::Client) -> Result<()> {
    let request = http::Request::get("/version").body(Body::empty())?;
    let answer = client.send(request).await.context("the server does not tell the time")?;
    let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
    let server = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    // Nobody has to tell the time.
    server.map_or(Ok(()), |server| compare_clocks(server.timestamp(), jiff::Timestamp::now()))
}

fn compare_clocks(server: jiff::Timestamp, own: jiff::Timestamp) -> Result<()> {
    let off = own.duration_since(server);
    let way = if off.is_negative() { "behind" } else { "ahead of" };
    ensure!(
        off.abs() <= MOST_OFF,
        "this machine's clock is {:#} {way} the server's ({own:.0} here, {server:.0} there); set it, for example with timedatectl",
        jiff::SignedDuration::from_secs(off.abs().as_secs())
    );
    Ok(())
}

async fn takes_connections(server: &str) -> bool {
    let Ok(uri) = server_url(server) else { return false };
    let Some(authority) = uri.authority() else { return false };
    matches!(tokio::time::timeout(CONNECT, tokio::net::TcpStream::connect(authority.as_str())).await, Ok(Ok(_)))
}

type Data = std::collections::BTreeMap<String, String>;

fn check(found: Option<(&Data, &JoinToken)>) -> Result<Cluster> {
    let (data, token) = found.context("the server's cluster-info is empty")?;
    let text = data.get("kubeconfig").context("the server's cluster-info has no kubeconfig")?;
    let Some(signature) = data.get(&format!("jws-kubeconfig-{}", token.id)) else {
        bail!("the server does not know the token {}: it ended, was deleted, or is of another cluster", token.id);
    };
    verify(text, signature, &token.secret)?;
    let (kubeconfig, _) = ferry_schema::yaml::parse_value(text.as_bytes())
        .map_err(|error| anyhow::anyhow!("the server's cluster-info is damaged: {error}"))?;
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let encoded = cluster["certificate-authority-data"].as_str().unwrap_or_default();
    let ca = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let (Some(ca), Value::String(server)) = (ca, &cluster["server"]) else {
        bail!("the server's cluster-info names no server or no CA");
    };
    Ok(Cluster { server: server.clone(), ca: token.trusted_ca(&ca)? })
}

/// A detached JWS: `header..signature` over the text that is not repeated in it.
fn verify(text: &str, jws: &str, secret: &str) -> Result<()> {
    const WRONG: &str =
        "the token's secret did not sign the server's cluster-info: the token is wrong, or somebody else answers";
    let mut parts = jws.split('.');
    let (Some(header), Some(""), Some(signature), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        bail!(WRONG);
    };
    let decoded = URL_SAFE_NO_PAD.decode(header).ok();
    let algorithm = decoded.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    ensure!(algorithm.is_some_and(|header| header["alg"] == "HS256"), WRONG);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(text));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
    hmac::verify(&key, signed.as_bytes(), &signature).map_err(|_| anyhow::anyhow!(WRONG))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(text: &str, token: &JoinToken) -> Data {
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{}"}}"#, token.id));
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret.as_bytes());
        let tag = hmac::sign(&key, format!("{header}.{}", URL_SAFE_NO_PAD.encode(text)).as_bytes());
        let jws = format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag));
        Data::from([("kubeconfig".into(), text.into()), (format!("jws-kubeconfig-{}", token.id), jws)])
    }

    #[test]
    fn only_what_the_token_signed_and_named_is_believed() {
        let folder = tempfile::tempdir().unwrap();
        let pki = ferry_server::pki::Pki::open(folder.path()).unwrap();
        let token = JoinToken::new(pki.ca_certificate()).unwrap();
        let document = |ca: &str| {
            let ca = STANDARD.encode(ca);
            format!(
                "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: https://192.0.2.1:6443\n    certificate-authority-data: {ca}\n"
            )
        };
        let good = signed(&document(pki.ca_certificate()), &token);
        let cluster = check(Some((&good, &token))).unwrap();
        assert_eq!(cluster.server, "https://192.0.2.1:6443");
        assert_eq!(cluster.ca, pki.ca_certificate());

        let refused = |data: &Data, token: &JoinToken, why: &str| {
            let error = check(Some((data, token))).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        let changed = document(pki.ca_certificate()).replace("192.0.2.1", "192.0.2.66");
        let mut forged = good.clone();
        forged.insert("kubeconfig".into(), changed);
        refused(&forged, &token, "did not sign");
        refused(&good, &JoinToken { secret: "x".repeat(16), ..token.clone() }, "did not sign");
        refused(&good, &JoinToken { id: "other1".into(), ..token.clone() }, "does not know the token");
        let other = ferry_server::pki::Pki::open(&folder.path().join("other")).unwrap();
        refused(&signed(&document(other.ca_certificate()), &token), &token, "another cluster");
        refused(&Data::new(), &token, "no kubeconfig");
        let both = format!("{}{}", other.ca_certificate(), pki.ca_certificate());
        let cluster = check(Some((&signed(&document(&both), &token), &token))).unwrap();
        assert_eq!(cluster.ca.matches("BEGIN CERTIFICATE").count(), 1);
        assert_eq!(super::super::token::ca_hash(&cluster.ca).unwrap(), token.ca);
    }

    #[tokio::test]
    async fn an_answer_without_end_is_not_read_to_its_end() {
        let endless = futures::stream::repeat_with(|| {
            Ok::<_, std::convert::Infallible>(hyper::body::Frame::data(hyper::body::Bytes::from_static(&[b' '; 65536])))
        });
        let error = bounded(http_body_util::StreamBody::new(endless)).await.unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "{error}");
    }

    #[test]
    fn a_clock_that_is_far_off_is_named() {
        let server: jiff::Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let at = |text: &str| compare_clocks(server, text.parse().unwrap());
        at("2026-01-01T23:59:00Z").unwrap();
        at("2026-01-02T00:05:00Z").unwrap();
        let behind = at("2026-01-01T00:00:00Z").unwrap_err().to_string();
        assert!(behind.contains("24h behind the server's (2026-01-01T00:00:00Z here"), "{behind}");
        assert!(at("2026-01-02T01:00:00Z").unwrap_err().to_string().contains("1h ahead of"));
    }

    #[test]
    fn addresses_are_completed() {
        assert_eq!(server_url("192.0.2.1").unwrap().to_string(), "https://192.0.2.1:6443/");
        assert_eq!(server_url("[fd00::1]:7443").unwrap().to_string(), "https://[fd00::1]:7443/");
        assert_eq!(server_url("https://a.example").unwrap().to_string(), "https://a.example:6443/");
        assert!(server_url("http://a.example").is_err());
        assert!(server_url("a b").is_err());
    }
}

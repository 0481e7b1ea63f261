//! Connections that become something else than HTTP: WebSockets above all.

use ferry_connections::Body;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::Shared;

/// What the client wants the connection to become. Another form of HTTP it does not become: requests on it would come to the
/// backend past every rule.
pub fn wanted(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asks = asks.flat_map(|line| line.split(',')).any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    let is_other = |value: &&HeaderValue| value.to_str().is_ok_and(|text| !text.split(',').any(is_http));
    headers.get(UPGRADE).filter(|_| asks).filter(is_other).cloned()
}

/// `h2c`, `HTTP/2.0`, `TLS/1.2`.
fn is_http(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default().trim();
    ["h2c", "h2", "http", "tls"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Joins both ends for as long as they have something to say.
pub fn join(shared: &Shared, client: OnUpgrade, response: &mut Response<Body>, backend: OnUpgrade) {
    if let Some(protocol) = response.headers().get(UPGRADE).cloned() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, protocol);
    }
    let stopping = shared.tasks.stopping();
    shared.tasks.spawn("upgraded connection", async move {
        let joined = async {
            let (client, backend) = tokio::try_join!(client, backend)?;
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(backend)).await;
            Ok::<_, hyper::Error>(())
        };
        if let Some(Err(error)) = stopping.run_until_cancelled(joined).await {
            tracing::debug!("a connection was not upgraded: {error}");
        }
    });
}

//! The HTTPS client of webhooks: connections are kept, answers bounded, and failures worded as upstream words them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use ferry_meta::ObjectReader;
use ferry_outbound::{HttpsClient, Resolver, deepest};
use ferry_tasks::Tasks;
use http_body_util::{BodyExt, Full, Limited};
use parking_lot::Mutex;

use super::config::{Hook, Target};
use super::service;
use crate::CallError;

/// No answer is read further than this.
const LARGEST_ANSWER: usize = 3 * 1024 * 1024;
/// How much is kept of an answer that is no success.
const SHOWN: usize = 1024;
/// So many different sets of authorities are remembered; more than any cluster has.
const CLIENTS: usize = 256;

pub(super) struct WebhookClient {
    reader: Arc<dyn ObjectReader>,
    tasks: Tasks,
    /// By the CA bundle, and whether hosts are Services.
    clients: Mutex<HashMap<(String, bool), HttpsClient>>,
}

impl WebhookClient {
    pub(super) fn new(reader: Arc<dyn ObjectReader>, tasks: Tasks) -> Self {
        Self { reader, tasks, clients: Mutex::default() }
    }

    /// The body of a 200 answer.
    pub(super) async fn post(&self, hook: &Hook, body: Bytes) -> Result<Bytes, CallError> {
        self.send(&hook.target, &hook.ca_bundle, hook.timeout, true, body).await
    }

    /// Webhooks of admission are told how long they have; those of conversion are not.
    pub(super) async fn send(
        &self,
        target: &Target,
        ca_bundle: &str,
        timeout: Duration,
        tell: bool,
        body: Bytes,
    ) -> Result<Bytes, CallError> {
        let (mut url, service) = match target {
            Target::Url(url) => (cleaned(url), false),
            Target::Service { namespace, name, path, port } => {
                (cleaned(&format!("https://{name}.{namespace}.svc:{port}/{path}")), true)
            }
        };
        if tell {
            let separator = if url.contains('?') { '&' } else { '?' };
            url = format!("{url}{separator}timeout={}s", timeout.as_secs());
        }
        let failed = |why: String| CallError::Failed { url: url.clone(), why };
        let client = self.client(ca_bundle, service).map_err(|error| failed(error.to_string()))?;
        let request = http::Request::post(&url)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, */*")
            .header(http::header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(|error| failed(error.to_string()))?;
        let call = async {
            let answer = client.request(request).await.map_err(|error| failed(deepest(&error)))?;
            let status = answer.status();
            let bytes = Limited::new(answer.into_body(), LARGEST_ANSWER)
                .collect()
                .await
                .map_err(|error| failed(deepest(&*error)))?
                .to_bytes();
            Ok::<_, CallError>((status, bytes))
        };
        let timed = tokio::time::timeout(timeout, call).await;
        let (code, bytes) = timed.map_err(|_| CallError::Deadline { url: url.clone() })??;
        if code.is_success() {
            return Ok(bytes);
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).trim().to_owned();
        Err(CallError::Status { code, text })
    }

    fn client(&self, ca_bundle: &str, service: bool) -> Result<HttpsClient, ferry_outbound::Error> {
        let mut clients = self.clients.lock();
        let key = (ca_bundle.to_owned(), service);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let resolver = service.then(|| -> Resolver {
            let reader = self.reader.clone();
            Arc::new(move |host, port| service::resolve(&*reader, host, port).map_err(|error| error.to_string()))
        });
        let client = ferry_outbound::https(self.tasks.clone(), tls(ca_bundle)?, resolver);
        if clients.len() >= CLIENTS {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }
}

/// The URL with its path as upstream's client joins it: no empty, `.` or `..` elements, no slash at the end.
fn cleaned(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let mut elements = Vec::new();
    for element in path.split('/') {
        match element {
            "" | "." => {}
            ".." => {
                elements.pop();
            }
            element => elements.push(element),
        }
    }
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{authority}/{}{query}", elements.join("/"))
}

/// What the bundle holds; without one, the authorities of this machine.
pub fn authorities(ca_bundle: &str) -> Result<ferry_outbound::Trust, ferry_outbound::Error> {
    let pem = base64::engine::general_purpose::STANDARD
        .decode(ca_bundle)
        .map_err(|_| ferry_outbound::Error::Roots("unable to parse bytes as PEM block".to_owned()))?;
    ferry_outbound::roots((!pem.is_empty()).then_some(&*pem))
}

fn tls(ca_bundle: &str) -> Result<rustls::ClientConfig, ferry_outbound::Error> {
    ferry_outbound::client_config(authorities(ca_bundle)?, None)
}

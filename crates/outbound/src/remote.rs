//! A server named by a kubeconfig file, as webhooks of audit, authentication and authorization are.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use ferry_meta::object::{items, text};
use ferry_tasks::Tasks;
use http::HeaderValue;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;

use crate::connect::{HttpsClient, deepest, https};
use crate::error::Error;
use crate::trust::{Identity, client_config, roots};

/// No answer is read further than this.
const LARGEST_ANSWER: usize = 3 * 1024 * 1024;

pub struct Remote {
    url: String,
    authorization: Option<HeaderValue>,
    client: HttpsClient,
}

/// What came back.
pub struct Answer {
    pub code: u16,
    pub body: Bytes,
}

impl Answer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl Remote {
    /// A server that needs no credentials, trusted by these authorities or by this machine's.
    pub fn new(url: &str, ca: Option<&[u8]>, tasks: &Tasks) -> Result<Self, Error> {
        let client = https(tasks.clone(), client_config(roots(ca)?, None)?, None);
        Ok(Self { url: url.trim_end_matches('/').to_owned(), authorization: None, client })
    }

    /// The cluster and user of the file's current context. Paths in it are relative to the file.
    pub fn from_kubeconfig(config: &Value, file: &Path, tasks: &Tasks) -> Result<Self, Error> {
        let folder = file.parent().map(Path::to_owned).unwrap_or_default();
        let current = text(config, "/current-context");
        let context = named(config, "contexts", "context", current);
        let (cluster_name, user_name) = match context {
            Some(context) => (text(context, "/cluster"), text(context, "/user")),
            // A file with one cluster needs no context.
            None if current.is_empty() => (
                items(config, "/clusters").first().map(|c| text(c, "/name")).unwrap_or_default(),
                items(config, "/users").first().map(|u| text(u, "/name")).unwrap_or_default(),
            ),
            None => return Err(Error::Kubeconfig(format!("context {current:?} does not exist"))),
        };
        let cluster = named(config, "clusters", "cluster", cluster_name)
            .ok_or_else(|| Error::Kubeconfig(format!("cluster {cluster_name:?} does not exist")))?;
        let server = text(cluster, "/server");
        if server.is_empty() {
            return Err(Error::Kubeconfig(format!("cluster {cluster_name:?} names no server")));
        }
        let user = named(config, "users", "user", user_name).unwrap_or(&Value::Null);
        let ca = data_or_file(cluster, "certificate-authority", &folder)?;
        let identity =
            match (data_or_file(user, "client-certificate", &folder)?, data_or_file(user, "client-key", &folder)?) {
                (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
                (None, None) => None,
                _ => {
                    let why = format!("user {user_name:?} has a client certificate without a key, or a key alone");
                    return Err(Error::Kubeconfig(why));
                }
            };
        let client = https(tasks.clone(), client_config(roots(ca.as_deref())?, identity.as_ref())?, None);
        Ok(Self { url: server.trim_end_matches('/').to_owned(), authorization: authorization(user, &folder)?, client })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Posts JSON to the server's URL.
    pub async fn post(&self, body: impl Into<Bytes>, patience: Duration) -> Result<Answer, Error> {
        let request = http::Request::post(&self.url).header(CONTENT_TYPE, "application/json");
        self.send(request, body.into(), patience).await
    }

    /// Gets a page below the server's URL, or any other URL.
    pub async fn get(&self, path_or_url: &str, patience: Duration) -> Result<Answer, Error> {
        let absolute = path_or_url.starts_with("http://") || path_or_url.starts_with("https://");
        let url = if absolute { path_or_url.to_owned() } else { format!("{}{path_or_url}", self.url) };
        self.send(http::Request::get(url), Bytes::new(), patience).await
    }

    /// Gets any URL with a token of its own, or none: never with this server's credentials.
    pub async fn get_as(&self, url: &str, token: Option<&str>, patience: Duration) -> Result<Answer, Error> {
        let mut request = http::Request::get(url);
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Error::Token)?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        self.exchange(request, Bytes::new(), patience).await
    }

    async fn send(
        &self,
        mut request: http::request::Builder,
        body: Bytes,
        patience: Duration,
    ) -> Result<Answer, Error> {
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value.clone());
        }
        self.exchange(request, body, patience).await
    }

    async fn exchange(
        &self,
        request: http::request::Builder,
        body: Bytes,
        patience: Duration,
    ) -> Result<Answer, Error> {
        let request = request.header(ACCEPT, "application/json, */*").header(USER_AGENT, "kube-apiserver/v1.37.0");
        let request = request.body(Full::new(body))?;
        let call = async {
            let answer = self.client.request(request).await.map_err(|error| Error::Call(deepest(&error)))?;
            let code = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), LARGEST_ANSWER);
            let body = body.collect().await.map_err(|error| Error::Call(deepest(&*error)))?.to_bytes();
            Ok(Answer { code, body })
        };
        tokio::time::timeout(patience, call).await.map_err(|_| Error::Deadline)?
    }
}

fn named<'a>(config: &'a Value, list: &str, field: &str, name: &str) -> Option<&'a Value> {
    items(config, &format!("/{list}")).iter().find(|one| text(one, "/name") == name)?.get(field)
}

/// `<field>-data` holds base64, `<field>` a path.
fn data_or_file(of: &Value, field: &str, folder: &Path) -> Result<Option<Vec<u8>>, Error> {
    let data = text(of, &format!("/{field}-data"));
    if !data.is_empty() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(data);
        return bytes.map(Some).map_err(|source| Error::Base64 { field: field.to_owned(), source });
    }
    let path = text(of, &format!("/{field}"));
    if path.is_empty() { Ok(None) } else { read(&folder.join(path)).map(Some) }
}

fn authorization(user: &Value, folder: &Path) -> Result<Option<HeaderValue>, Error> {
    let file = text(user, "/tokenFile");
    let token = if file.is_empty() {
        text(user, "/token").to_owned()
    } else {
        String::from_utf8_lossy(&read(&folder.join(file))?).trim().to_owned()
    };
    let value = if !token.is_empty() {
        format!("Bearer {token}")
    } else if !text(user, "/username").is_empty() {
        let pair = format!("{}:{}", text(user, "/username"), text(user, "/password"));
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
    } else {
        return Ok(None);
    };
    let mut value = HeaderValue::from_str(&value).map_err(|_| Error::Token)?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn read(path: &PathBuf) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::File { path: path.clone(), source })
}

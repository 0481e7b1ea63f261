//! Clients that act as service accounts of kube-system, each with a token of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferry_client::Api;
use ferry_client::write;
use http::HeaderValue;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Client, Config};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::kubeconfig;

const NAMESPACE: &str = "kube-system";
const LIFETIME: Duration = Duration::from_secs(3600);
/// A token with less than a fifth of its life left is replaced.
const USED_FOR: Duration = Duration::from_secs(3600 / 5 * 4);

/// Gives out clients. Tokens are asked for when they are first needed, with the rights of `config`'s own identity.
#[derive(Clone)]
pub struct Accounts {
    own: Client,
    /// As `config`, without who we are.
    nobody: Config,
}

impl Accounts {
    pub fn new(config: &Config) -> Result<Self> {
        let own = kubeconfig::connect(config.clone())?;
        let mut nobody = config.clone();
        nobody.auth_info = kube::config::AuthInfo::default();
        Ok(Self { own, nobody })
    }

    /// A client that acts as `system:serviceaccount:kube-system:<name>`.
    pub fn client(&self, name: &str) -> Result<Client> {
        let source = Arc::new(Source { own: self.own.clone(), name: name.to_owned(), token: Mutex::default() });
        let nobody = kubeconfig::connect(self.nobody.clone())?;
        let signed = tower::service_fn(move |mut request: http::Request<Body>| {
            let (source, nobody) = (source.clone(), nobody.clone());
            async move {
                let token = source.token().await?;
                request.headers_mut().insert(http::header::AUTHORIZATION, token);
                nobody.send(request).await
            }
        });
        Ok(Client::new(signed, NAMESPACE))
    }
}

struct Source {
    own: Client,
    name: String,
    token: Mutex<Option<(HeaderValue, Instant)>>,
}

impl Source {
    async fn token(&self) -> Result<HeaderValue, kube::Error> {
        let mut known = self.token.lock().await;
        if let Some((token, since)) = &*known
            && since.elapsed() < USED_FOR
        {
            return Ok(token.clone());
        }
        let text = self.request().await?;
        let mut header =
            HeaderValue::from_str(&format!("Bearer {text}")).map_err(|error| kube::Error::Service(Box::new(error)))?;
        header.set_sensitive(true);
        *known = Some((header.clone(), Instant::now()));
        Ok(header)
    }

    async fn request(&self) -> Result<String, kube::Error> {
        let api: Api<ServiceAccount> = Api::namespaced(self.own.clone(), NAMESPACE);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: i64::try_from(LIFETIME.as_secs()).ok(),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let parameters = PostParams::default();
        let ask = || api.create_token_request(&self.name, &parameters, &request);
        let answer = match ask().await {
            Err(error) if write::is_not_found(&error) => {
                let account = ServiceAccount {
                    metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                    ..ServiceAccount::default()
                };
                match api.create(&parameters, &account).await {
                    Err(error) if !write::is_already_exists(&error) => return Err(error),
                    _ => ask().await?,
                }
            }
            other => other?,
        };
        Ok(answer.status.and_then(|status| status.token).unwrap_or_default())
    }
}

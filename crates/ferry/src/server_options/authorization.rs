//! Authorization: its flags, and the chain they make.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use ferry_auth::{AccessWebhook, AccessWebhookOptions, AlwaysAllow, AlwaysDeny, AuthorizerChain, NodeAuthorizer, Rbac};
use ferry_meta::ObjectReader;
use ferry_meta::object::{items, text};
use ferry_outbound::Remote;
use ferry_tasks::Tasks;

use super::{duration, read_document};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Authorization")]
pub struct AuthorizationOptions {
    /// Who decides, in order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny.
    #[arg(long, value_delimiter = ',', default_value = "Node,RBAC")]
    pub authorization_mode: Vec<String>,
    /// The same as a file with an AuthorizationConfiguration.
    #[arg(long, value_name = "FILE", conflicts_with = "authorization_webhook_config_file")]
    pub authorization_config: Option<PathBuf>,
    /// The server that Webhook asks.
    #[arg(long, value_name = "KUBECONFIG")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// How long its yes is remembered.
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long its no is remembered.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
    /// v1 or v1beta1.
    #[arg(long, default_value = "v1")]
    pub authorization_webhook_version: String,
}

impl AuthorizationOptions {
    pub fn chain(&self, reader: &Arc<dyn ObjectReader>, rbac: &Arc<Rbac>, tasks: &Tasks) -> Result<AuthorizerChain> {
        let mut chain = AuthorizerChain::new();
        if let Some(path) = &self.authorization_config {
            let file = read_document(path)?;
            let place = || path.display().to_string();
            ensure!(
                text(&file, "/kind") == "AuthorizationConfiguration"
                    && text(&file, "/apiVersion").starts_with("apiserver.config.k8s.io/v1"),
                "{}: it is no AuthorizationConfiguration of apiserver.config.k8s.io/v1",
                place()
            );
            ensure!(!items(&file, "/authorizers").is_empty(), "{}: at least one authorizer is required", place());
            for one in items(&file, "/authorizers") {
                if text(one, "/type") == "Webhook" {
                    chain = chain.with("webhook", Arc::new(webhook(one, tasks).with_context(place)?));
                } else {
                    chain = built_in(chain, text(one, "/type"), reader, rbac).with_context(place)?;
                }
            }
            return Ok(chain);
        }
        for mode in &self.authorization_mode {
            if mode != "Webhook" {
                chain = built_in(chain, mode, reader, rbac)?;
                continue;
            }
            let Some(path) = &self.authorization_webhook_config_file else {
                bail!("--authorization-mode=Webhook needs --authorization-webhook-config-file");
            };
            let remote = Remote::from_kubeconfig(&read_document(path)?, path, tasks)
                .map_err(|why| anyhow!("{}: {why}", path.display()))?;
            let options = AccessWebhookOptions {
                version: self.authorization_webhook_version.clone(),
                authorized_life: self.authorization_webhook_cache_authorized_ttl,
                unauthorized_life: self.authorization_webhook_cache_unauthorized_ttl,
                deny_on_failure: false,
            };
            chain = chain.with("webhook", Arc::new(AccessWebhook::new(remote, options)));
        }
        Ok(chain)
    }
}

fn built_in(
    chain: AuthorizerChain,
    mode: &str,
    reader: &Arc<dyn ObjectReader>,
    rbac: &Arc<Rbac>,
) -> Result<AuthorizerChain> {
    Ok(match mode {
        "Node" => chain.with("node", Arc::new(NodeAuthorizer::new(reader.clone()))),
        "RBAC" => chain.with("rbac", rbac.clone()),
        "AlwaysAllow" => chain.with("always-allow", Arc::new(AlwaysAllow)),
        "AlwaysDeny" => chain.with("always-deny", Arc::new(AlwaysDeny)),
        other => bail!("{other:?} is no authorizer; there are Node, RBAC, Webhook, AlwaysAllow and AlwaysDeny"),
    })
}

fn webhook(one: &serde_json::Value, tasks: &Tasks) -> Result<AccessWebhook> {
    let of = |field: &str| text(one, &format!("/webhook/{field}")).to_owned();
    ensure!(
        items(one, "/webhook/matchConditions").is_empty(),
        "authorizer {:?}: matchConditions are not supported yet",
        text(one, "/name")
    );
    let life = |field: &str, default: &str| {
        let given = of(field);
        duration(if given.is_empty() { default } else { &given }).map_err(|why| anyhow!("{field}: {why}"))
    };
    let path = PathBuf::from(text(one, "/webhook/connectionInfo/kubeConfigFile"));
    let remote = Remote::from_kubeconfig(&read_document(&path)?, &path, tasks)
        .map_err(|why| anyhow!("{}: {why}", path.display()))?;
    let version = of("subjectAccessReviewVersion");
    let options = AccessWebhookOptions {
        version: if version.is_empty() { "v1".into() } else { version },
        authorized_life: life("authorizedTTL", "5m")?,
        unauthorized_life: life("unauthorizedTTL", "30s")?,
        deny_on_failure: match &*of("failurePolicy") {
            "Deny" => true,
            "NoOpinion" | "" => false,
            other => bail!("failurePolicy {other:?} is neither Deny nor NoOpinion"),
        },
    };
    Ok(AccessWebhook::new(remote, options))
}

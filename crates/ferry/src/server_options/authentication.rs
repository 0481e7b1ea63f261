//! Authentication: its flags, and the authenticators they add to the chain.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use ferry_auth::{
    AuthenticationConfig, Chain, ClientAuthority, Oidc, OidcFlags, Provider, RequestHeader, RequestHeaderOptions,
    TokenWebhook, X509,
};
use ferry_outbound::Remote;
use ferry_tasks::Tasks;

use super::{duration, read_document};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Authentication")]
pub struct AuthenticationOptions {
    /// Whether callers without credentials are system:anonymous; without it they are refused.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub anonymous_auth: bool,
    /// Identity providers and anonymous access: a file with an AuthenticationConfiguration.
    #[arg(long, value_name = "FILE", conflicts_with = "oidc_issuer_url")]
    pub authentication_config: Option<PathBuf>,
    /// The CA of front proxies: who has a certificate of it says in headers whom it asks for.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// The common names of front proxies; all that the CA vouches for when not given.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-User")]
    pub requestheader_username_headers: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Uid")]
    pub requestheader_uid_headers: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Group")]
    pub requestheader_group_headers: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "X-Remote-Extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// Tokens are reviewed by the server that this kubeconfig names.
    #[arg(long, value_name = "KUBECONFIG")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// How long its answers are remembered.
    #[arg(long, default_value = "2m", value_parser = duration)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// v1 or v1beta1.
    #[arg(long, default_value = "v1")]
    pub authentication_token_webhook_version: String,
    /// The identity provider; its URL must be https.
    #[arg(long, requires = "oidc_client_id")]
    pub oidc_issuer_url: Option<String>,
    /// Whom its tokens must be for.
    #[arg(long)]
    pub oidc_client_id: Option<String>,
    /// The CA of the provider; this machine's when not given.
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    #[arg(long, default_value = "sub")]
    pub oidc_username_claim: String,
    /// Before every user's name; `-` for none. The issuer and a # when not given.
    #[arg(long, default_value = "")]
    pub oidc_username_prefix: String,
    #[arg(long, default_value = "")]
    pub oidc_groups_claim: String,
    #[arg(long, default_value = "")]
    pub oidc_groups_prefix: String,
    /// key=value that a token must hold. May be given several times.
    #[arg(long)]
    pub oidc_required_claim: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,
}

/// What front proxies are told by, for the chain, for TLS and for extension servers.
#[derive(Clone)]
pub struct ProxyAuthentication {
    pub ca: String,
    pub options: RequestHeaderOptions,
}

impl AuthenticationOptions {
    pub fn proxies(&self) -> Result<Option<ProxyAuthentication>> {
        let Some(path) = &self.requestheader_client_ca_file else { return Ok(None) };
        let ca = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let options = RequestHeaderOptions {
            allowed_names: self.requestheader_allowed_names.clone(),
            username_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_header_prefixes: self.requestheader_extra_headers_prefix.clone(),
        };
        Ok(Some(ProxyAuthentication { ca, options }))
    }

    /// The CAs whose certificates TLS takes: that of front proxies too. The authenticators tell whose is whose.
    pub fn trusted(&self, client_ca: &str) -> Result<String> {
        Ok(match self.proxies()? {
            Some(proxies) => format!("{client_ca}\n{}", proxies.ca),
            None => client_ca.to_owned(),
        })
    }

    /// What is asked before tokens: front proxies first, then certificates.
    pub fn with_certificates(&self, chain: Chain, client_ca: &str) -> Result<Chain> {
        let Some(proxies) = self.proxies()? else { return Ok(chain.with(Arc::new(X509::default()))) };
        let proxy_ca =
            ClientAuthority::from_pem(&proxies.ca).map_err(|why| anyhow!("--requestheader-client-ca-file: {why}"))?;
        let client_ca = ClientAuthority::from_pem(client_ca).map_err(|why| anyhow!("--client-ca-file: {why}"))?;
        Ok(chain.with(Arc::new(RequestHeader::new(proxy_ca, proxies.options))).with(Arc::new(X509::of(client_ca))))
    }

    /// What is asked after the server's own tokens: identity providers, then the webhook.
    pub fn with_others(&self, mut chain: Chain, audiences: &[String], tasks: &Tasks) -> Result<Chain> {
        let mut providers = Vec::new();
        let mut anonymous = None;
        if let Some(path) = &self.authentication_config {
            let config = AuthenticationConfig::parse(&read_document(path)?)
                .map_err(|why| anyhow!("{}: {why}", path.display()))?;
            providers = config.providers;
            anonymous = config.anonymous;
        }
        if let (Some(issuer_url), Some(client_id)) = (&self.oidc_issuer_url, &self.oidc_client_id) {
            let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
            let flags = OidcFlags {
                issuer_url: issuer_url.clone(),
                client_id: client_id.clone(),
                ca: self.oidc_ca_file.as_ref().map(read).transpose()?,
                username_claim: self.oidc_username_claim.clone(),
                username_prefix: self.oidc_username_prefix.clone(),
                groups_claim: self.oidc_groups_claim.clone(),
                groups_prefix: self.oidc_groups_prefix.clone(),
                required_claims: self.oidc_required_claim.clone(),
                signing_algorithms: self.oidc_signing_algs.clone(),
            };
            providers.push(Provider::of_flags(&flags).map_err(|why| anyhow!("{why}"))?);
        }
        for provider in providers {
            let oidc = Oidc::start(provider, audiences.to_vec(), tasks).map_err(|why| anyhow!("{why}"))?;
            chain = chain.with_tokens(oidc);
        }
        if let Some(path) = &self.authentication_token_webhook_config_file {
            let version = &self.authentication_token_webhook_version;
            ensure!(
                matches!(version.as_str(), "v1" | "v1beta1"),
                "--authentication-token-webhook-version {version:?} is unknown; it is v1 or v1beta1"
            );
            let remote = Remote::from_kubeconfig(&read_document(path)?, path, tasks)
                .map_err(|why| anyhow!("{}: {why}", path.display()))?;
            let life = self.authentication_token_webhook_cache_ttl;
            chain = chain.with_tokens(Arc::new(TokenWebhook::new(remote, version, audiences.to_vec(), life)));
        }
        Ok(match anonymous {
            Some(anonymous) => chain.anonymous(anonymous.enabled).anonymous_paths(anonymous.conditions),
            None => chain.anonymous(self.anonymous_auth),
        })
    }
}

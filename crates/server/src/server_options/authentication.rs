//! Authentication: its flags, and the authenticators they add to the chain.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use ferry_auth::{
    AuthenticationConfig, Chain, Oidc, OidcFlags, Provider, RequestHeaderOptions, Settings, TokenWebhook,
};
use ferry_outbound::Remote;
use ferry_tasks::Tasks;
use parking_lot::Mutex;

use super::{duration, read_document};
use crate::configuration;
use crate::reload::Reloads;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Authentication")]
pub struct AuthenticationOptions {
    /// Whether requests without credentials are allowed, as system:anonymous.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub anonymous_auth: bool,
    /// A file with an AuthenticationConfiguration: identity providers and anonymous access.
    #[arg(long, value_name = "FILE", conflicts_with = "oidc_issuer_url")]
    pub authentication_config: Option<PathBuf>,
    /// The CA of front proxies. A client with a certificate of this CA may name the user in headers.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// The common names of front proxies. Default: all that the CA signed.
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
    /// The client certificate for aggregated API servers. Default: one of a generated CA.
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    pub proxy_client_cert_file: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// A kubeconfig of the token webhook, which reviews bearer tokens.
    #[arg(long, value_name = "KUBECONFIG")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// How long its answers are cached.
    #[arg(long, default_value = "2m", value_parser = duration)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// The API version of the reviews: v1 or v1beta1.
    #[arg(long, default_value = "v1")]
    pub authentication_token_webhook_version: String,
    /// The URL of the OIDC issuer. It must use https.
    #[arg(long, requires = "oidc_client_id")]
    pub oidc_issuer_url: Option<String>,
    /// The client ID that its tokens must be issued for.
    #[arg(long)]
    pub oidc_client_id: Option<String>,
    /// The CA of the issuer. Default: the CAs of this machine.
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    #[arg(long, default_value = "sub")]
    pub oidc_username_claim: String,
    /// The prefix of user names. `-` means none. Default: the issuer's URL and a #.
    #[arg(long, default_value = "")]
    pub oidc_username_prefix: String,
    #[arg(long, default_value = "")]
    pub oidc_groups_claim: String,
    #[arg(long, default_value = "")]
    pub oidc_groups_prefix: String,
    /// A claim key=value that the token must have. May be given several times.
    #[arg(long)]
    pub oidc_required_claim: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,
}

impl AuthenticationOptions {
    pub(super) fn request_headers(&self) -> RequestHeaderOptions {
        RequestHeaderOptions {
            allowed_names: self.requestheader_allowed_names.clone(),
            username_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_header_prefixes: self.requestheader_extra_headers_prefix.clone(),
        }
    }

    /// What is asked after the server's own tokens: identity providers, then the webhook.
    pub fn with_others(
        &self,
        mut chain: Chain,
        audiences: &[String],
        reloads: &Reloads,
        tasks: &Tasks,
    ) -> Result<Arc<Chain>> {
        if let Some(path) = &self.authentication_token_webhook_config_file {
            let version = &self.authentication_token_webhook_version;
            ensure!(
                matches!(version.as_str(), "v1" | "v1beta1"),
                "--authentication-token-webhook-version {version:?} is unknown; it is v1 or v1beta1"
            );
            let remote = Remote::from_kubeconfig(&read_document(path)?, path, tasks)
                .map_err(|why| anyhow!("{}: {why}", path.display()))?;
            let life = self.authentication_token_webhook_cache_ttl;
            chain = chain.with_last(Arc::new(TokenWebhook::new(remote, version, audiences.to_vec(), life)));
        }
        let chain = Arc::new(chain);
        let group = tasks.child("identity providers");
        chain.set(self.settings(audiences, &group)?);
        if let Some(path) = &self.authentication_config {
            let (options, changing, audiences, tasks) =
                (self.clone(), chain.clone(), audiences.to_vec(), tasks.clone());
            let before = Mutex::new(group);
            reloads.watch(path, move || {
                let group = tasks.child("identity providers");
                changing.set(options.settings(&audiences, &group)?);
                // Those of the file as it was need not be looked for any more.
                std::mem::replace(&mut *before.lock(), group).stopping().cancel();
                Ok(())
            })?;
        }
        Ok(chain)
    }

    /// Providers and anonymous access, by the flags and by the file as it stands now.
    fn settings(&self, audiences: &[String], tasks: &Tasks) -> Result<Settings> {
        let mut providers = Vec::new();
        let mut settings = Settings { anonymous: self.anonymous_auth, ..Settings::default() };
        if let Some(path) = &self.authentication_config {
            let config = AuthenticationConfig::parse(&configuration::read(path, "AuthenticationConfiguration")?)
                .map_err(|why| anyhow!("{}: {why}", path.display()))?;
            providers = config.providers;
            if let Some(anonymous) = config.anonymous {
                settings.anonymous = anonymous.enabled;
                settings.anonymous_paths = anonymous.conditions;
            }
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
            providers.push(Provider::of_flags(&flags)?);
        }
        for provider in providers {
            let oidc = Oidc::start(provider, audiences.to_vec(), tasks)?;
            settings.providers.push(oidc);
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use ferry_auth::Credentials;
    use serde_json::{Value, json};

    use super::*;
    use crate::server_options::ServerOptions;

    #[tokio::test]
    async fn the_authentication_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authentication.yaml");
        let write = |anonymous: Value| {
            let file = json!({
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "anonymous": anonymous,
            });
            std::fs::write(&path, file.to_string()).unwrap();
        };
        write(json!({ "enabled": true }));
        let mut options = ServerOptions::default().authentication;
        options.authentication_config = Some(path.clone());
        let (reloads, tasks) = (Reloads::new(), Tasks::new("test"));
        let chain = options.with_others(Chain::new(vec!["api".into()]), &["api".into()], &reloads, &tasks).unwrap();
        let allowed = async |path: &str| {
            let headers = http::HeaderMap::new();
            let credentials = Credentials { headers: &headers, certificates: &[], path };
            chain.authenticate(&credentials, &ferry_auth::Notes::default()).await.is_ok()
        };
        for (anonymous, of_health, of_pods) in [
            (json!({ "enabled": true }), true, true),
            (json!({ "enabled": true, "conditions": [{ "path": "/livez" }] }), true, false),
            // What cannot be used leaves things as they are.
            (json!({ "enabled": "maybe" }), true, false),
            (json!({ "enabled": false }), false, false),
        ] {
            write(anonymous.clone());
            reloads.look();
            assert_eq!((allowed("/livez").await, allowed("/api/v1/pods").await), (of_health, of_pods), "{anonymous}");
        }
    }
}

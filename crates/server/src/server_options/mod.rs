//! Flags of the API server that `ferry apiserver` and the whole cluster share, under upstream's names.

mod admission;
mod audit;
mod authentication;
mod authorities;
mod authorization;
mod service_accounts;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, Parser};
use ferry_fairness::{Count, Fairness, FlowControl};
use ferry_meta::ObjectReader;
use serde_json::Value;

pub use admission::AdmissionOptions;
pub use audit::{AuditOptions, auditor};
pub use authentication::AuthenticationOptions;
pub use authorities::{Authorities, CaSource, OwnProxy};
pub use authorization::AuthorizationOptions;
pub use service_accounts::{ServiceAccountKeys, ServiceAccountOptions};

#[derive(Args, Clone, Debug)]
pub struct ServerOptions {
    #[command(flatten)]
    pub audit: AuditOptions,
    #[command(flatten)]
    pub admission: AdmissionOptions,
    #[command(flatten)]
    pub authentication: AuthenticationOptions,
    #[command(flatten)]
    pub authorization: AuthorizationOptions,
    /// A file with an EncryptionConfiguration. Default: Secrets are encrypted with a generated key in the data folder; with
    /// --etcd-servers nothing is encrypted.
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Reload the EncryptionConfiguration when it changes.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set, requires = "encryption_provider_config")]
    pub encryption_provider_config_automatic_reload: bool,
    /// Queue requests by FlowSchemas and PriorityLevelConfigurations.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub enable_priority_and_fairness: bool,
    /// The maximum number of concurrent reads. With priority and fairness, the sum of both limits is divided among the levels.
    #[arg(long, default_value_t = 400)]
    pub max_requests_inflight: usize,
    /// The maximum number of concurrent writes.
    #[arg(long, default_value_t = 200)]
    pub max_mutating_requests_inflight: usize,
    /// Serve the console at /console/: web pages with the rights of the signed-in user.
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    pub console: bool,
    /// Serve `metrics.k8s.io` (kubectl top, autoscaling by CPU and memory) with figures from the kubelets. On by default with
    /// `ferry up` and `ferry run`. If another server of that group is installed, such as metrics-server, it takes over.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub resource_metrics: Option<bool>,
    /// Make the StorageClass `local-path` in a new cluster, the default one, and its volumes: folders of the nodes. On by default
    /// with `ferry up` and `ferry run`. With false no volumes are made; those that exist stay usable and are removed with their claims.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub local_path: Option<bool>,
}

impl ServerOptions {
    /// Who may call: where everything is allowed, nobody does so without saying who they are.
    pub fn authentication_of_callers(&self) -> AuthenticationOptions {
        let mut flags = self.authentication.clone();
        if flags.anonymous_auth && self.authorization.allows_everything() {
            tracing::warn!("--anonymous-auth is disabled because --authorization-mode has AlwaysAllow");
            flags.anonymous_auth = false;
        }
        flags
    }
}

impl Default for ServerOptions {
    /// What the flags are when nobody gives any.
    fn default() -> Self {
        #[derive(Parser)]
        struct Flags {
            #[command(flatten)]
            server: ServerOptions,
        }
        Flags::try_parse_from(["ferry"]).unwrap_or_else(|error| error.exit()).server
    }
}

/// Durations as Go writes them: 30s, 500ms, 1m30s.
pub fn duration(text: &str) -> Result<Duration, String> {
    ferry_semantics::duration::parse_unsigned(text)
        .ok_or_else(|| format!("{text:?} is no duration; write it like 15s or 1m30s"))
}

/// No configuration is longer; a device never ends.
const LONGEST_FILE: u64 = 16 << 20;

/// A file that somebody named.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(LONGEST_FILE + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(bytes.len() as u64 <= LONGEST_FILE, "{} has more than {} MiB", path.display(), LONGEST_FILE >> 20);
    Ok(bytes)
}

/// A configuration file, YAML or JSON.
pub fn read_document(path: &Path) -> Result<Value> {
    let bytes = read_file(path)?;
    let (value, duplicates) =
        ferry_schema::yaml::parse_value(&bytes).map_err(|why| anyhow!("{} is no YAML: {why}", path.display()))?;
    ensure!(duplicates.is_empty(), "{}: {}", path.display(), duplicates.join(", "));
    Ok(value)
}

pub fn flow_control(options: &ServerOptions, reader: Arc<dyn ObjectReader>) -> FlowControl {
    let (reading, mutating) = (options.max_requests_inflight, options.max_mutating_requests_inflight);
    if options.enable_priority_and_fairness && reading + mutating > 0 {
        return FlowControl::Fair(Fairness::new(reader, reading + mutating));
    }
    FlowControl::InFlight { reading: Count::new(reading), mutating: Count::new(mutating) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_flags_the_server_is_secure() {
        let options = ServerOptions::default();
        assert_eq!(options.authorization.authorization_mode, ["Node", "RBAC"]);
        assert!(options.enable_priority_and_fairness && options.authentication.anonymous_auth);
        assert!(options.authentication_of_callers().anonymous_auth);
        let mut open = options.clone();
        open.authorization.authorization_mode.push("AlwaysAllow".into());
        assert!(!open.authentication_of_callers().anonymous_auth, "everything is allowed, but not to everybody");
        assert_eq!(options.audit.audit_webhook_batch_max_wait, Duration::from_secs(30));
        assert!(duration("1d").is_err() && duration("").is_err() && duration("-1s").is_err());
    }
}

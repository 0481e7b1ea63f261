//! Tokens of service accounts: who issues them, which keys sign and which are believed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use ferry_auth::{SigningKey, VerifyingKey};

/// What tokens of a cluster say that nobody gave another name to.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Service accounts")]
pub struct ServiceAccountOptions {
    /// The issuer of service-account tokens. May be given several times: new tokens have the first one, all are accepted.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub service_account_issuer: Vec<String>,
    /// Keys or certificates that verify tokens. May be given several times. Default: those in the data folder.
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,
    /// The private key that signs new tokens. Default: the one in the data folder.
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// The accepted audiences of tokens. Default: the issuers.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
}

/// What the flags come to.
pub struct ServiceAccountKeys {
    pub issuers: Vec<String>,
    pub audiences: Vec<String>,
    pub signing: SigningKey,
    pub verifying: Vec<VerifyingKey>,
}

impl ServiceAccountOptions {
    /// `own` is the data folder's private key, as PEM.
    pub fn keys(&self, own: &str) -> Result<ServiceAccountKeys> {
        let issuers = match self.service_account_issuer.as_slice() {
            [] => vec![DEFAULT_ISSUER.to_owned()],
            given => given.to_vec(),
        };
        ensure!(issuers.iter().all(|one| !one.is_empty()), "--service-account-issuer must not be empty");
        let signing = match &self.service_account_signing_key_file {
            Some(path) => SigningKey::from_pem(&read("service-account-signing-key-file", path)?)
                .with_context(|| format!("--service-account-signing-key-file {}", path.display()))?,
            None => SigningKey::from_pem(own).context("the service-account key is damaged")?,
        };
        // Tokens that are signed here are always believed here.
        let mut verifying = vec![signing.verifying_key().clone()];
        for path in &self.service_account_key_file {
            let keys = VerifyingKey::all_from_pem(&read("service-account-key-file", path)?)
                .with_context(|| format!("--service-account-key-file {}", path.display()))?;
            verifying.extend(keys.into_iter().filter(|key| key.id() != signing.verifying_key().id()));
        }
        let audiences = match self.api_audiences.as_slice() {
            [] => issuers.clone(),
            given => given.to_vec(),
        };
        Ok(ServiceAccountKeys { issuers, audiences, signing, verifying })
    }
}

fn read(flag: &str, path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("--{flag}: cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_files_or_from_the_data_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (SigningKey::generate_pem().unwrap(), SigningKey::generate_pem().unwrap());
        let plain = ServiceAccountOptions::default().keys(&own).unwrap();
        assert_eq!(
            (plain.issuers, plain.audiences),
            (vec![DEFAULT_ISSUER.to_owned()], vec![DEFAULT_ISSUER.to_owned()])
        );
        assert_eq!(plain.verifying.len(), 1);

        let file = folder.path().join("sa.key");
        std::fs::write(&file, &other).unwrap();
        let mut options = ServiceAccountOptions {
            service_account_issuer: vec!["https://new".into(), "https://old".into()],
            service_account_key_file: vec![file.clone()],
            ..Default::default()
        };
        let both = options.keys(&own).unwrap();
        assert_eq!(both.audiences, both.issuers, "tokens of an issuer that was replaced are still for this server");
        assert_eq!(both.verifying.len(), 2, "the key that signs, and the one of the file");
        options.service_account_signing_key_file = Some(file.clone());
        assert_eq!(options.keys(&own).unwrap().verifying.len(), 1, "one key is not listed twice");
        std::fs::write(&file, "nothing").unwrap();
        let why = format!("{:#}", options.keys(&own).err().unwrap());
        assert!(why.contains("--service-account-signing-key-file") && why.contains("sa.key"), "{why}");
    }
}

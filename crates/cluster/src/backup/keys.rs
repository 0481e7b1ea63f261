//! The keys of a cluster as part of a backup: without them what is encrypted in it stays so, and nobody trusts what is restored.
//! They are encrypted with a passphrase.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::pbkdf2;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_server::pki::write_private;
use serde::{Deserialize, Serialize};

use crate::fleet::settings::Settings;
use crate::quorum::flags::{self, Flags};
use crate::quorum::{Record, handover};

const ROUNDS: u32 = 600_000;
/// A file that asks for more is not one of Ferry's, and would keep a processor busy for long.
const MOST_ROUNDS: u32 = 10_000_000;
const SALT: usize = 16;
const NONCE: usize = 12;
const CONTEXT: &[u8] = b"ferry backup keys";
const SHORTEST: usize = 8;
const LONGEST: u64 = 4096;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Keys {
    /// In the folder of the cluster's keys.
    files: BTreeMap<String, String>,
    pub settings: Option<Settings>,
    flags: Flags,
    flag_files: BTreeMap<String, String>,
}

/// What is written: everything but the salt is for nobody without the passphrase.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sealed {
    rounds: u32,
    salt: String,
    sealed: String,
}

pub fn passphrase(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display();
    let length = fs::metadata(path).with_context(|| format!("cannot read the passphrase in {shown}"))?.len();
    ensure!(length <= LONGEST, "{shown} is not a passphrase: it has more than {LONGEST} bytes");
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the passphrase in {shown}"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    ensure!(
        text.len() >= SHORTEST,
        "the passphrase in {shown} is too short: at least {SHORTEST} characters are needed"
    );
    Ok(text.as_bytes().to_vec())
}

fn cipher(passphrase: &[u8], salt: &[u8], rounds: u32) -> Result<RandomizedNonceKey> {
    let rounds = NonZeroU32::new(rounds).filter(|rounds| rounds.get() <= MOST_ROUNDS);
    let rounds = rounds.context("the keys in the backup are from another version of Ferry")?;
    let mut key = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, passphrase, &mut key);
    RandomizedNonceKey::new(&AES_256_GCM, &key).map_err(|_| anyhow!("the passphrase cannot be used"))
}

impl Keys {
    /// Those of a data folder.
    pub fn collect(data_dir: &Path, record: Option<&Record>) -> Result<Self> {
        ensure!(
            !record.is_some_and(|record| record.witness),
            "this machine is a witness, which has none of the cluster's keys; back up a server, or leave out --passphrase-file"
        );
        let folder = data_dir.join("pki");
        let flags = record.and_then(|record| record.flags.clone()).unwrap_or_default();
        ensure!(
            flags.contains_key(flags::ENCRYPTION) || !ferry_server::encryption::is_given(&folder),
            "this cluster encrypts by --encryption-provider-config, and that file is kept elsewhere; back it up yourself, and \
             make this backup without --passphrase-file"
        );
        let mut files = BTreeMap::new();
        for file in handover::FILES {
            let path = folder.join(file);
            if path.exists() {
                let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                files.insert(file.to_owned(), text);
            }
        }
        ensure!(files.contains_key("ca.key"), "{} holds no keys of a cluster", folder.display());
        let flag_files = flags::read_files(&flags)?;
        Ok(Self { files, settings: record.and_then(|record| record.settings.clone()), flags, flag_files })
    }

    pub fn seal(&self, passphrase: &[u8]) -> Result<Sealed> {
        let mut salt = [0; SALT];
        aws_lc_rs::rand::fill(&mut salt).map_err(|_| anyhow!("the system provides no random numbers"))?;
        let mut text = serde_json::to_vec(self)?;
        let nonce = cipher(passphrase, &salt, ROUNDS)?
            .seal_in_place_append_tag(Aad::from(CONTEXT), &mut text)
            .map_err(|_| anyhow!("the keys cannot be encrypted"))?;
        let sealed = STANDARD.encode([nonce.as_ref().as_slice(), text.as_slice()].concat());
        Ok(Sealed { rounds: ROUNDS, salt: STANDARD.encode(salt), sealed })
    }

    /// Puts them into a data folder that has none, and returns the flags of the API server as they are there.
    pub fn unpack(&self, data_dir: &Path) -> Result<Flags> {
        let folder = data_dir.join("pki");
        if folder.join("ca.key").exists() {
            bail!("{} holds the keys of a cluster already; give a new folder with --data-dir", data_dir.display());
        }
        for (file, text) in &self.files {
            ensure!(handover::FILES.contains(&file.as_str()), "the backup holds {file:?}, which is not known here");
            let path = folder.join(file);
            let parent = path.parent().context("a file without a folder")?;
            fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
            fs::set_permissions(parent, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
            write_private(&path, text)?;
        }
        flags::unpack(&self.flags, &self.flag_files, data_dir)
    }
}

impl Sealed {
    pub fn open(&self, passphrase: &[u8]) -> Result<Keys> {
        const WRONG: &str =
            "the keys of the backup cannot be opened: the passphrase is another one, or the file is damaged";
        let (salt, sealed) = (STANDARD.decode(&self.salt), STANDARD.decode(&self.sealed));
        let (salt, sealed) = (salt.map_err(|_| anyhow!(WRONG))?, sealed.map_err(|_| anyhow!(WRONG))?);
        let (nonce, text) = sealed.split_at_checked(NONCE).context(WRONG)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| anyhow!(WRONG))?;
        let mut text = text.to_vec();
        let cipher = cipher(passphrase, &salt, self.rounds)?;
        let plain = cipher.open_in_place(nonce, Aad::from(CONTEXT), &mut text).map_err(|_| anyhow!(WRONG))?;
        serde_json::from_slice(plain).context("the keys in the backup are from another version of Ferry")
    }
}

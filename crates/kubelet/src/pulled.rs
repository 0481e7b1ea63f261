//! Who may use an image that is on the node: for each image the kubelet pulled, which credentials did it. A pod that has
//! none of them has to pull it anew, so that a private image is not everybody's once somebody has pulled it.
//!
//! The files are those of upstream's kubelet, in the same places and of the same form.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ferry_client::Clock;
use ferry_cri::v1;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::credentials::{Credential, PullSecret};

const VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// Of one image; the oldest are forgotten, and those who have them pull again.
const MOST_SECRETS: usize = 1000;
/// No record is larger.
const LARGEST: u64 = 8 << 20;

/// Which images on the node a pod may use only after its credentials have been seen to pull them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    NeverVerify,
    /// All but those that were there without the kubelet.
    #[default]
    NeverVerifyPreloadedImages,
    /// All but these; a `/*` at the end stands for everything below.
    NeverVerifyAllowlistedImages(Vec<String>),
    AlwaysVerify,
}

/// What is wrong with a policy for the credentials of images.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerificationError {
    #[error("{0:?} is no policy for the credentials of images")]
    Policy(String),
    #[error("{0:?} is no name of images: write it like registry.example/team/*")]
    Images(String),
    /// The policy, for which no images can be listed.
    #[error("images are listed, but the policy {0} does not ask for any")]
    Listed(String),
}

impl Verification {
    /// As a KubeletConfiguration names it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NeverVerify => "NeverVerify",
            Self::NeverVerifyPreloadedImages => "NeverVerifyPreloadedImages",
            Self::NeverVerifyAllowlistedImages(_) => "NeverVerifyAllowlistedImages",
            Self::AlwaysVerify => "AlwaysVerify",
        }
    }

    /// `allowed` belongs to one of the policies alone.
    pub fn parse(name: &str, allowed: &[String]) -> Result<Self, VerificationError> {
        let policy = match name {
            "NeverVerify" => Self::NeverVerify,
            "NeverVerifyPreloadedImages" => Self::NeverVerifyPreloadedImages,
            "NeverVerifyAllowlistedImages" => Self::NeverVerifyAllowlistedImages(allowed.to_vec()),
            "AlwaysVerify" => Self::AlwaysVerify,
            other => return Err(VerificationError::Policy(other.to_owned())),
        };
        if let Self::NeverVerifyAllowlistedImages(patterns) = &policy {
            for pattern in patterns {
                let stem = pattern.strip_suffix("/*").unwrap_or(pattern);
                if stem.is_empty() || stem.contains(['*', '@']) || without_tag(stem) != stem {
                    return Err(VerificationError::Images(pattern.clone()));
                }
            }
        } else if !allowed.is_empty() {
            return Err(VerificationError::Listed(name.to_owned()));
        }
        Ok(policy)
    }

    /// The images that are listed.
    pub(crate) fn allowed(&self) -> &[String] {
        match self {
            Self::NeverVerifyAllowlistedImages(images) => images,
            _ => &[],
        }
    }

    fn asks(&self, image: &str, pulled_here: bool) -> bool {
        match self {
            Self::NeverVerify => false,
            Self::NeverVerifyPreloadedImages => pulled_here,
            Self::AlwaysVerify => true,
            Self::NeverVerifyAllowlistedImages(patterns) => {
                let name = without_tag(image);
                let fits = |pattern: &String| match pattern.strip_suffix('*') {
                    Some(stem) => name.starts_with(stem),
                    None => name == pattern,
                };
                !patterns.iter().any(fits)
            }
        }
    }
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct Allowed {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<PullSecret>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_service_accounts: Vec<serde_json::Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct Pulled {
    kind: String,
    api_version: String,
    last_updated_time: Timestamp,
    image_ref: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    credential_mapping: BTreeMap<String, Allowed>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Intent {
    kind: String,
    api_version: String,
    image: String,
}

/// All of it blocks.
pub(crate) struct PullRecords {
    pulling: PathBuf,
    pulled: PathBuf,
    policy: Verification,
    clock: Clock,
    /// Reading, deciding and writing are one step.
    one: Mutex<()>,
}

impl PullRecords {
    pub(crate) fn open(root: &Path, policy: Verification, clock: Clock) -> io::Result<Self> {
        let place = |name: &str| root.join("image_manager").join(name);
        let records = Self { pulling: place("pulling"), pulled: place("pulled"), policy, clock, one: Mutex::default() };
        for folder in [&records.pulling, &records.pulled] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        Ok(records)
    }

    /// After a start: what was being pulled when the kubelet ended may be there, and nobody knows with which credentials.
    pub(crate) fn recover(&self, images: &[v1::Image]) {
        let _one = self.one.lock();
        for path in files(&self.pulling) {
            let Some(intent) = read::<Intent>(&path) else { continue };
            let names = |image: &&v1::Image| {
                let wanted = crate::images::with_default_tag(&intent.image);
                image.repo_tags.iter().chain(&image.repo_digests).any(|name| *name == wanted || *name == intent.image)
                    || image.repo_tags.iter().any(|name| name.ends_with(&format!("/{wanted}")))
            };
            let mut found = images.iter().filter(names).peekable();
            // As long as it is not found it counts as pulled here, by nobody knows whom.
            if found.peek().is_some() && found.all(|image| self.note(&intent.image, &image.id, None).is_ok()) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Whether a pod with these credentials may use an image that is there.
    pub(crate) fn allows(&self, image: &str, id: &str, credentials: &[Credential]) -> bool {
        let _one = self.one.lock();
        let path = self.record(id);
        let exists = path.exists();
        let is_pulled_here = exists || self.intent(image).exists();
        if !self.policy.asks(image, is_pulled_here) {
            return true;
        }
        // One that cannot be read allows nobody.
        let Some(record) = read::<Pulled>(&path) else { return false };
        let Some(allowed) = record.credential_mapping.get(without_tag(image)) else { return false };
        if allowed.node_pods_accessible {
            return true;
        }
        let fits = |credential: &&Credential| {
            allowed.kubernetes_secrets.iter().any(|known| {
                let same_secret = known.is_same_object(&credential.secret);
                let same_content =
                    !known.credential_hash.is_empty() && known.credential_hash == credential.secret.credential_hash;
                same_secret || same_content
            })
        };
        let Some(found) = credentials.iter().find(fits) else { return false };
        // What fits by its name or by its content alone is known as it is now from here on.
        if !allowed.kubernetes_secrets.contains(&found.secret)
            && let Err(error) = self.note(image, id, Some(Some(found)))
        {
            tracing::warn!(image, "the record of who may use it is not written: {error}");
        }
        true
    }

    /// Before a pull: whatever becomes of it, the image was not there without the kubelet.
    pub(crate) fn begin(&self, image: &str) -> io::Result<()> {
        let _one = self.one.lock();
        let intent =
            Intent { kind: "ImagePullIntent".to_owned(), api_version: VERSION.to_owned(), image: image.to_owned() };
        write(&self.intent(image), &intent)
    }

    pub(crate) fn failed(&self, image: &str) {
        let _one = self.one.lock();
        let _ = fs::remove_file(self.intent(image));
    }

    /// After a pull with these credentials; none were needed where there are none.
    pub(crate) fn succeeded(&self, image: &str, id: &str, used: Option<&Credential>) {
        let _one = self.one.lock();
        match self.note(image, id, Some(used)) {
            Ok(()) => drop(fs::remove_file(self.intent(image))),
            // The intent stays, so that it counts as pulled here, by nobody knows whom.
            Err(error) => tracing::warn!(image, "the record of who may use it is not written: {error}"),
        }
    }

    /// Forgets images that are gone.
    pub(crate) fn keep_only(&self, ids: &BTreeSet<&str>, since: Timestamp) {
        let _one = self.one.lock();
        for path in files(&self.pulled) {
            let gone = read::<Pulled>(&path)
                .is_some_and(|record| !ids.contains(record.image_ref.as_str()) && record.last_updated_time < since);
            if gone {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Adds to the record of an image. Nothing is known of credentials where `used` is none.
    fn note(&self, image: &str, id: &str, used: Option<Option<&Credential>>) -> io::Result<()> {
        let path = self.record(id);
        let mut record = read::<Pulled>(&path).unwrap_or_else(|| Pulled {
            kind: "ImagePulledRecord".to_owned(),
            api_version: VERSION.to_owned(),
            last_updated_time: self.clock.now(),
            image_ref: id.to_owned(),
            credential_mapping: BTreeMap::new(),
        });
        if let Some(used) = used {
            let allowed = record.credential_mapping.entry(without_tag(image).to_owned()).or_default();
            match used {
                None => *allowed = Allowed { node_pods_accessible: true, ..Allowed::default() },
                Some(_) if allowed.node_pods_accessible => {}
                Some(credential) => {
                    let secrets = &mut allowed.kubernetes_secrets;
                    secrets.retain(|known| !known.is_same_object(&credential.secret));
                    secrets.push(credential.secret.clone());
                    let excess = secrets.len().saturating_sub(MOST_SECRETS);
                    secrets.drain(..excess);
                }
            }
        }
        record.last_updated_time = self.clock.now();
        write(&path, &record)
    }

    fn record(&self, id: &str) -> PathBuf {
        self.pulled.join(file_name(id))
    }

    fn intent(&self, image: &str) -> PathBuf {
        self.pulling.join(file_name(image))
    }
}

fn file_name(of: &str) -> String {
    format!("sha256-{:x}", Sha256::digest(of))
}

/// `registry.test:5000/a/b:1@sha256:…` is `registry.test:5000/a/b`.
fn without_tag(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    let start = name.rfind('/').map_or(0, |at| at + 1);
    name[start..].find(':').map_or(name, |at| &name[..start + at])
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("sha256-") && !name.ends_with(".tmp")
    });
    names.map(|entry| entry.path()).collect()
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&ferry_podfs::read_start(path, LARGEST).ok()?).ok()
}

fn write(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let new = path.with_extension("tmp");
    ferry_podfs::overwrite(&new, &serde_json::to_vec(record)?, 0o600)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests;

//! Keys of a key management service: it protects the seeds with which values are encrypted here.
//!
//! A seed is made when the service first answers and whenever it names another key; every value has a key of its own, derived from
//! the seed. Seeds of old values are asked for once and remembered.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use bytes::Bytes;
use ferry_tasks::Tasks;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status};

use super::providers::{Failure, damaged, fill, open_gcm, seal_gcm};

#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    unused_qualifications,
    dead_code,
    reason = "generated code"
)]
pub(super) mod v2 {
    tonic::include_proto!("v2");
}

use v2::EncryptedObject;
use v2::key_management_service_client::KeyManagementServiceClient;

/// How long a service that is well is left alone, and one that is not.
const WELL: Duration = Duration::from_secs(60);
const UNWELL: Duration = Duration::from_secs(10);
/// A seed is written with for so long after the service last confirmed its key.
const WRITABLE: Duration = Duration::from_secs(180);
/// How long seeds of old values are remembered, and how many.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
const MOST_REMEMBERED: usize = 10_000;

const LONGEST_KEY_ID: usize = 1024;
const LONGEST_SOURCE: usize = 1024;
const LONGEST_ANNOTATIONS: usize = 32 * 1024;

/// How the plain text of `encryptedDEKSource` is used.
const KEY: i32 = 0;
const SEED: i32 = 1;
const SEED_LENGTH: usize = 32;
const INFO_LENGTH: usize = 32;

pub(super) struct Kms(Arc<Service>);

struct Service {
    name: String,
    prefix: Vec<u8>,
    socket: PathBuf,
    timeout: Duration,
    client: OnceLock<KeyManagementServiceClient<Channel>>,
    current: ArcSwapOption<Current>,
    known: Mutex<HashMap<[u8; 32], Remembered>>,
    health: watch::Sender<Result<(), String>>,
}

/// A seed, and until when it is remembered.
type Remembered = (Arc<Source>, Instant);

/// What is written with now.
#[derive(Clone)]
struct Current {
    source: Arc<Source>,
    /// Without data.
    object: EncryptedObject,
    until: Instant,
}

enum Source {
    Key(Box<LessSafeKey>),
    Seed(Prk),
}

impl Source {
    fn new(kind: i32, secret: &[u8]) -> Option<Self> {
        match kind {
            SEED if secret.len() >= SEED_LENGTH => Some(Self::Seed(Prk::new_less_safe(HKDF_SHA256, secret))),
            KEY => Some(Self::Key(Box::new(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, secret).ok()?)))),
            _ => None,
        }
    }

    fn derive(seed: &Prk, info: &[u8]) -> Option<LessSafeKey> {
        let parts = [info];
        let derived = seed.expand(&parts, &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(derived)))
    }

    fn seal(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        match self {
            Self::Key(cipher) => seal_gcm(cipher, key, value, &mut out)?,
            Self::Seed(seed) => {
                let mut info = [0; INFO_LENGTH];
                fill(&mut info)?;
                let cipher = Self::derive(seed, &info).ok_or("a key could not be derived")?;
                out.extend_from_slice(&info);
                seal_gcm(&cipher, key, value, &mut out)?;
            }
        }
        Ok(out)
    }

    fn open(&self, key: &str, sealed: &[u8]) -> Result<Bytes, Failure> {
        match self {
            Self::Key(cipher) => open_gcm(cipher, key, sealed),
            Self::Seed(seed) => {
                let (info, rest) = sealed.split_at_checked(INFO_LENGTH).ok_or_else(damaged)?;
                let cipher = Self::derive(seed, info).ok_or_else(damaged)?;
                open_gcm(&cipher, key, rest)
            }
        }
    }
}

/// What tells seeds apart.
fn fingerprint(object: &EncryptedObject) -> [u8; 32] {
    let mut digest = Context::new(&SHA256);
    let mut add = |bytes: &[u8]| {
        digest.update(&(bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    add(&object.encrypted_dek_source_type.to_le_bytes());
    add(&object.encrypted_dek_source);
    add(object.key_id.as_bytes());
    let mut annotations: Vec<_> = object.annotations.iter().collect();
    annotations.sort();
    for (key, value) in annotations {
        add(key.as_bytes());
        add(value);
    }
    let mut out = [0; 32];
    out.copy_from_slice(digest.finish().as_ref());
    out
}

fn check(object: &EncryptedObject) -> Result<(), String> {
    check_key_id(&object.key_id)?;
    if object.encrypted_dek_source.is_empty() || object.encrypted_dek_source.len() > LONGEST_SOURCE {
        return Err("the encrypted seed is empty or longer than 1 kB".into());
    }
    let size: usize = object.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > LONGEST_ANNOTATIONS {
        return Err("the annotations are larger than 32 kB".into());
    }
    // A slash would make it no name of a domain.
    match object.annotations.keys().find(|key| !key.contains('.') || key.contains('/')) {
        Some(key) => Err(format!("the annotation {key:?} is no fully qualified domain name")),
        None => Ok(()),
    }
}

fn check_key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("the key id is empty".into()),
        length if length > LONGEST_KEY_ID => Err("the key id is longer than 1 kB".into()),
        _ => Ok(()),
    }
}

fn uid() -> Result<String, String> {
    let mut bytes = [0_u8; 16];
    fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Kms {
    pub fn new(name: &str, socket: PathBuf, timeout: Duration) -> Self {
        Self(Arc::new(Service {
            name: name.to_owned(),
            prefix: format!("k8s:enc:kms:v2:{name}:").into_bytes(),
            socket,
            timeout,
            client: OnceLock::new(),
            current: ArcSwapOption::empty(),
            known: Mutex::default(),
            health: watch::Sender::new(Err(format!("the key management service {name} was not asked yet"))),
        }))
    }

    /// Asks the service how it is, now and from time to time.
    pub fn start(&self, tasks: &Tasks) {
        let service = self.0.clone();
        tasks.spawn_until_stopped("key management service", async move {
            loop {
                let outcome = service.probe().await;
                if let Err(why) = &outcome {
                    tracing::error!("the key management service {} is not healthy: {why}", service.name);
                }
                let pause = if outcome.is_ok() { WELL } else { UNWELL };
                let _ = service.health.send_replace(
                    outcome.map_err(|why| format!("kmsv2 Provider {} is not healthy, error: {why}", service.name)),
                );
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Returns once the service has given a key.
    pub async fn ready(&self, patience: Duration) -> Result<(), String> {
        let mut health = self.0.health.subscribe();
        let waited = tokio::time::timeout(patience, health.wait_for(Result::is_ok)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            _ => self.health(),
        }
    }

    pub fn health(&self) -> Result<(), String> {
        self.0.health.borrow().clone()
    }

    pub fn recognizes<'a>(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        value.strip_prefix(&*self.0.prefix)
    }

    /// Written under another key of the service, or in a form of old.
    pub fn is_stale(&self, sealed: &[u8]) -> bool {
        let current = self.0.current.load();
        match (EncryptedObject::decode(sealed), &*current) {
            (Ok(object), Some(current)) => {
                object.key_id != current.object.key_id || object.encrypted_dek_source_type != SEED
            }
            _ => true,
        }
    }

    pub fn seal(&self, key: &str, value: &[u8]) -> Result<Bytes, String> {
        let current = self.0.current.load();
        let name = &self.0.name;
        let current =
            current.as_ref().ok_or_else(|| format!("the key management service {name} has given no key yet"))?;
        if current.until < Instant::now() {
            return Err(format!("the key management service {name} has not confirmed its key for too long"));
        }
        let object = EncryptedObject { encrypted_data: current.source.seal(key, value)?, ..current.object.clone() };
        let mut out = self.0.prefix.clone();
        object.encode(&mut out).map_err(|error| error.to_string())?;
        Ok(out.into())
    }

    pub async fn open(&self, key: &str, sealed: &[u8]) -> Result<Bytes, Failure> {
        let object = EncryptedObject::decode(sealed).map_err(|_| damaged())?;
        check(&object).map_err(Failure::Damaged)?;
        self.0.source(&object).await?.open(key, &object.encrypted_data)
    }
}

impl Service {
    fn client(&self) -> KeyManagementServiceClient<Channel> {
        let connect = || {
            let path = self.socket.clone();
            // The authority is only a header here; the connector decides where the bytes go.
            let channel = Endpoint::from_static("http://localhost")
                .connect_timeout(self.timeout)
                .connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                    let path = path.clone();
                    async move { UnixStream::connect(path).await.map(TokioIo::new) }
                }));
            KeyManagementServiceClient::new(channel)
        };
        self.client.get_or_init(connect).clone()
    }

    async fn within<T>(&self, call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Status> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded("context deadline exceeded")),
        }
    }

    /// Asks for the service's key, and makes a seed where it is another than before.
    async fn probe(&self) -> Result<(), String> {
        let told = |status: Status| format!("{:?}: {}", status.code(), status.message());
        let status = self.within(self.client().status(Request::new(v2::StatusRequest {}))).await.map_err(told)?;
        if !matches!(status.version.as_str(), "v2" | "v2beta1") {
            return Err(format!("expected KMSv2 API version v2, got {}", status.version));
        }
        if status.healthz != "ok" {
            return Err(format!("got unexpected healthz status: {}", status.healthz));
        }
        check_key_id(&status.key_id)?;
        // From before the call: the seed must not be good for longer.
        let until = Instant::now() + WRITABLE;
        if let Some(current) = self.current.load_full()
            && current.object.key_id == status.key_id
        {
            self.current.store(Some(Arc::new(Current { until, ..Current::clone(&current) })));
            return Ok(());
        }
        let mut seed = vec![0; SEED_LENGTH];
        fill(&mut seed)?;
        let source = Arc::new(Source::new(SEED, &seed).ok_or("a seed could not be used")?);
        let request = v2::EncryptRequest { plaintext: seed, uid: uid()? };
        let answer = self.within(self.client().encrypt(Request::new(request))).await.map_err(told)?;
        let object = EncryptedObject {
            encrypted_data: Vec::new(),
            key_id: answer.key_id,
            encrypted_dek_source: answer.ciphertext,
            annotations: answer.annotations,
            encrypted_dek_source_type: SEED,
        };
        check(&object)?;
        self.remember(fingerprint(&object), source.clone());
        self.current.store(Some(Arc::new(Current { source, object, until })));
        Ok(())
    }

    fn remember(&self, fingerprint: [u8; 32], source: Arc<Source>) {
        let mut known = self.known.lock();
        if known.len() >= MOST_REMEMBERED {
            let now = Instant::now();
            known.retain(|_, (_, until)| *until > now);
            // All of them are fresh: they are asked for again.
            if known.len() >= MOST_REMEMBERED {
                known.clear();
            }
        }
        known.insert(fingerprint, (source, Instant::now() + REMEMBERED));
    }

    async fn source(&self, object: &EncryptedObject) -> Result<Arc<Source>, Failure> {
        let fingerprint = fingerprint(object);
        if let Some((source, until)) = self.known.lock().get(&fingerprint)
            && *until > Instant::now()
        {
            return Ok(source.clone());
        }
        let request = v2::DecryptRequest {
            ciphertext: object.encrypted_dek_source.clone(),
            uid: uid().map_err(Failure::Unavailable)?,
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        };
        let answer = self.within(self.client().decrypt(Request::new(request))).await.map_err(|status| {
            let why = format!("the key management service {}: {:?}: {}", self.name, status.code(), status.message());
            match status.code() {
                Code::Unavailable
                | Code::DeadlineExceeded
                | Code::Cancelled
                | Code::ResourceExhausted
                | Code::Aborted => Failure::Unavailable(why),
                _ => Failure::Damaged(why),
            }
        })?;
        let source =
            Source::new(object.encrypted_dek_source_type, &answer.plaintext).map(Arc::new).ok_or_else(damaged)?;
        self.remember(fingerprint, source.clone());
        Ok(source)
    }
}

#[cfg(test)]
mod tests;

//! A key management service on a socket of its own, and what it sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Response;

use super::v2::key_management_service_server::{KeyManagementService, KeyManagementServiceServer};
use super::*;
use crate::{EmbeddedStore, EncryptedStore, EncryptionConfig, Op, Range, Store, StoreError, Transaction};

/// Its cipher is an exclusive or with the number of its key: what matters here is who asks for what.
#[derive(Default)]
struct Vault {
    key: AtomicUsize,
    ill: AtomicBool,
    encrypted: AtomicUsize,
    decrypted: AtomicUsize,
}

impl Vault {
    fn key_id(&self) -> String {
        format!("key-{}", self.key.load(Ordering::Relaxed))
    }
}

fn scramble(key_id: &str, bytes: &[u8]) -> Vec<u8> {
    let number = key_id.bytes().last().unwrap_or_default();
    bytes.iter().map(|byte| byte ^ number).collect()
}

struct Shared(Arc<Vault>);

#[tonic::async_trait]
impl KeyManagementService for Shared {
    async fn status(&self, _: Request<v2::StatusRequest>) -> Result<Response<v2::StatusResponse>, Status> {
        let healthz = if self.0.ill.load(Ordering::Relaxed) { "a fever" } else { "ok" };
        Ok(Response::new(v2::StatusResponse { version: "v2".into(), healthz: healthz.into(), key_id: self.0.key_id() }))
    }

    async fn encrypt(&self, request: Request<v2::EncryptRequest>) -> Result<Response<v2::EncryptResponse>, Status> {
        self.0.encrypted.fetch_add(1, Ordering::Relaxed);
        let key_id = self.0.key_id();
        Ok(Response::new(v2::EncryptResponse {
            ciphertext: scramble(&key_id, &request.get_ref().plaintext),
            annotations: [("vault.example.com".to_owned(), key_id.clone().into_bytes())].into(),
            key_id,
        }))
    }

    async fn decrypt(&self, request: Request<v2::DecryptRequest>) -> Result<Response<v2::DecryptResponse>, Status> {
        self.0.decrypted.fetch_add(1, Ordering::Relaxed);
        let request = request.get_ref();
        if request.annotations.get("vault.example.com").map(Vec::as_slice) != Some(request.key_id.as_bytes()) {
            return Err(Status::invalid_argument("the annotation was lost"));
        }
        Ok(Response::new(v2::DecryptResponse { plaintext: scramble(&request.key_id, &request.ciphertext) }))
    }
}

fn serve(vault: &Arc<Vault>, socket: &std::path::Path, tasks: &Tasks) {
    let _ = std::fs::remove_file(socket);
    let incoming = UnixListenerStream::new(UnixListener::bind(socket).expect("a socket"));
    let service = KeyManagementServiceServer::new(Shared(vault.clone()));
    tasks.spawn_until_stopped("vault", async move {
        let served = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await;
        served.expect("served");
    });
}

fn config(socket: &std::path::Path) -> EncryptionConfig {
    let endpoint = format!("unix://{}", socket.display());
    let kms = json!({ "kms": { "apiVersion": "v2", "name": "vault", "endpoint": endpoint, "timeout": "1s" } });
    let document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{ "resources": ["secrets"], "providers": [kms, { "identity": {} }] }],
    });
    EncryptionConfig::parse(&document).expect("a configuration")
}

async fn create(store: &dyn Store, name: &str) {
    let op = Op::Create { key: format!("/registry/secrets/a/{name}"), value: "swordfish".into(), lease: None };
    store.commit(Transaction::one(op)).await.expect("committed");
}

async fn value(store: &dyn Store, name: &str) -> Result<Bytes, StoreError> {
    let got = store.get(&format!("/registry/secrets/a/{name}")).await?;
    Ok(got.entry.expect("there").value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_management_service_protects_the_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vault.sock");
    let (vault, tasks, server) = (Arc::new(Vault::default()), Tasks::new("test"), Tasks::new("vault"));
    serve(&vault, &socket, &server);
    let engine = EmbeddedStore::open(&folder.path().join("store"), Default::default()).expect("a store");
    let resource_of: crate::ResourceOf = Arc::new(|_| Some((String::new(), "secrets".into())));
    let patience = Duration::from_secs(20);
    let open = async || {
        let config = config(&socket);
        config.start(&tasks, patience).await.expect("a key");
        EncryptedStore::new(engine.clone(), config, resource_of.clone())
    };

    let store = open().await;
    for name in ["a", "b", "c"] {
        create(&*store, name).await;
        assert_eq!(value(&*store, name).await.expect("readable"), "swordfish");
    }
    assert!(store.health().await.is_ok());
    // One seed for all of them, and it is known already.
    assert_eq!((vault.encrypted.load(Ordering::Relaxed), vault.decrypted.load(Ordering::Relaxed)), (1, 0));
    let raw = value(&*engine, "a").await.expect("there");
    let rest = raw.strip_prefix(b"k8s:enc:kms:v2:vault:".as_slice()).expect("upstream's prefix");
    let object = EncryptedObject::decode(rest).expect("upstream's form");
    assert_eq!((object.key_id.as_str(), object.encrypted_dek_source_type), ("key-0", SEED));
    assert_eq!(object.encrypted_data.len(), INFO_LENGTH + 12 + "swordfish".len() + 16);
    assert!(!raw.windows(9).any(|window| window == b"swordfish"));

    // After a restart the seed is asked for once.
    let store = open().await;
    for name in ["a", "b", "c"] {
        assert_eq!(value(&*store, name).await.expect("readable"), "swordfish");
    }
    assert_eq!((vault.encrypted.load(Ordering::Relaxed), vault.decrypted.load(Ordering::Relaxed)), (2, 1));
    assert!(!store.is_stale("/registry/secrets/a/a").await.expect("there"));

    // Another key makes what is there stale, and it is written anew.
    vault.key.store(1, Ordering::Relaxed);
    let store = open().await;
    assert!(store.is_stale("/registry/secrets/a/a").await.expect("there"));
    assert_eq!(store.rewrite_stale().await.expect("written"), 3);
    assert!(!store.is_stale("/registry/secrets/a/a").await.expect("there"));
    assert_eq!(value(&*store, "b").await.expect("readable"), "swordfish");

    // A value of another name is not taken for this one's.
    let moved = Op::Create {
        key: "/registry/secrets/a/d".into(),
        value: value(&*engine, "a").await.expect("there"),
        lease: None,
    };
    engine.commit(Transaction::one(moved)).await.expect("committed");
    assert!(matches!(value(&*store, "d").await, Err(StoreError::Corrupt(_))));

    // Without the service: what is known can be read, nothing that is not is lost.
    server.stop(Duration::from_secs(10)).await;
    assert_eq!(value(&*store, "a").await.expect("readable"), "swordfish");
    let cold = EncryptedStore::new(engine.clone(), config(&socket), resource_of.clone());
    assert!(matches!(value(&*cold, "a").await, Err(StoreError::Unavailable(_))));
    let all = Range { prefix: "/registry/".into(), ..Range::default() };
    assert!(matches!(cold.range(all).await, Err(StoreError::Unavailable(_))));
    let op = Op::Create { key: "/registry/secrets/a/e".into(), value: "x".into(), lease: None };
    assert!(
        matches!(cold.commit(Transaction::one(op)).await, Err(StoreError::Unavailable(_))),
        "nothing is written in clear"
    );
    assert!(cold.health().await.is_err());
    let absent = config(&socket).start(&tasks, Duration::from_millis(50)).await;
    assert!(absent.is_err(), "a service that is not there");
    tasks.stop(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_ill_is_told_and_its_key_is_used_for_a_while_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vault.sock");
    let (vault, tasks) = (Arc::new(Vault::default()), Tasks::new("test"));
    serve(&vault, &socket, &tasks);
    let kms = Kms::new("vault", socket, Duration::from_secs(20));
    kms.0.probe().await.expect("well");
    assert!(kms.seal("/k", b"v").is_ok());
    vault.ill.store(true, Ordering::Relaxed);
    assert_eq!(kms.0.probe().await, Err("got unexpected healthz status: a fever".into()));
    assert!(kms.seal("/k", b"v").is_ok(), "the seed is good for some minutes");
    let current = kms.0.current.load_full().expect("a seed");
    let before = Instant::now().checked_sub(Duration::from_millis(1)).expect("a time");
    kms.0.current.store(Some(Arc::new(Current { until: before, ..Current::clone(&current) })));
    assert!(kms.seal("/k", b"v").is_err(), "and no longer");
    vault.ill.store(false, Ordering::Relaxed);
    kms.0.probe().await.expect("well again");
    assert!(kms.seal("/k", b"v").is_ok());
    assert_eq!(vault.encrypted.load(Ordering::Relaxed), 1, "the same key, the same seed");
    for damage in [&b""[..], b"\x0a", &[0xff; 40]] {
        assert!(matches!(kms.open("/k", damage).await, Err(Failure::Damaged(_))));
    }
    tasks.stop(Duration::from_secs(10)).await;
}

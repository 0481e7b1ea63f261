//! Encrypted values: the contract of a store holds, nobody reads them below, old keys are read and replaced.

use super::*;
use crate::EmbeddedStore;
use crate::conformance;
use bytes::Bytes;
use serde_json::{Value, json};

fn config(resources: &[&str], providers: Value) -> EncryptionConfig {
    EncryptionConfig::parse(&document(resources, providers)).expect("a configuration")
}

fn document(resources: &[&str], providers: Value) -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": resources, "providers": providers}],
    })
}

fn keys(names: &[(&str, u8)]) -> Value {
    use base64::Engine;
    let secret = |byte: u8| base64::engine::general_purpose::STANDARD.encode([byte; 32]);
    json!({"keys": names.iter().map(|(name, byte)| json!({"name": name, "secret": secret(*byte)})).collect::<Vec<_>>()})
}

/// The first part behind the root is the resource.
fn resource_of() -> ResourceOf {
    Arc::new(|key| {
        let resource = key.strip_prefix(crate::key::ROOT)?.split('/').next()?;
        Some((String::new(), resource.to_owned()))
    })
}

async fn create(store: &dyn Store, key: &str, value: &'static str) {
    let op = Op::Create { key: key.into(), value: Bytes::from_static(value.as_bytes()), lease: None };
    store.commit(Transaction::one(op)).await.expect("committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_store_is_a_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = EmbeddedStore::open(folder.path(), Default::default()).expect("a store");
    let all = config(&["*.*"], json!([{"aesgcm": keys(&[("one", 1)])}, {"identity": {}}]));
    conformance::run(EncryptedStore::new(inner, all, resource_of())).await;
}

#[tokio::test]
async fn below_nobody_reads_a_secret_and_above_everyone_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = EmbeddedStore::open(folder.path(), Default::default()).expect("a store");
    let gcm = config(&["secrets"], json!([{"aesgcm": keys(&[("one", 1)])}, {"identity": {}}]));
    let store = EncryptedStore::new(inner.clone(), gcm, resource_of());
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: 0 }).await.expect("a watch");
    create(&*store, "/registry/secrets/a/s", "the password is swordfish").await;
    create(&*store, "/registry/configmaps/a/m", "not a secret at all").await;
    let raw = inner.get("/registry/secrets/a/s").await.expect("read").entry.expect("there");
    assert!(raw.value.starts_with(b"k8s:enc:aesgcm:v1:one:"), "{:?}", raw.value);
    assert_eq!(
        inner.get("/registry/configmaps/a/m").await.expect("read").entry.expect("there").value,
        "not a secret at all"
    );
    let plain = store.get("/registry/secrets/a/s").await.expect("read").entry.expect("there");
    assert_eq!(plain.value, "the password is swordfish");
    let found = store.range(Range { prefix: "/registry/secrets/".into(), ..Range::default() }).await.expect("read");
    assert_eq!(found.entries[0].value, plain.value);
    let event = loop {
        // A batch without events says how far the watch has come.
        if let Some(event) = conformance::next(&mut watch).await.expect("a batch").events.pop() {
            break event;
        }
    };
    assert_eq!(event.entry.value, plain.value);
    // Who loses the race is shown the plain value too.
    let op = Op::Create { key: "/registry/secrets/a/s".into(), value: Bytes::new(), lease: None };
    match store.commit(Transaction::one(op)).await {
        Err(StoreError::Conflict { current: Some(current), .. }) => assert_eq!(current.value, plain.value),
        other => panic!("{other:?}"),
    }
    // A value that is moved to another name is refused.
    let moved = Op::Create { key: "/registry/secrets/a/t".into(), value: raw.value, lease: None };
    inner.commit(Transaction::one(moved)).await.expect("committed");
    assert!(matches!(store.get("/registry/secrets/a/t").await, Err(StoreError::Corrupt(_))));
    // Among others it does not take them away.
    let found = store.range(Range { prefix: "/registry/".into(), ..Range::default() }).await.expect("read");
    assert_eq!(found.entries.len(), 3);
    drop(watch);
}

#[tokio::test]
async fn old_keys_are_read_and_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = EmbeddedStore::open(folder.path(), Default::default()).expect("a store");
    let plain = config(&["secrets"], json!([{"identity": {}}]));
    let store = EncryptedStore::new(inner.clone(), plain, resource_of());
    let key = "/registry/secrets/a/s";
    create(&*store, key, "v").await;
    create(&*store, "/registry/pods/a/p", "v").await;
    let steps = [
        (json!([{"aescbc": keys(&[("a", 1)])}, {"identity": {}}]), "k8s:enc:aescbc:v1:a:"),
        (json!([{"aesgcm": keys(&[("b", 2)])}, {"aescbc": keys(&[("a", 1)])}]), "k8s:enc:aesgcm:v1:b:"),
        (json!([{"aesgcm": keys(&[("c", 3), ("b", 2)])}]), "k8s:enc:aesgcm:v1:c:"),
        (json!([{"secretbox": keys(&[("d", 4)])}, {"aesgcm": keys(&[("c", 3)])}]), "k8s:enc:secretbox:v1:d:"),
        (json!([{"identity": {}}, {"secretbox": keys(&[("d", 4)])}]), "v"),
    ];
    for (providers, prefix) in steps {
        store.set_config(config(&["secrets"], providers));
        assert_eq!(store.get(key).await.expect("read").entry.expect("there").value, "v");
        assert!(store.is_stale(key).await.expect("read"));
        assert_eq!(store.rewrite_stale().await.expect("rewritten"), 1);
        assert!(!store.is_stale(key).await.expect("read"));
        let raw = inner.get(key).await.expect("read").entry.expect("there").value;
        assert!(raw.starts_with(prefix.as_bytes()), "{raw:?}");
        assert_eq!(store.get(key).await.expect("read").entry.expect("there").value, "v");
    }
    assert_eq!(store.rewrite_stale().await.expect("rewritten"), 0);
}

#[test]
fn resources_are_named_as_upstream_names_them() {
    let resource: ResourceOf = Arc::new(|key| key.split_once('/').map(|(g, r)| (g.to_owned(), r.to_owned())));
    for (pattern, key, want) in [
        ("secrets", "/secrets", true),
        ("secrets", "example.com/secrets", false),
        ("deployments.apps", "apps/deployments", true),
        ("*.apps", "apps/replicasets", true),
        ("*.apps", "/pods", false),
        ("*.", "/pods", true),
        ("*.", "apps/deployments", false),
        ("*.*", "a.b.c/ds", true),
        ("ds.a.b.c", "a.b.c/ds", true),
    ] {
        assert_eq!(config(&[pattern], json!([{"identity": {}}])).concerns(&resource, key), want, "{pattern} {key}");
    }
}

#[test]
fn configurations_that_mean_nothing_are_refused() {
    let short = json!({"keys": [{"name": "a", "secret": "c2hvcnQ="}]});
    for (document, want) in [
        (json!({"apiVersion": "v1", "kind": "Pod"}), "not an apiserver.config.k8s.io/v1"),
        (document(&[], json!([{"identity": {}}])), "at least one resource"),
        (document(&["secrets"], json!([])), "at least one resource and one provider"),
        (document(&["secrets"], json!([{"identity": {}, "aesgcm": keys(&[("a", 1)])}])), "exactly one"),
        (document(&["secrets"], json!([{"aesgcm": short}])), "16, 24 or 32 bytes"),
        (document(&["secrets"], json!([{"aesgcm": keys(&[("a", 1), ("a", 2)])}])), "twice"),
        (document(&["secrets"], json!([{"aesgcm": keys(&[("a:b", 1)])}])), "colon"),
        (
            document(&["*"], json!([{"identity": {}}])),
            "resources[0]: resources[0]: Invalid value: \"*\": use '*.' to encrypt",
        ),
        (document(&[""], json!([{"identity": {}}])), "write it like secrets"),
        (document(&["Secrets"], json!([{"identity": {}}])), "capital letters"),
        (document(&["pods", "secrets/status"], json!([{"identity": {}}])), "resources[1]"),
        (document(&["secrets", "secrets"], json!([{"identity": {}}])), "specified multiple times"),
        (document(&["secrets", "*."], json!([{"identity": {}}])), "overlapping resources"),
        (document(&["*.", "pods", "secrets"], json!([{"identity": {}}])), "overlapping resources"),
        (document(&["deployments.apps", "*.apps"], json!([{"identity": {}}])), "overlapping resources"),
        (document(&["*.*", "secrets"], json!([{"identity": {}}])), "overlapping resources"),
        (document(&["secrets", "*.*"], json!([{"identity": {}}])), "overlapping resources"),
        (document(&["secrets.*"], json!([{"identity": {}}])), "across groups"),
        (document(&["events.events.k8s.io"], json!([{"identity": {}}])), "Use 'events' instead"),
        (document(&["ingresses.extensions"], json!([{"identity": {}}])), "has been removed"),
        (document(&["servicenodeportallocations"], json!([{"identity": {}}])), "do not have REST API/s"),
        (document(&["secrets"], json!([{"secretbox": short}])), "32 bytes"),
        (document(&["secrets"], json!([{"kms": {"name": "a", "endpoint": "unix:///a"}}])), "apiVersion v1"),
        (
            document(&["secrets"], json!([{"kms": {"apiVersion": "v2", "name": "a:b", "endpoint": "unix:///a"}}])),
            "colon",
        ),
        (
            document(&["secrets"], json!([{"kms": {"apiVersion": "v2", "name": "a", "endpoint": "tcp://a"}}])),
            "unix:///path",
        ),
        (
            document(
                &["secrets"],
                json!([{"kms": {"apiVersion": "v2", "name": "a", "endpoint": "unix:///a", "timeout": "0s"}}]),
            ),
            "positive duration",
        ),
        (
            document(
                &["secrets"],
                json!([{"kms": {"apiVersion": "v2", "name": "a", "endpoint": "unix:///a"}}, {"kms": {"apiVersion": "v2", "name": "a", "endpoint": "unix:///b"}}]),
            ),
            "must be unique",
        ),
        (
            document(
                &["secrets"],
                json!([{"kms": {"apiVersion": "v2", "name": "a", "endpoint": "unix:///a", "cachesize": 3}}]),
            ),
            "cachesize is not supported in v2",
        ),
        (document(&["secrets"], json!([{"rot13": {}}])), "unknown field"),
    ] {
        let error = EncryptionConfig::parse(&document).err().expect("refused").to_string();
        assert!(error.contains(want), "{error}");
    }
    // What overlaps in different lists is decided by the first.
    let lists = [&["secrets", "*.apps"][..], &["pods", "deployments.apps", "*.batch"], &["*.", "*.apps"], &["*.*"]];
    for resources in lists {
        assert!(EncryptionConfig::parse(&document(resources, json!([{"identity": {}}]))).is_ok(), "{resources:?}");
    }
}

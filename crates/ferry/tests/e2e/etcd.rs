//! The API server on a real etcd: what upstream wrote is served, and an etcd that goes away comes back unharmed.

use std::sync::Arc;

use ferry_store::etcd::{Members, snapshot};
use ferry_store::{EtcdOptions, EtcdStore, Op, Store, Transaction};
use ferry_tasks::Tasks;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, VersionMatch, WatchEvent, WatchParams};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::alone::{Apiserver, Etcd, create, dead_url, runtime, text};
use crate::cluster::{Cluster, PATIENCE, until};

async fn connect(etcd: &Etcd, prefix: &str) -> Arc<EtcdStore> {
    let options =
        EtcdOptions { prefix: prefix.into(), compaction_interval: None, ..EtcdOptions::new(vec![etcd.url()]) };
    let store = EtcdStore::connect(options, &Tasks::new("test")).await.unwrap();
    let up = async {
        while store.health().await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, up).await.expect("etcd is up");
    store
}

/// ConfigMap `old` with `{"a":"1"}` as upstream stores it: `k8s\0`, the envelope, the message.
fn upstream_protobuf() -> Vec<u8> {
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }
    let metadata = [field(1, b"old"), field(3, b"default"), field(5, b"3f1c3a0e-0000-4000-8000-000000000001")].concat();
    let data = [field(1, b"a"), field(2, b"1")].concat();
    let message = [field(1, &metadata), field(2, &data)].concat();
    let kind = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    [b"k8s\0".to_vec(), field(1, &kind), field(2, &message), field(3, b""), field(4, b"")].concat()
}

pub fn the_api_server_stands_on_etcd() {
    let runtime = runtime();
    let mut etcd = Etcd::start("http", Vec::new());
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let beside = connect(&etcd, "/clusters/one").await;
        let json = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"text","namespace":"default","uid":"3f1c3a0e-0000-4000-8000-000000000002"},"data":{"b":"2"}}"#;
        for (name, value) in [("old", upstream_protobuf()), ("text", json.to_vec()), ("broken", b"k8s\0\xff".to_vec())] {
            let op = Op::Create { key: format!("/registry/configmaps/default/{name}"), value: value.into(), lease: None };
            beside.commit(Transaction::one(op)).await.unwrap();
        }
        let servers = format!("{},{}", dead_url(), etcd.url());
        let flags = ["--etcd-servers", &servers, "--etcd-prefix=/clusters/one", "--storage-media-type=application/vnd.kubernetes.protobuf"];
        let mut server = Apiserver::start(folder.path(), &flags);
        let client = server.client().await;
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        assert_eq!(api.get("old").await.unwrap().data.unwrap()["a"], "1");
        assert_eq!(api.get("text").await.unwrap().data.unwrap()["b"], "2");
        let names: Vec<String> = api.list(&ListParams::default()).await.unwrap().items.into_iter().filter_map(|item| item.metadata.name).collect();
        assert!(names.contains(&"old".into()) && names.contains(&"text".into()) && !names.contains(&"broken".into()), "{names:?}");
        // One of the two addresses is nobody's: no request may depend on which is asked first.
        for number in 0..30 {
            create(&client, &format!("c{number}")).await.unwrap();
        }
        let raw = beside.get("/registry/configmaps/default/c0").await.unwrap().entry.unwrap();
        assert!(raw.value.starts_with(b"k8s\0"), "written as protobuf under the prefix");
        assert!(!folder.path().join("store").exists(), "nothing of the state is kept in the folder");

        let start = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let mut watch = Box::pin(api.watch(&WatchParams::default().timeout(280), &start).await.unwrap());
        etcd.kill();
        // Whatever is asked of it now is answered, and not with a lie.
        for _ in 0..3 {
            let refused = tokio::time::timeout(PATIENCE, create(&client, "lost")).await.expect("an answer in time");
            assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 503), "{refused:?}");
        }
        let newest = tokio::time::timeout(PATIENCE, api.list(&ListParams::default())).await.expect("an answer in time");
        assert!(matches!(&newest, Err(kube::Error::Api(status)) if status.code == 503), "{newest:?}");
        let cached = ListParams::default().at("0").matching(VersionMatch::NotOlderThan);
        assert!(api.list(&cached).await.unwrap().items.len() >= 32, "reads of what is known go on");

        etcd.start_again();
        let begin = std::time::Instant::now();
        let revision = loop {
            match create(&client, "back").await {
                Ok(revision) => break revision,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        };
        // The watch of before has no gap.
        let seen = async {
            while let Some(event) = watch.next().await {
                if let WatchEvent::Added(object) = event.unwrap() {
                    return (object.metadata.name.unwrap(), object.metadata.resource_version.unwrap());
                }
            }
            panic!("the watch ended");
        };
        let (name, version) = tokio::time::timeout(PATIENCE, seen).await.expect("an event");
        assert_eq!((name.as_str(), version), ("back", revision.to_string()));
    });
}

/// The whole of it, with its state elsewhere: what is known after a stop is what etcd kept.
pub fn a_cluster_stands_on_etcd() {
    let etcd = Etcd::start("http", Vec::new());
    let cluster = Cluster::start_with(vec![format!("--etcd-servers={}", etcd.url())]);
    cluster.apply(POD);
    let id = || {
        let pod = cluster.json(&["get", "pod", "kept", "-o", "json"]);
        let container = &pod["status"]["containerStatuses"][0];
        (container["ready"] == true).then(|| container["containerID"].as_str().unwrap_or_default().to_owned())
    };
    let before = until("the pod runs", id);
    cluster.kill();
    cluster.up();
    let after = until("the pod is known", id);
    assert_eq!(before, after, "the container ran on");
    assert!(!cluster.data_dir().join("store").exists(), "nothing is kept beside etcd");
    cluster.kubectl(&["delete", "pod", "kept", "--now"]);
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: kept}
spec:
  containers:
  - {name: main, image: 'busybox:1.36', command: [sleep, '3600']}
";

pub fn the_api_server_shows_etcd_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let keep = |name: &str, content: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        text(&path).to_owned()
    };
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let ca = keep("ca.pem", authority.pem());
    let pair = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority);
        (keep(&format!("{name}.pem"), certificate.unwrap().pem()), keep(&format!("{name}.key"), key.serialize_pem()))
    };
    let (certificate, key) = pair("server");
    let flags = [
        format!("--cert-file={certificate}"),
        format!("--key-file={key}"),
        format!("--trusted-ca-file={ca}"),
        "--client-cert-auth".to_owned(),
    ];
    let etcd = Etcd::start("https", flags.to_vec());
    let (certificate, key) = pair("client");
    let data = folder.path().join("data");
    let flags =
        ["--etcd-servers", &etcd.url(), "--etcd-cafile", &ca, "--etcd-certfile", &certificate, "--etcd-keyfile", &key];
    let mut server = Apiserver::start(&data, &flags);
    let runtime = runtime();
    let made = runtime.block_on(async {
        let client = server.client().await;
        create(&client, "over-tls").await
    });
    assert!(made.unwrap() > 0);
}

fn large(name: &str) -> ConfigMap {
    let data = serde_json::json!({ "metadata": { "name": name }, "data": { "text": "x".repeat(900_000) } });
    serde_json::from_value(data).unwrap()
}

/// No space by its quota, for real.
pub fn a_full_etcd_refuses_writes_and_comes_back() {
    let etcd = Etcd::start("http", vec!["--quota-backend-bytes=16777216".into()]);
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let mut server = Apiserver::start(folder.path(), &["--etcd-servers", &etcd.url()]);
        let client = server.client().await;
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let mut names: Vec<String> = Vec::new();
        let refused = loop {
            let name = format!("large-{}", names.len());
            match api.create(&PostParams::default(), &large(&name)).await {
                Ok(_) => names.push(name),
                Err(error) => break error,
            }
            assert!(names.len() < 100, "it takes more than it may");
        };
        assert!(matches!(&refused, kube::Error::Api(status) if status.code == 503), "clients try again: {refused:?}");
        let ready = http::Request::get("/readyz").body(Vec::new()).unwrap();
        let told = format!("{:?}", client.request_text(ready).await.unwrap_err());
        assert!(told.contains("[-]etcd-readiness"), "{told}");
        let kubeconfig = folder.path().join("kubeconfig");
        server.write_kubeconfig(&kubeconfig);
        let why = crate::alone::ferry(&["why", "configmap/large-0", "--kubeconfig", text(&kubeconfig)]);
        let said = String::from_utf8_lossy(&why.stdout).into_owned();
        assert!(
            said.contains("the store is full") && said.contains("NOSPACE") && said.contains("defragment"),
            "{said}"
        );
        assert_eq!(why.status.code(), Some(1), "{said}");
        // What is there is served, and can be deleted.
        assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), names.len());
        let gone = names.split_off(names.len() / 2);
        for name in &gone {
            api.delete(name, &Default::default()).await.unwrap();
        }
        let options = EtcdOptions { compaction_interval: None, ..EtcdOptions::new(vec![etcd.url()]) };
        let beside = EtcdStore::connect(options.clone(), &Tasks::new("test")).await.unwrap();
        beside.compact(beside.revision().await.unwrap()).await.unwrap();
        snapshot::defragment(&etcd.url(), None).await.unwrap();
        let members = Members::new(&options).unwrap();
        for (id, alarm) in members.alarms().await.unwrap() {
            assert_eq!(alarm, "NOSPACE");
            members.disarm(id).await.unwrap();
        }
        create(&client, "there-is-space").await.unwrap();
        for name in &names {
            assert_eq!(api.get(name).await.unwrap().data.unwrap()["text"].len(), 900_000, "{name}");
        }
    });
}

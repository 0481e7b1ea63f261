//! The state of a cluster goes from the embedded store to an etcd and back, and nobody who asks for an object can tell.

use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ListParams, PostParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::alone::{Apiserver, Etcd, create, refused, runtime, succeeds, text};
use crate::cluster::until;
use crate::fleet::{Bed, address, refusal, succeed};
use crate::servers::{member, server_list};

const FLAGS: [&str; 2] = ["--pod-network=routes", "--cluster-cidr=10.201.0.0/16"];
const KINDS: &str = "configmaps,secrets,services,serviceaccounts,deployments,roles";
const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: kept}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: kept}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: none, namespace: kept}
spec:
  replicas: 0
  selector: {matchLabels: {app: none}}
  template:
    metadata: {labels: {app: none}}
    spec: {containers: [{name: main, image: 'busybox:1.36'}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: kept}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
"#;

/// Every byte that kubectl shows of what the controllers are done with.
fn objects(bed: &Bed) -> String {
    until("the controllers are done with the namespace", || {
        let deployment: Value =
            serde_json::from_str(&bed.kubectl(&["get", "deployment", "none", "-n", "kept", "-o", "json"])).unwrap();
        let roots = bed.kubectl(&["get", "configmap", "-n", "kept", "-o", "name"]);
        let accounts = bed.kubectl(&["get", "serviceaccount", "-n", "kept", "-o", "name"]);
        let settled = deployment["status"]["observedGeneration"] == 1
            && deployment["status"]["conditions"].as_array().is_some_and(|all| all.len() == 2);
        (settled && roots.contains("kube-root-ca.crt") && accounts.contains("default")).then_some(())
    });
    bed.kubectl(&["get", KINDS, "-n", "kept", "-o", "json"])
}

fn newest(bed: &Bed) -> String {
    let list: Value =
        serde_json::from_str(&bed.kubectl(&["get", "--raw", "/api/v1/namespaces/kept/configmaps"])).unwrap();
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// What a watch tells that goes on from a revision: it has no gap, or is told to begin anew.
fn watched(bed: &Bed, from: &str) -> String {
    let path = format!("/api/v1/namespaces/kept/configmaps?watch=true&timeoutSeconds=2&resourceVersion={from}");
    bed.kubectl(&["get", "--raw", &path])
}

fn down(bed: &Bed) {
    let mut down = bed.ferry("s1");
    succeed(down.arg("down").args(bed.folders("s1")));
}

fn migrate(bed: &Bed, to: &str) -> Command {
    let mut command = bed.ferry("s1");
    command.args(["store", "migrate", "--to", to, "--node-name=s1"]).arg(format!("--node-ip={}", address(0)));
    command.args(bed.folders("s1"));
    command
}

/// Killed while the new etcd is about to start: the cluster is where it was.
fn killed_in_the_middle(bed: &Bed) {
    let slow = bed.path("s1", "slow-etcd");
    std::fs::write(&slow, "#!/bin/sh\n[ \"$1\" = --version ] || sleep 3\nexec etcd \"$@\"\n").unwrap();
    std::fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = migrate(bed, "etcd");
    command.arg("--etcd-binary").arg(&slow).stdout(Stdio::null()).stderr(Stdio::null());
    let mut migrating = command.spawn().unwrap();
    until("the etcd is about to start", || member(bed, "s1"));
    kill_process(Pid::from_child(&migrating), Signal::KILL).unwrap();
    migrating.wait().unwrap();
    let data = bed.path("s1", "data");
    assert!(data.join("migration.json").exists() && data.join("store").exists() && !data.join("server.json").exists());
}

pub fn a_cluster_goes_to_etcd_and_back() {
    let bed = Bed::new(&["s1"]);
    bed.up("s1", &FLAGS);
    bed.apply(OBJECTS);
    bed.kubectl(&["create", "configmap", "first", "-n", "kept", "--from-literal=a=1"]);
    bed.kubectl(&["create", "secret", "generic", "hidden", "-n", "kept", "--from-literal=word=swordfish"]);
    let before = objects(&bed);
    let (from, data) = (newest(&bed), bed.path("s1", "data"));
    bed.kubectl(&["create", "configmap", "later", "-n", "kept"]);
    let whole = objects(&bed);
    assert!(whole.len() > before.len());
    let running = refusal(&migrate(&bed, "etcd").output().unwrap());
    assert!(running.contains("runs (process"), "{running}");
    down(&bed);
    let nothing = refusal(&migrate(&bed, "embedded").output().unwrap());
    assert!(nothing.contains("in the embedded store already"), "{nothing}");

    killed_in_the_middle(&bed);
    let said = succeed(&mut migrate(&bed, "etcd"));
    assert!(said.contains("each checked") && !data.join("store").exists(), "{said}");
    assert!(!data.join("migration.json").exists() && data.join("server.json").exists());
    let kept = |name: &str| {
        std::fs::read_dir(&data).unwrap().flatten().any(|file| file.file_name().to_string_lossy().starts_with(name))
    };
    assert!(kept("store-before-"), "nothing of the source is lost");
    let again = refusal(&migrate(&bed, "etcd").output().unwrap());
    assert!(again.contains("is in etcd already"), "{again}");

    bed.up("s1", &FLAGS);
    assert_eq!(server_list(&bed).lines().count(), 2, "{}", server_list(&bed));
    assert_eq!(objects(&bed), whole, "on etcd");
    let events = watched(&bed, &from);
    assert!(events.contains("\"later\"") || events.contains("410"), "{events}");
    bed.kubectl(&["create", "configmap", "on-etcd", "-n", "kept"]);
    let secret = ["get", "secret", "hidden", "-n", "kept", "-o", "jsonpath={.data.word}"];
    assert_eq!(bed.kubectl(&secret), "c3dvcmRmaXNo");
    let whole = objects(&bed);
    let from: u64 = newest(&bed).parse().unwrap();
    down(&bed);

    let said = succeed(&mut migrate(&bed, "embedded"));
    assert!(said.contains("each checked") && data.join("store").exists(), "{said}");
    assert!(!data.join("server.json").exists() && !data.join("etcd").exists() && kept("etcd-before-"));
    bed.up("s1", &FLAGS);
    assert_eq!(objects(&bed), whole, "back in the embedded store");
    assert_eq!(bed.kubectl(&secret), "c3dvcmRmaXNo");
    bed.kubectl(&["create", "configmap", "last", "-n", "kept"]);
    assert!(newest(&bed).parse::<u64>().unwrap() > from, "revisions never go back");
}

async fn all(client: &kube::Client) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let (maps, secrets) =
        (maps.list(&ListParams::default()).await.unwrap(), secrets.list(&ListParams::default()).await.unwrap());
    json!([maps.items, secrets.items]).to_string()
}

pub fn a_server_goes_to_an_etcd_of_ones_own_and_back() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let (data, run) = (folder.path().join("data"), folder.path().join("run"));
    let (etcd, used) = (Etcd::start("http", Vec::new()), Etcd::start("http", Vec::new()));
    let url = etcd.url();
    let migrate = |to: &'static str, url: &str| {
        let words =
            ["store", "migrate", "--to", to, "--etcd-servers", url, "--data-dir", text(&data), "--run-dir", text(&run)];
        words.map(str::to_owned)
    };
    let succeeds = |given: &[String]| succeeds(&given.iter().map(String::as_str).collect::<Vec<_>>());
    let refused = |given: &[String]| refused(1, &given.iter().map(String::as_str).collect::<Vec<_>>());
    let mut server = Apiserver::start(&data, &[]);
    let before = runtime.block_on(async {
        let client = server.client().await;
        for number in 0..40 {
            create(&client, &format!("c{number}")).await.unwrap();
        }
        let secret = json!({ "metadata": { "name": "hidden" }, "stringData": { "word": "swordfish" } });
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        all(&client).await
    });
    assert!(refused(&migrate("etcd", &url)).contains("in use by another process"));
    server.stop();
    // An etcd that somebody wrote to cannot keep the revisions, and is left as it is.
    let other = folder.path().join("other");
    let mut server = Apiserver::start(&other, &["--etcd-servers", &used.url()]);
    runtime.block_on(server.client());
    server.stop();
    let message = refused(&migrate("etcd", &used.url()));
    assert!(message.contains("it was written to"), "{message}");

    let said = succeeds(&migrate("etcd", &url));
    let keys = data.join("pki/encryption.json");
    let encryption = format!("--encryption-provider-config={}", keys.display());
    assert!(said.contains("each checked") && said.contains(&encryption), "{said}");
    let message = Apiserver::start(&data, &[]).refusal();
    assert!(message.contains("was moved to the etcd at") && message.contains(&url), "{message}");
    let mut server = Apiserver::start(&data, &["--etcd-servers", &url, &encryption]);
    let whole = runtime.block_on(async {
        let client = server.client().await;
        assert_eq!(all(&client).await, before, "on etcd");
        create(&client, "on-etcd").await.unwrap();
        all(&client).await
    });
    server.stop();

    let said = succeeds(&migrate("embedded", &url));
    assert!(said.contains("each checked"), "{said}");
    let message = refused(&migrate("embedded", &url));
    assert!(message.contains("already holds a store"), "{message}");
    let mut server = Apiserver::start(&data, &[]);
    runtime.block_on(async {
        let client = server.client().await;
        assert_eq!(all(&client).await, whole, "back in the embedded store");
        create(&client, "last").await.unwrap();
    });
}

//! Traffic that arrives at any machine of a cluster: joined nodes serve Gateways and Ingresses as the server does, and go on while
//! the server is gone.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use serde_json::{Value, json};

use crate::cluster::{end, until};
use crate::fleet::{Bed, cache, registry_port, succeed};

const HTTP: u16 = 18080;
const TAKEN: u16 = 18081;
const TLS: u16 = 18443;

/// A self-signed certificate for `web.example`, and its key.
fn certificate(folder: &Path, name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["web.example".to_owned()]).unwrap();
    std::fs::write(folder.join(name), made.cert.pem()).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

struct Test {
    bed: Bed,
    folder: tempfile::TempDir,
}

impl Test {
    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.bed.kubectl(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap()
    }

    fn apply(&self, object: &Value) {
        self.bed.apply(&object.to_string());
    }

    fn curl(&self, more: &[&str]) -> Option<String> {
        let mut command = self.bed.inside("s1", "curl");
        let output = command.args(["-sS", "--fail", "--max-time", "5"]).args(more).output().expect("curl runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// What a client gets at a machine, by HTTP.
    fn get(&self, machine: &str, port: u16) -> Option<String> {
        self.curl(&["-H", "Host: web.example", &format!("http://{}:{port}/", self.bed.address_of(machine))])
    }

    /// The same by HTTPS, for a client that trusts one certificate.
    fn get_secure(&self, machine: &str, trusted: &str) -> Option<String> {
        let resolve = format!("web.example:{TLS}:{}", self.bed.address_of(machine));
        let trusted = self.folder.path().join(trusted);
        let url = format!("https://web.example:{TLS}/");
        self.curl(&["--cacert", &trusted.display().to_string(), "--resolve", &resolve, &url])
    }

    fn secret(&self, (certificate, key): &(String, String)) {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "web-tls" }, "type": "kubernetes.io/tls",
            "stringData": { "tls.crt": certificate, "tls.key": key },
        }));
    }

    /// Gateways and routes to a pod that is on the server.
    fn serve(&self) {
        let listener = |name: &str, port: u16| json!({ "name": name, "port": port, "protocol": "HTTP" });
        let secure = json!({
            "name": "tls", "port": TLS, "protocol": "HTTPS", "tls": { "certificateRefs": [{ "name": "web-tls" }] },
        });
        self.apply(&json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": { "name": "web" },
            "spec": {
                "gatewayClassName": "ferry",
                "listeners": [listener("http", HTTP), secure, listener("taken", TAKEN)],
            },
        }));
        self.apply(&json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": { "name": "web" },
            "spec": {
                "parentRefs": [{ "name": "web" }], "hostnames": ["web.example"],
                "rules": [{ "backendRefs": [{ "name": "near", "port": 80 }] }],
            },
        }));
        self.apply(&json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "web" },
            "spec": { "ingressClassName": "ferry", "rules": [{ "host": "web.example", "http": { "paths": [
                { "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "near", "port": { "number": 80 } } } },
            ] } }] },
        }));
    }

    fn gateway_addresses(&self) -> Vec<String> {
        let gateway = self.json(&["get", "gateway", "web"]);
        let addresses = gateway["status"]["addresses"].as_array().cloned().unwrap_or_default();
        addresses.iter().filter_map(|one| Some(one["value"].as_str()?.to_owned())).collect()
    }

    /// What is asked with the credentials of a node: the status.
    fn ask_as(&self, machine: &str, identity: &str, path: &str) -> String {
        let file =
            |end: &str| self.bed.path(machine, "data").join(format!("node-pki/{identity}.{end}")).display().to_string();
        let url = format!("https://{}:{}{path}", self.bed.address_of("s1"), self.bed.port);
        let mut command = self.bed.inside(machine, "curl");
        command.args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "--cert", &file("crt"), "--key", &file("key")]);
        succeed(command.arg(url))
    }

    fn copies(&self) -> Vec<Value> {
        self.json(&["get", "secrets", "-n", "ferry-gateway"])["items"].as_array().cloned().unwrap_or_default()
    }
}

/// By HTTP and TLS through a worker's address to a pod of another machine; certificates change; the server goes and comes back.
pub fn every_node_serves() {
    let bed = Bed::new(&["s1", "n1", "n2"]);
    bed.up("s1", &[]);
    let (server, token) = bed.token();
    // Somebody else has a port of one machine.
    let mut taker = bed.inside("n1", cache().join("registry/usr/bin/docker-registry"));
    taker.arg("serve").arg(cache().join(format!("registry-{}/config.yml", registry_port())));
    taker.env("REGISTRY_HTTP_ADDR", format!("{}:{TAKEN}", bed.address_of("n1")));
    let mut taker = taker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a registry");
    for (machine, more) in [("n1", &[][..]), ("n2", &["--gateway=false"][..])] {
        let mut command = bed.ferry(machine);
        succeed(command.args(["join", &server, &token]).args(bed.node_flags(machine)).args(more));
    }
    let test = Test { bed, folder: tempfile::tempdir().unwrap() };
    let bed = &test.bed;
    bed.run_pod("near", "s1");
    bed.kubectl(&["expose", "pod", "near", "--port=80"]);
    bed.pod_address("near");
    let first = certificate(test.folder.path(), "first");
    test.secret(&first);
    test.serve();

    let [s1, n1] = ["s1", "n1"].map(|machine| bed.address_of(machine));
    until("the Gateway has the addresses of both machines that serve", || {
        (test.gateway_addresses() == [s1.clone(), n1.clone()]).then_some(())
    });
    for machine in ["s1", "n1"] {
        until(&format!("{machine} serves by HTTP"), || (test.get(machine, HTTP)? == "near").then_some(()));
        until(&format!("{machine} serves by TLS"), || (test.get_secure(machine, "first")? == "near").then_some(()));
        until(&format!("{machine} serves the Ingress"), || (test.get(machine, 80)? == "near").then_some(()));
    }
    assert_eq!(test.get("n2", HTTP), None, "that node does not serve");
    let ingress = until("the Ingress has both addresses", || {
        let all = test.json(&["get", "ingress", "web"])["status"]["loadBalancer"]["ingress"].clone();
        (all.as_array()?.len() == 2).then_some(all)
    });
    assert_eq!([&ingress[0]["ip"], &ingress[1]["ip"]], [&s1, &n1]);

    // The port that is taken is so on one machine, and somebody says it.
    let told = until("the listener says which node has not the port", || {
        let gateway = test.json(&["get", "gateway", "web"]);
        let listener = gateway["status"]["listeners"].as_array()?.iter().find(|one| one["name"] == "taken")?.clone();
        let programmed = listener["conditions"].as_array()?.iter().find(|one| one["type"] == "Programmed")?.clone();
        programmed["message"].as_str()?.contains("n1").then_some(programmed)
    });
    assert_eq!(told["status"], "True", "{told}");
    until("an Event says it", || {
        let events = test.json(&["get", "events", "--field-selector", "reason=PortUnavailable"]);
        events["items"].as_array()?.iter().any(|one| one["message"].to_string().contains("n1")).then_some(())
    });
    until("the others serve at it", || (test.get("s1", TAKEN)? == "near").then_some(()));
    until("and the node above it", || (test.get("n1", TAKEN + 8000)? == "near").then_some(()));

    rights(&test);
    let key = rotation(&test);
    let mut again = without_the_server(&test, &key);

    bed.kubectl(&["delete", "gateway", "web"]);
    until("nobody has keys that are not in use", || test.copies().is_empty().then_some(()));
    until("the node does not serve any more", || test.get("n1", HTTP).is_none().then_some(()));
    end(bed.pid("n1"));
    again.wait().unwrap();
    let _ = taker.kill();
    let _ = taker.wait();
}

/// A node's identities read the keys that are in use, and no other Secret.
fn rights(test: &Test) {
    let copies = test.copies();
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert_eq!(copies[0]["metadata"]["annotations"]["gateway.ferry.dev/copy-of"], "Secret default/web-tls");
    let list = "/api/v1/namespaces/ferry-gateway/secrets";
    for (identity, path, status) in [
        ("gateway-client", list, "200"),
        ("gateway-client", "/api/v1/secrets", "403"),
        ("gateway-client", "/api/v1/namespaces/default/secrets", "403"),
        ("gateway-client", "/api/v1/namespaces/default/secrets/web-tls", "403"),
        ("gateway-client", "/api/v1/namespaces/kube-system/secrets", "403"),
        ("gateway-client", "/api/v1/configmaps", "403"),
        ("gateway-client", "/api/v1/pods", "403"),
        ("proxy-client", list, "403"),
        ("kubelet-client", list, "403"),
    ] {
        assert_eq!(test.ask_as("n1", identity, path), status, "{identity} {path}");
    }
    // No certificate in the name of another node, and none where nobody asked for one.
    assert!(!test.bed.path("n2", "data").join("node-pki/gateway-client.key").exists());
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "ferry:node-gateways");
    params.distinguished_name.push(rcgen::DnType::CommonName, "ferry:node-gateway:n1");
    let ask = |name: &str, params: &rcgen::CertificateParams| {
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = base64::engine::general_purpose::STANDARD.encode(pem);
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": name },
            "spec": { "request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"] },
        });
        let node = ["create", "-f", "-", "--as=system:node:n2", "--as-group=system:nodes"];
        let asked = test.bed.try_kubectl(&node, &object.to_string());
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    };
    ask("anothers", &params);
    // The approver looks at one after the other: this one comes later, and is good.
    let mut own = params.clone();
    own.distinguished_name.remove(rcgen::DnType::CommonName);
    own.distinguished_name.push(rcgen::DnType::CommonName, "ferry:node-gateway:n2");
    ask("own", &own);
    until("the node gets its own", || {
        test.json(&["get", "csr", "own"])["status"]["certificate"].is_string().then_some(())
    });
    let anothers = test.json(&["get", "csr", "anothers"]);
    assert!(anothers["status"].as_object().is_none_or(serde_json::Map::is_empty), "{anothers}");
}

/// Gives the new key.
fn rotation(test: &Test) -> String {
    let second = certificate(test.folder.path(), "second");
    test.secret(&second);
    for machine in ["n1", "s1"] {
        until(&format!("{machine} shows the new certificate"), || {
            (test.get_secure(machine, "second")? == "near").then_some(())
        });
        assert_eq!(test.get_secure(machine, "first"), None, "{machine} does not show the old one");
    }
    second.1
}

/// Gives the process of the node that began anew.
fn without_the_server(test: &Test, key: &str) -> Child {
    let bed = &test.bed;
    end(bed.pid("s1"));
    for _ in 0..20 {
        assert_eq!(test.get("n1", HTTP).as_deref(), Some("near"), "the server is gone");
        assert_eq!(test.get_secure("n1", "second").as_deref(), Some("near"));
    }
    assert_eq!(test.get("s1", HTTP), None);
    bed.up("s1", &[]);
    until("the server serves again", || (test.get("s1", HTTP)? == "near").then_some(()));
    assert_eq!(test.get("n1", HTTP).as_deref(), Some("near"));

    // A node that begins anew asks for all of it again: no key of a listener is on its disk.
    end(bed.pid("n1"));
    assert_eq!(test.get("n1", HTTP), None);
    let line = key.lines().nth(1).expect("a line of the key");
    let found =
        Command::new("grep").args(["-rlF", "-e", line]).arg(bed.path("n1", "data")).output().expect("grep runs");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    let mut again = bed.ferry("n1");
    let log = std::fs::File::create(bed.path("n1", "again.log")).unwrap();
    again.args(["node", "run"]).args(bed.node_flags("n1")).stdout(Stdio::null()).stderr(log);
    let again = again.spawn().expect("ferry runs");
    until("the node serves again", || (test.get_secure("n1", "second")? == "near").then_some(()));
    again
}

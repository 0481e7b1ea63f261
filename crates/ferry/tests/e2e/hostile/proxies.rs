//! Where the API server lets itself be sent by what others write: addresses of pods, Services and nodes.

use ferry_tasks::Tasks;
use kube::Client;
use serde_json::{Value, json};

use super::limited::{JSON, MERGE, call, grant, rule};
use crate::Alone;
use crate::alone::{Apiserver, runtime};

pub const ALONE: &[Alone] = &[
    ("hostile::proxies::a_proxy_leads_to_pods_and_nowhere_else", a_proxy_leads_to_pods_and_nowhere_else),
    ("hostile::proxies::a_node_that_lies_about_its_address", a_node_that_lies_about_its_address),
];

/// What listens on this machine for this machine: whoever gets an answer was let in.
async fn local_service(tasks: &Tasks) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn_until_stopped("local service", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 1024];
            let _ = stream.read(&mut asked).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await;
        }
    });
    port
}

/// The address by which others know this machine.
fn own_address() -> String {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("198.51.100.1:9").expect("a way out of this machine");
    socket.local_addr().unwrap().ip().to_string()
}

async fn create_pod(admin: &Client, name: &str, address: &str, host_network: bool, port: u16) {
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": name}, "spec": {
        "hostNetwork": host_network,
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": port}]}],
    }});
    let (code, answer) = call(admin, "POST", pods, &[JSON], &pod).await;
    assert_eq!(code, 201, "{answer}");
    let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
    let (code, answer) = call(admin, "PATCH", &format!("{pods}/{name}/status"), &[MERGE], &status).await;
    assert_eq!(code, 200, "{answer}");
}

async fn create_service(admin: &Client, name: &str, address: &str, target: Value, port: u16) {
    let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    let (code, answer) = call(admin, "POST", "/api/v1/namespaces/default/services", &[JSON], &service).await;
    assert_eq!(code, 201, "{answer}");
    let mut endpoint = json!({"addresses": [address]});
    if !target.is_null() {
        endpoint["targetRef"] = target;
    }
    let slice = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "endpoints": [endpoint], "ports": [{"name": "", "port": port}],
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let (code, answer) = call(admin, "POST", slices, &[JSON], &slice).await;
    assert_eq!(code, 201, "{answer}");
}

fn a_proxy_leads_to_pods_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &["--disable-admission-plugins=ServiceAccount"]);
    runtime().block_on(async {
        let (admin, mallory) = (server.client().await, server.mallory().await);
        grant(&admin, json!([rule("", &["pods/proxy", "services/proxy"], &["get"])])).await;
        let tasks = Tasks::new("test");
        let (port, own) = (local_service(&tasks).await, own_address());
        let pod = |namespace: &str, name: &str| json!({"kind": "Pod", "namespace": namespace, "name": name});
        create_pod(&admin, "loopback", "127.0.0.1", false, port).await;
        create_pod(&admin, "host", &own, false, port).await;
        create_pod(&admin, "honest", &own, true, port).await;
        create_service(&admin, "nobody", &own, Value::Null, port).await;
        create_service(&admin, "elsewhere", &own, pod("kube-system", "honest"), port).await;
        create_service(&admin, "another", &own, pod("default", "loopback"), port).await;
        create_service(&admin, "borrowed", &own, pod("default", "host"), port).await;
        create_service(&admin, "served", &own, pod("default", "honest"), port).await;
        let metadata = port.wrapping_add(1);
        create_pod(&admin, "link", "169.254.169.254", false, metadata).await;
        for (path, want) in [
            (format!("pods/loopback:{port}"), 400),
            (format!("pods/host:{port}"), 400),
            (format!("pods/link:{metadata}"), 400),
            // Other ports of the machine are not the pod's.
            (format!("pods/honest:{}", server.address().1), 400),
            ("services/nobody".to_owned(), 503),
            ("services/elsewhere".to_owned(), 503),
            ("services/another".to_owned(), 503),
            ("services/borrowed".to_owned(), 503),
            (format!("pods/honest:{port}"), 200),
            ("services/served".to_owned(), 200),
        ] {
            let path = format!("/api/v1/namespaces/default/{path}/proxy/");
            let (code, answer) = call(&mallory, "GET", &path, &[], &Value::Null).await;
            assert_eq!((code, answer == "secret"), (want, want == 200), "{path}: {answer}");
        }
    });
}

/// A node writes its own status: here that it is where the API server is.
fn a_node_that_lies_about_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--disable-admission-plugins=ServiceAccount"];
    let mut server = Apiserver::start_at("0.0.0.0", folder.path(), &flags);
    runtime().block_on(async {
        let (admin, mallory) = (server.client().await, server.mallory().await);
        grant(&admin, json!([rule("", &["nodes/proxy", "pods/log"], &["get"])])).await;
        let (own, port) = (own_address(), server.address().1);
        let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
        assert_eq!(call(&admin, "POST", "/api/v1/namespaces/default/secrets", &[JSON], &secret).await.0, 201);
        for (name, address, want, why) in [
            ("loopback", "127.0.0.1", 400, "address not allowed"),
            ("named", "localhost", 400, "address not allowed"),
            ("link", "169.254.169.254", 400, "address not allowed"),
            ("itself", &*own, 503, "not of the kubelet of node"),
        ] {
            let node = json!({"metadata": {"name": name}, "status": {
                "addresses": [{"type": if name == "named" { "Hostname" } else { "InternalIP" }, "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            }});
            let (code, answer) = call(&admin, "POST", "/api/v1/nodes", &[JSON], &node).await;
            assert_eq!(code, 201, "{answer}");
            let path = format!("/api/v1/nodes/{name}/proxy/api/v1/namespaces/default/secrets/s");
            let (code, answer) = call(&mallory, "GET", &path, &[], &Value::Null).await;
            let message = answer["message"].as_str().unwrap_or_default();
            assert!(code == want && message.contains(why), "{name}: {code} {answer}");
            // A pod of that node leads there as little.
            let pod = json!({"metadata": {"name": name}, "spec": {
                "nodeName": name, "containers": [{"name": "c", "image": "i"}],
            }});
            assert_eq!(call(&admin, "POST", "/api/v1/namespaces/default/pods", &[JSON], &pod).await.0, 201);
            let path = format!("/api/v1/namespaces/default/pods/{name}/log");
            let (code, answer) = call(&mallory, "GET", &path, &[], &Value::Null).await;
            assert!(code == want && answer.to_string().contains(why), "{name}: {code} {answer}");
        }
        // At other ports of a node the server is nobody, and of its own machine it is no one's guide.
        let path = format!("/api/v1/nodes/https:itself:{}/proxy/", port.wrapping_add(1));
        assert_eq!(call(&mallory, "GET", &path, &[], &Value::Null).await.0, 400);
        // What the server shows to kubelets opens nothing but kubelets.
        let read = |file: &str| std::fs::read(folder.path().join("pki").join(file)).unwrap();
        let identity = [read("apiserver-kubelet-client.crt"), read("apiserver-kubelet-client.key")].concat();
        let as_kubelet_client = server.client_by_certificate(&identity).await;
        let path = "/api/v1/namespaces/default/secrets";
        let (code, answer) = call(&as_kubelet_client, "GET", path, &[], &Value::Null).await;
        assert_eq!(code, 403, "{answer}");
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let (_, answer) = call(&as_kubelet_client, "POST", path, &[JSON], &review).await;
        assert_eq!(answer["status"]["userInfo"]["username"], "kube-apiserver-kubelet-client");
        assert_eq!(answer["status"]["userInfo"]["groups"], json!(["system:authenticated"]));
        for (resource, want) in [("nodes/proxy", true), ("nodes/log", true), ("secrets", false), ("pods/exec", false)] {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
                "resourceAttributes": {"verb": "create", "resource": resource, "subresource": subresource},
            }});
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            let (_, answer) = call(&as_kubelet_client, "POST", path, &[JSON], &review).await;
            assert_eq!(answer["status"]["allowed"], want, "{resource}/{subresource}: {answer}");
        }
    });
}

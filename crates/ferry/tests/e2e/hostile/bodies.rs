//! Bodies that are small on the wire: what they may take in the server, and that others are served meanwhile.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::future::join_all;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use kube::Client;
use serde_json::{Value, json};

use super::limited::{JSON, call, grant, rule};
use crate::Alone;
use crate::alone::{Apiserver, runtime};

pub const ALONE: &[Alone] = &[
    ("hostile::bodies::a_json_patch_does_not_grow_without_end", a_json_patch_does_not_grow_without_end),
    ("hostile::bodies::yaml_of_somebody_without_rights_stays_small", yaml_of_somebody_without_rights_stays_small),
    ("hostile::bodies::a_million_containers_are_refused_at_once", a_million_containers_are_refused_at_once),
    ("hostile::bodies::long_lists_take_their_length", long_lists_take_their_length),
    (
        "hostile::bodies::a_thousand_patches_of_a_large_object_take_turns",
        a_thousand_patches_of_a_large_object_take_turns,
    ),
    ("hostile::bodies::cbor_is_held_to_the_same", cbor_is_held_to_the_same),
    ("hostile::bodies::a_role_of_very_many_permissions_takes_little", a_role_of_very_many_permissions_takes_little),
];

/// What an attack may add to the memory of the process, at its peak.
const MEGABYTES: u64 = 300;
/// What a bystander waits for an answer but for one time in a hundred: this is a build without optimisation, beside others.
const NOTICED: Duration = Duration::from_millis(500);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// An API server that Mallory attacks with these rights while somebody else reads. Afterwards the process is the same, its memory
/// was bounded, and the reader was served.
fn besieged(flags: &[&str], rules: Value, attack: impl AsyncFnOnce(&Client, &Client)) {
    let folder = tempfile::tempdir().unwrap();
    let plain = "--disable-admission-plugins=ServiceAccount";
    let mut server = Apiserver::start(folder.path(), &[&[plain], flags].concat());
    runtime().block_on(async {
        let (admin, mallory, bystander) = (server.client().await, server.mallory().await, server.client().await);
        grant(&admin, rules).await;
        let id = server.id();
        server.peak_kilobytes();
        let before = server.resident_kilobytes();
        let mut delays = Vec::new();
        {
            let mut attack = pin!(attack(&admin, &mallory));
            loop {
                tokio::select! {
                    () = &mut attack => break,
                    delay = look(&bystander) => delays.push(delay),
                }
            }
        }
        look(&bystander).await;
        assert_eq!(server.id(), id);
        let grown = server.peak_kilobytes().saturating_sub(before) / 1024;
        delays.sort_unstable();
        let slow = delays.get(delays.len() * 99 / 100).copied().unwrap_or_default();
        println!("  {grown} MB, {} reads, one in a hundred took {slow:?}", delays.len());
        assert!(grown < MEGABYTES, "it grew by {grown} MB");
        assert!(slow < NOTICED, "one in a hundred of {} reads took {slow:?}", delays.len());
    });
}

/// One read of somebody else, and how long it took.
async fn look(client: &Client) -> Duration {
    tokio::time::sleep(Duration::from_millis(5)).await;
    let begin = Instant::now();
    let (code, _) = call(client, "GET", "/api/v1/namespaces/default", &[], &Value::Null).await;
    assert_eq!(code, 200);
    begin.elapsed()
}

/// The code of the answer and its body.
async fn send(client: &Client, method: &str, path: &str, kind: &str, body: impl Into<Bytes>) -> (u16, Vec<u8>) {
    try_send(client, method, path, kind, body).await.expect("an answer")
}

/// The same, where the connection may be cut before there is an answer.
async fn try_send(
    client: &Client,
    method: &str,
    path: &str,
    kind: &str,
    body: impl Into<Bytes>,
) -> Option<(u16, Vec<u8>)> {
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let answer = client.send(request.body(body.into().into()).unwrap()).await.ok()?;
    let code = answer.status().as_u16();
    Some((code, answer.into_body().collect().await.ok()?.to_bytes().to_vec()))
}

/// Sends one body several times at once; all must be answered with this code, shortly.
async fn refused(client: &Client, times: usize, method: &str, path: &str, kind: &str, body: String, code: u16) {
    let body = Bytes::from(body);
    for (found, answer) in join_all((0..times).map(|_| send(client, method, path, kind, body.clone()))).await {
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned();
        assert_eq!(found, code, "{method} {path} {kind}: {shown}");
        assert!(answer.len() < 1 << 20, "the answer has {} bytes: {shown}", answer.len());
    }
}

async fn map(admin: &Client, name: &str, data: Value) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    let (code, answer) = call(admin, "POST", MAPS, &[JSON], &object).await;
    assert_eq!(code, 201, "{answer}");
}

fn a_json_patch_does_not_grow_without_end() {
    besieged(&[], json!([rule("", &["configmaps"], &["get", "patch"])]), async |admin, mallory| {
        map(admin, "victim", json!({"a": "b"})).await;
        let victim = format!("{MAPS}/victim");
        // A value into its own deepest leaf: each time twice as deep.
        let mut path = String::from("/a");
        let mut deep = vec![json!({"op": "add", "path": "/a", "value": {}})];
        for _ in 0..16 {
            deep.push(json!({"op": "copy", "from": "/a", "path": format!("{path}/a")}));
            path = format!("{path}{path}");
        }
        // A list into itself: each time twice as long.
        let mut wide = vec![json!({"op": "add", "path": "/l", "value": ["x".repeat(1000)]})];
        wide.extend((0..30).map(|_| json!({"op": "copy", "from": "/l", "path": "/l/-"})));
        // The first item of a long list to its beginning, again and again.
        let mut moved = vec![json!({"op": "add", "path": "/l", "value": vec![0; 300_000]})];
        moved.extend((0..9_000).map(|_| json!({"op": "move", "from": "/l/0", "path": "/l/0"})));
        for (operations, code) in [
            (deep, 422),
            (wide, 422),
            (moved, 422),
            (vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 10_001], 413),
            (vec![json!({"op": "add", "path": "/data", "value": vec![json!({"": 0}); 200_000]})], 413),
        ] {
            refused(mallory, 4, "PATCH", &victim, JSON_PATCH, Value::Array(operations).to_string(), code).await;
        }
        let (code, object) = call(admin, "GET", &victim, &[], &Value::Null).await;
        assert_eq!((code, &object["data"]), (200, &json!({"a": "b"})));
    });
}

fn yaml_of_somebody_without_rights_stays_small() {
    besieged(&[], json!([]), async |_, mallory| {
        let review = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nspec: {nonResourceAttributes: {path: /}}\n";
        let aliases = |name: &str, count: usize| vec![format!("*{name}"); count].join(", ");
        let texts = format!("{review}a: &a {}\nb: [{}]\n", "x".repeat(100_000), aliases("a", 28_000));
        let mut laughs = format!("{review}a0: &a0 [{}]\n", ["x"; 10].join(", "));
        (1..10).for_each(|at| laughs += &format!("a{at}: &a{at} [{}]\n", aliases(&format!("a{}", at - 1), 10)));
        let mut deep = format!("{review}a0: &a0 [x]\n");
        let nested = |inner: String| format!("{}{inner}{}", "[".repeat(90), "]".repeat(90));
        (1..500).for_each(|at| deep += &format!("a{at}: &a{at} {}\n", nested(format!("*a{}", at - 1))));
        for body in [texts, laughs, deep] {
            assert!(body.len() < 250_000);
            refused(mallory, 8, "POST", REVIEWS, YAML, body, 400).await;
        }
        let dense = format!("{review}a: [{}]\n", vec!["{a: b}"; 300_000].join(","));
        refused(mallory, 4, "POST", REVIEWS, YAML, dense, 413).await;
        // Each text with an escape was once looked for from the beginning.
        let escapes = format!("{review}a: [{}]\n", vec![r#""\u0041""#; 200_000].join(","));
        refused(mallory, 2, "POST", REVIEWS, YAML, escapes, 201).await;
    });
}

fn a_million_containers_are_refused_at_once() {
    let pod = |list: &str| format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p"}},"spec":{{{list}}}}}"#);
    let containers = |count: usize| pod(&format!(r#""containers":[{}]"#, vec!["{}"; count].join(",")));
    besieged(&[], json!([rule("", &["pods"], &["create"])]), async |_, mallory| {
        refused(mallory, 4, "POST", PODS, "application/json", containers(900_000), 413).await;
        let lines = format!("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n{}", "  - {}\n".repeat(400_000));
        refused(mallory, 4, "POST", PODS, YAML, lines, 413).await;
        // A message without a byte: two on the wire.
        let spec = [0x12, 0x00].repeat(1_400_000);
        let mut raw = vec![0x12];
        let mut length = spec.len();
        while length >= 0x80 {
            raw.push(length as u8 | 0x80);
            length >>= 7;
        }
        raw.push(length as u8);
        raw.extend(spec);
        let body = Bytes::from(ferry_schema::proto::envelope("v1", "Pod", &raw));
        let answers = join_all((0..4).map(|_| send(mallory, "POST", PODS, PROTOBUF, body.clone()))).await;
        assert!(
            answers.iter().all(|(code, _)| *code == 413),
            "{:?}",
            answers.iter().map(|(code, _)| code).collect::<Vec<_>>()
        );
        // As many as fit are judged; the first errors are told, and how many there are.
        refused(mallory, 4, "POST", PODS, "application/json", containers(30_000), 422).await;
        let (_, answer) = send(mallory, "POST", PODS, "application/json", containers(30_000)).await;
        let status: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(status["details"]["causes"].as_array().map(Vec::len), Some(1000));
        assert!(status["message"].as_str().unwrap().ends_with("more errors]"), "{}", status["message"]);
    });
}

fn long_lists_take_their_length() {
    let rules = json!([rule("", &["pods", "configmaps"], &["get", "list", "create", "patch", "update"])]);
    besieged(&[], rules, async |admin, mallory| {
        // Every two ports that are alike are worth a warning.
        let ports = vec![json!({"containerPort": 80}); 5_000];
        let pod = |name: &str, spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        let alike = pod("alike", json!({"containers": [{"name": "c", "image": "i", "ports": ports}]}));
        let (code, answer) = send(mallory, "POST", PODS, "application/json", alike.to_string()).await;
        assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer[..300]));
        // Of owners that all are controllers, each error shows all.
        let owners: Vec<Value> = (0..10_000)
            .map(|n| json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": n.to_string(), "controller": true}))
            .collect();
        let mut owned = pod("owned", json!({"containers": [{"name": "c", "image": "i"}]}));
        owned["metadata"]["ownerReferences"] = json!(owners);
        refused(mallory, 2, "POST", PODS, "application/json", owned.to_string(), 422).await;
        // Lists that are merged by key or by value, in another order.
        map(admin, "long", json!({})).await;
        let long = format!("{MAPS}/long");
        let names: Vec<String> = (0..20_000).map(|n| format!("example.com/{n}")).collect();
        let mut backwards = names.clone();
        backwards.reverse();
        for (kind, finalizers) in [(MERGE, &names), (STRATEGIC, &backwards), (MERGE, &backwards)] {
            let patch = json!({"metadata": {"finalizers": finalizers}}).to_string();
            let (code, answer) = send(mallory, "PATCH", &long, kind, patch).await;
            assert_eq!(code, 200, "{kind}: {}", String::from_utf8_lossy(&answer[..300]));
        }
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "long", "finalizers": names}});
        let path = format!("{long}?fieldManager=m&force=true");
        let (code, _) = send(mallory, "PATCH", &path, "application/apply-patch+yaml", config.to_string()).await;
        assert_eq!(code, 200);
        // Managers of a client's own making.
        let managers: Vec<Value> = (0..10_000)
            .map(|n| {
                json!({"manager": format!("m{n}"), "operation": "Update", "apiVersion": format!("v{n}"),
                    "time": "2024-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:k{n}"): {}}}})
            })
            .collect();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "managed", "managedFields": managers}});
        let (code, _) = send(mallory, "POST", MAPS, "application/json", object.to_string()).await;
        assert_eq!(code, 201);
        // Selectors as long as an address may be.
        let labels: Vec<String> = (0..6_000).map(|n| format!("%21a{n}")).collect();
        let fields: Vec<String> = (0..2_500).map(|n| format!("metadata.name!=a{n}")).collect();
        for query in [format!("labelSelector={}", labels.join(",")), format!("fieldSelector={}", fields.join(","))] {
            let (code, _) = send(mallory, "GET", &format!("{MAPS}?{query}"), JSON_PATCH, Bytes::new()).await;
            assert_eq!(code, 200);
        }
    });
}

fn a_thousand_patches_of_a_large_object_take_turns() {
    besieged(&[], json!([rule("", &["configmaps"], &["get", "patch"])]), async |admin, mallory| {
        let data = |count: usize| -> Value {
            (0..count).map(|n| (format!("key-{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into()
        };
        map(admin, "large", data(1_200)).await;
        map(admin, "largest", data(40_000)).await;
        for (name, times) in [("largest", 4), ("large", 1_000)] {
            let path = format!("{MAPS}/{name}");
            let patch = |n: usize| json!({"data": {"last": n.to_string()}}).to_string();
            let patches = (0..times).map(|n| try_send(mallory, "PATCH", &path, MERGE, patch(n)));
            // A thousand connections at once, on a busy machine: those whose handshake takes too long are cut off.
            let codes: Vec<u16> = join_all(patches).await.into_iter().flatten().map(|(code, _)| code).collect();
            // Who is told to come back later was not lost.
            assert!(codes.iter().all(|code| matches!(code, 200 | 409 | 429)), "{codes:?}");
            assert!(codes.contains(&200), "{codes:?}");
        }
    });
}

fn cbor_is_held_to_the_same() {
    let gate = "--feature-gates=CBORServingAndStorage=true";
    besieged(&[gate], json!([rule("", &["configmaps"], &["create"])]), async |_, mallory| {
        // Maps with one entry in a list, three bytes each.
        let mut dense = vec![0xd9, 0xd9, 0xf7, 0x9a, 0x00, 0x0f, 0x00, 0x00];
        dense.extend([0xa1, 0x40, 0x00].repeat(0xf_0000));
        let deep = [vec![0xd9, 0xd9, 0xf7], vec![0x81; 1 << 20]].concat();
        for body in [dense, deep] {
            let answers = join_all((0..4).map(|_| send(mallory, "POST", MAPS, "application/cbor", body.clone()))).await;
            assert!(answers.iter().all(|(code, _)| *code == 400), "{answers:?}");
        }
    });
}

/// Four lists of a few kilobytes, multiplied, to be compared with what Mallory holds: it took all memory there is.
fn a_role_of_very_many_permissions_takes_little() {
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    besieged(&[], json!([rule("rbac.authorization.k8s.io", &["roles"], &["create"])]), async |_, mallory| {
        let many = |count: usize| (0..count).map(|n| format!("x{n}")).collect::<Vec<_>>();
        let product = json!([{"apiGroups": many(400), "resources": many(400), "verbs": many(400)}]);
        let short: Vec<Value> = many(20_000)
            .iter()
            .map(|group| json!({"apiGroups": [group], "resources": ["r"], "verbs": ["v"]}))
            .collect();
        for rules in [product, json!(short)] {
            let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "wide"}, "rules": rules});
            refused(mallory, 2, "POST", roles, "application/json", role.to_string(), 403).await;
        }
    });
}

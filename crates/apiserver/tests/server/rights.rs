//! Every resource, verb and subresource of discovery, with each right and without it: what is asked of the authorizers is
//! told by the request alone, and what they refuse does not happen.

use std::sync::Arc;

use ferry_auth::{Attributes, Authorizer, AuthorizerChain, Decision};
use ferry_meta::UserInfo;
use ferry_registry::ResourceTable;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Fixture;

/// What is asked: verb, group, resource with subresource, namespace, name.
type Question = [String; 5];

#[derive(Clone, Debug, Default)]
enum Rights {
    #[default]
    All,
    Only(Vec<Question>),
    AllBut(Question),
}

/// Decides as the test wants, and remembers what it was asked.
#[derive(Default)]
struct Judge {
    rights: Mutex<Rights>,
    asked: Mutex<Vec<Question>>,
}

#[async_trait::async_trait]
impl Authorizer for Judge {
    async fn authorize(&self, a: &Attributes<'_>) -> Decision {
        let resource = [a.resource, a.subresource].join("/");
        let question = [a.verb, a.group, resource.trim_end_matches('/'), a.namespace, a.name].map(str::to_owned);
        let allowed = match &*self.rights.lock() {
            Rights::All => true,
            Rights::Only(these) => these.contains(&question),
            Rights::AllBut(this) => *this != question,
        };
        self.asked.lock().push(question);
        if allowed { Decision::allow() } else { Decision::no_opinion("") }
    }
}

/// One request, and what it needs.
struct Case {
    method: &'static str,
    path: String,
    needs: Question,
}

/// Upstream's rule, from the HTTP method and the shape of the path; nothing of it is read from the resource table.
fn rule(method: &'static str, path: &str, group: &str, resource: &str, namespaced: bool, name: &str) -> Case {
    let verb = match (method, name) {
        ("GET", "") if path.contains("watch=") => "watch",
        ("GET", "") => "list",
        ("GET", _) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", "") => "deletecollection",
        _ => "delete",
    };
    // A Namespace is asked for as if it stood in itself.
    let namespace = match resource.split('/').next() {
        _ if namespaced => "default",
        Some("namespaces") if group.is_empty() => name,
        _ => "",
    };
    Case { method, path: path.to_owned(), needs: [verb, group, resource, namespace, name].map(str::to_owned) }
}

async fn discovered(fixture: &Fixture) -> Vec<(String, Value)> {
    let mut all = vec![("/api/v1".to_owned(), String::new())];
    let (_, groups) = fixture.json("GET", "/apis", &Value::Null).await;
    for group in groups["groups"].as_array().expect("groups") {
        for version in group["versions"].as_array().expect("versions") {
            let name = group["name"].as_str().expect("a name");
            all.push((format!("/apis/{}", version["groupVersion"].as_str().expect("a version")), name.to_owned()));
        }
    }
    let mut lists = Vec::new();
    for (root, group) in all {
        let (code, list) = fixture.json("GET", &root, &Value::Null).await;
        assert_eq!(code, 200, "{root}");
        for resource in list["resources"].as_array().expect("resources") {
            let mut resource = resource.clone();
            resource["group"] = group.clone().into();
            lists.push((root.clone(), resource));
        }
    }
    lists
}

fn cases(root: &str, resource: &Value) -> Vec<Case> {
    let text = |key: &str| resource[key].as_str().unwrap_or_default();
    let (plural, subresource) = text("name").split_once('/').unwrap_or((text("name"), ""));
    let namespaced = resource["namespaced"] == true;
    let scope = if namespaced { "/namespaces/default" } else { "" };
    let collection = format!("{root}{scope}/{plural}");
    let named = format!("{collection}/some");
    let mut all = Vec::new();
    let mut add = |method, path: &str, name| {
        all.push(rule(method, path, text("group"), text("name"), namespaced, name));
    };
    if !subresource.is_empty() {
        let path = format!("{named}/{subresource}");
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            add(method, &path, "some");
        }
        return all;
    }
    for verb in resource["verbs"].as_array().expect("verbs").iter().filter_map(Value::as_str) {
        match verb {
            "list" => add("GET", &collection, ""),
            // A version that cannot be read ends it at once.
            "watch" => add("GET", &format!("{collection}?watch=1&resourceVersion=none"), ""),
            "create" => add("POST", &collection, ""),
            "deletecollection" => add("DELETE", &format!("{collection}?dryRun=All"), ""),
            "get" => add("GET", &named, "some"),
            "update" => add("PUT", &named, "some"),
            "patch" => add("PATCH", &named, "some"),
            "delete" => add("DELETE", &named, "some"),
            other => panic!("{other} of {} has no rule", text("name")),
        }
    }
    all
}

/// Kinds that nobody knew of before are held to the same rules.
async fn define(fixture: &Fixture, plural: &str, kind: &str, scope: &str) {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.rights.example")},
        "spec": {"group": "rights.example", "scope": scope, "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": scale}}]}
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, answer) = fixture.json("POST", path, &definition).await;
    assert_eq!(code, 201, "{answer}");
    loop {
        let (_, list) = fixture.json("GET", "/apis/rights.example/v1", &Value::Null).await;
        let names = list["resources"].as_array().into_iter().flatten().map(|resource| &resource["name"]);
        if names.filter(|name| name.as_str().is_some_and(|name| name.starts_with(plural))).count() == 3 {
            break;
        }
        tokio::task::yield_now().await;
    }
}

struct Court {
    fixture: Fixture,
    judge: Arc<Judge>,
    eve: String,
}

impl Court {
    async fn new() -> Self {
        let judge = Arc::new(Judge::default());
        let (own, mut eve) = (judge.clone(), String::new());
        let fixture = Fixture::with(|config, loopback| {
            config.authorization = Arc::new(AuthorizerChain::new().with("judge", own));
            eve = loopback.issue(UserInfo::new("eve", &[]));
        })
        .await;
        define(&fixture, "gadgets", "Gadget", "Namespaced").await;
        define(&fixture, "continents", "Continent", "Cluster").await;
        Self { fixture, judge, eve }
    }

    /// The answer's code and what was asked on the way.
    async fn ask(&self, rights: Rights, method: &str, path: &str, body: &Value) -> (u16, Vec<Question>, Value) {
        *self.judge.rights.lock() = rights;
        self.judge.asked.lock().clear();
        let kind = if method == "PATCH" { "application/apply-patch+yaml" } else { "application/json" };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (code, answer) = self.fixture.call(&self.eve, method, path, kind, body).await;
        (code, std::mem::take(&mut *self.judge.asked.lock()), answer)
    }
}

#[tokio::test]
async fn every_request_needs_its_right_and_no_other() {
    let court = Court::new().await;
    let mut checked = 0;
    for (root, resource) in discovered(&court.fixture).await {
        for Case { method, path, needs } in cases(&root, &resource) {
            let what = format!("{method} {path}");
            let (code, asked, answer) = court.ask(Rights::AllBut(needs.clone()), method, &path, &Value::Null).await;
            assert_eq!((code, &asked), (403, &vec![needs.clone()]), "{what} with every right but its own: {answer}");
            let (code, asked, answer) = court.ask(Rights::Only(vec![needs.clone()]), method, &path, &Value::Null).await;
            // A session inside a pod is not for those who may only read.
            let session = ["pods/exec", "pods/attach", "pods/portforward"].contains(&&*needs[2]) && method == "GET";
            assert_eq!(code == 403, session, "{what} with its own right alone: {answer}");
            let mut expected = vec![needs.clone()];
            if session {
                let mut create = needs.clone();
                create[0] = "create".into();
                expected.push(create);
            }
            assert_eq!(asked, expected, "{what}");
            let (code, asked, _) = court.ask(Rights::Only(expected.clone()), method, &path, &Value::Null).await;
            assert!(code != 403 && asked == expected, "{what} with all it needs: {code}, {asked:?}");
            checked += 1;
        }
    }
    assert!(checked > 500, "{checked} requests");
    court.fixture.stop().await;
}

/// What can be asked for is told by discovery alone: no row of the table is served without being listed there.
#[tokio::test]
async fn discovery_lists_all_there_is_to_ask_for() {
    let court = Court::new().await;
    let listed: Vec<(String, String)> = discovered(&court.fixture)
        .await
        .into_iter()
        .map(|(root, resource)| (root, resource["name"].as_str().unwrap_or_default().to_owned()))
        .collect();
    for row in ResourceTable::builtin().rows() {
        let root = match &*row.gvk.group {
            "" => format!("/api/{}", row.gvk.version),
            group => format!("/apis/{group}/{}", row.gvk.version),
        };
        let names = row.subresources.iter().map(|subresource| format!("{}/{}", row.plural, subresource.name));
        for name in names.chain([row.plural.to_string()]) {
            assert!(listed.contains(&(root.clone(), name.clone())), "{root} {name}");
        }
    }
    court.fixture.stop().await;
}

/// The other ways to write an address: what they ask for, told by upstream's rule.
fn spellings(root: &str, resource: &Value) -> Vec<Case> {
    let text = |key: &str| resource[key].as_str().unwrap_or_default();
    let (plural, subresource) = text("name").split_once('/').unwrap_or((text("name"), ""));
    let namespaced = resource["namespaced"] == true;
    let scope = if namespaced { "/namespaces/default" } else { "" };
    let collection = format!("{root}{scope}/{plural}");
    let named = format!("{collection}/some");
    let of_itself = plural == "namespaces" && text("group").is_empty();
    let within = if namespaced { "default" } else { "" };
    let within_named = if of_itself { "some" } else { within };
    let mut all = Vec::new();
    let mut add = |method, path: String, verb: &str, namespace: &str, name: &str| {
        let needs = [verb, text("group"), text("name"), namespace, name].map(str::to_owned);
        all.push(Case { method, path, needs });
    };
    // Letters may be escaped, and what follows a subresource is the backend's.
    let escaped = format!("{root}{scope}/%{:02x}{}/some", plural.as_bytes()[0], &plural[1..]);
    if !subresource.is_empty() {
        add("GET", format!("{escaped}/{subresource}"), "get", within_named, "some");
        add("PUT", format!("{named}/{subresource}/and/more"), "update", within_named, "some");
        return all;
    }
    let verbs: Vec<&str> = resource["verbs"].as_array().expect("verbs").iter().filter_map(Value::as_str).collect();
    let (by_name, ended) = ("fieldSelector=metadata.name%3Dsome", "resourceVersion=none");
    if verbs.contains(&"get") {
        add("HEAD", named.clone(), "get", within_named, "some");
        add("GET", format!("{named}/"), "get", within_named, "some");
        add("GET", escaped, "get", within_named, "some");
    }
    if verbs.contains(&"list") {
        add("GET", format!("{collection}?{by_name}"), "list", within, "some");
        add("GET", format!("{collection}?watch=false"), "list", within, "");
    }
    if verbs.contains(&"watch") {
        add("GET", format!("{collection}?watch=true&{by_name}&{ended}"), "watch", within, "some");
        add("GET", format!("{root}/watch{scope}/{plural}?{ended}"), "watch", within, "");
        add("GET", format!("{root}/watch{scope}/{plural}/some?{ended}"), "watch", within_named, "some");
    }
    if verbs.contains(&"deletecollection") {
        add("DELETE", format!("{collection}?dryRun=All&{by_name}"), "deletecollection", within, "");
    }
    if namespaced && verbs.contains(&"list") {
        // Everywhere at once is not the sum of the rights in all namespaces.
        add("GET", format!("{root}/{plural}"), "list", "", "");
        add("GET", format!("{root}/{plural}?watch=1&{ended}"), "watch", "", "");
        add("DELETE", format!("{root}/{plural}"), "deletecollection", "", "");
        add("POST", format!("{root}/{plural}"), "create", "", "");
    }
    all
}

#[tokio::test]
async fn no_spelling_of_an_address_needs_less() {
    let court = Court::new().await;
    let mut checked = 0;
    for (root, resource) in discovered(&court.fixture).await {
        for Case { method, path, needs } in spellings(&root, &resource) {
            let what = format!("{method} {path}");
            let (code, asked, answer) = court.ask(Rights::AllBut(needs.clone()), method, &path, &Value::Null).await;
            assert_eq!((code, &asked), (403, &vec![needs.clone()]), "{what} with every right but its own: {answer}");
            let (_, asked, _) = court.ask(Rights::Only(vec![needs.clone()]), method, &path, &Value::Null).await;
            assert_eq!(asked.first(), Some(&needs), "{what} with its own right alone");
            checked += 1;
        }
    }
    assert!(checked > 500, "{checked} requests");
    court.fixture.stop().await;
}

/// A PUT or an apply of what is not there creates it: for those who may create.
#[tokio::test]
async fn nothing_is_created_without_the_right_to_create() {
    let court = Court::new().await;
    let mut refused = Vec::new();
    for (root, resource) in discovered(&court.fixture).await {
        let text = |key: &str| resource[key].as_str().unwrap_or_default();
        if text("name").contains('/') {
            continue;
        }
        let version = root.trim_start_matches("/apis/").trim_start_matches("/api/");
        let object = json!({"apiVersion": version, "kind": text("kind"), "metadata": {"name": "some"}});
        for case in cases(&root, &resource).into_iter().filter(|case| ["PUT", "PATCH"].contains(&case.method)) {
            let path = format!("{}?fieldManager=eve&dryRun=", case.path);
            let mut create = case.needs.clone();
            create[0] = "create".into();
            for (path, tried) in [(format!("{}?fieldManager=eve", case.path), false), (format!("{path}All"), true)] {
                let rights = Rights::AllBut(create.clone());
                let (code, asked, answer) = court.ask(rights, case.method, &path, &object).await;
                let what = format!("{} {path}: {answer}", case.method);
                // Most kinds are not created by PUT at all.
                if case.method == "PUT" && code == 404 {
                    assert_eq!(asked, std::slice::from_ref(&case.needs), "{what}");
                    continue;
                }
                assert_eq!(code, 403, "{what}");
                assert_eq!(asked, [case.needs.clone(), create.clone()], "{what}");
                let message = answer["message"].as_str().unwrap_or_default();
                assert!(message.contains("\"eve\" cannot create resource"), "{what}");
                if !tried {
                    refused.push(format!("{} {}", case.method, text("name")));
                }
            }
            let (code, _) = court.fixture.json("GET", &case.path, &Value::Null).await;
            assert_eq!(code, 404, "{} is there", case.path);
        }
    }
    assert!(refused.iter().any(|case| case == "PATCH configmaps") && refused.iter().any(|case| case == "PUT leases"));
    assert!(refused.len() > 50, "{refused:?}");
    court.fixture.stop().await;
}

/// Who may write a subresource makes no parent for it.
#[tokio::test]
async fn a_subresource_creates_nothing() {
    let court = Court::new().await;
    for (root, resource) in discovered(&court.fixture).await {
        let name = resource["name"].as_str().unwrap_or_default();
        let Some((plural, subresource)) = name.split_once('/') else { continue };
        let verbs: Vec<&str> = resource["verbs"].as_array().expect("verbs").iter().filter_map(Value::as_str).collect();
        let scope = if resource["namespaced"] == true { "/namespaces/default" } else { "" };
        let parent = format!("{root}{scope}/{plural}/some");
        let version = root.trim_start_matches("/apis/").trim_start_matches("/api/");
        let object = json!({"apiVersion": version, "kind": resource["kind"], "metadata": {"name": "some"}});
        for (verb, method) in [("update", "PUT"), ("patch", "PATCH")] {
            if verbs.contains(&verb) {
                let path = format!("{parent}/{subresource}?fieldManager=eve");
                let (code, _, answer) = court.ask(Rights::All, method, &path, &object).await;
                assert!(code >= 400, "{method} {path}: {code} {answer}");
            }
        }
        let (code, _) = court.fixture.json("GET", &parent, &Value::Null).await;
        assert!(matches!(code, 404 | 405), "{parent}: {code}");
    }
    court.fixture.stop().await;
}

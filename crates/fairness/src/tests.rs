//! Floods, shares, queues: who runs and who waits, shown with requests that end when the test says so.

use super::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use ferry_meta::object::name;
use futures::FutureExt;
use parking_lot::RwLock;
use serde_json::{Value, json};

#[derive(Default)]
struct Objects {
    all: RwLock<BTreeMap<(String, String), Arc<Value>>>,
    version: AtomicU64,
}

impl Objects {
    fn put(&self, resource: &str, object: Value) {
        self.all.write().insert((resource.to_owned(), name(&object).to_owned()), Arc::new(object));
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, resource: &str, name: &str) {
        self.all.write().remove(&(resource.to_owned(), name.to_owned()));
        self.version.fetch_add(1, Ordering::Relaxed);
    }
}

impl ObjectReader for Objects {
    fn get(&self, resource: &GroupResource, _namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.all.read().get(&(resource.resource.clone(), name.to_owned())).cloned()
    }

    fn list(&self, resource: &GroupResource, _namespace: &str) -> Vec<Arc<Value>> {
        self.all.read().iter().filter(|((of, _), _)| *of == resource.resource).map(|(_, o)| o.clone()).collect()
    }

    fn version(&self, _resource: &GroupResource) -> u64 {
        self.version.load(Ordering::Relaxed)
    }
}

fn level(name: &str, shares: u64, lendable: u64, queues: Option<(u64, u64, u64)>) -> Value {
    let response = match queues {
        Some((queues, hand, length)) => json!({
            "type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": length},
        }),
        None => json!({"type": "Reject"}),
    };
    json!({
        "metadata": {"name": name, "uid": format!("{name}-level")},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response,
            "borrowingLimitPercent": if lendable == 0 { json!(0) } else { Value::Null },
        }},
    })
}

fn schema(name: &str, level: &str, precedence: i64, subject: Value, by: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("{name}-schema")},
        "spec": {
            "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level},
            "distinguisherMethod": {"type": by},
            "rules": [{
                "subjects": [subject],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true,
                }],
            }],
        },
    })
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn ask(user: &UserInfo) -> Ask<'_> {
    Ask {
        user,
        verb: "get",
        is_resource: true,
        namespace: "default",
        group: "",
        resource: "pods",
        subresource: "",
        path: "/api/v1/namespaces/default/pods",
        width: 1,
    }
}

/// One seat for `system`, two for `users` with queues, the rest for catch-all.
fn cluster() -> (Arc<Objects>, FlowControl) {
    let objects = Arc::new(Objects::default());
    objects.put(LEVELS, level("system", 10, 0, Some((4, 2, 10))));
    // So many queues that two flows are never dealt the same ones, whatever the hashes of this process.
    objects.put(LEVELS, level("users", 20, 0, Some((10_000, 2, 3))));
    objects.put(LEVELS, level("catch-all", 10, 0, None));
    objects.put(SCHEMAS, schema("nodes", "system", 100, group("system:nodes"), "ByUser"));
    objects.put(SCHEMAS, schema("people", "users", 500, group("people"), "ByUser"));
    let fairness = Fairness::new(objects.clone(), 4).with_patience(Duration::from_secs(3600));
    (objects, FlowControl::Fair(fairness))
}

#[tokio::test]
async fn a_flood_of_one_user_delays_nobody_else() {
    let (_objects, control) = cluster();
    let mallory = UserInfo::new("mallory", &["people"]);
    let alice = UserInfo::new("alice", &["people"]);
    let node = UserInfo::new("system:node:a", &["system:nodes"]);
    let question = ask(&mallory);
    let first = control.enter(&question).await.expect("a seat");
    let second = control.enter(&question).await.expect("a seat");
    // As many as the queues take of one flow; more are refused.
    let mut waiting: Vec<_> = (0..40).map(|_| Box::pin(control.enter(&question))).collect();
    let refused = waiting.iter_mut().filter_map(|w| w.now_or_never()).filter(Result::is_err).count();
    assert_eq!(refused, 34, "a hand of two queues takes three requests each");
    let flow = Flow { schema_uid: "people-schema".into(), level_uid: "users-level".into() };
    assert_eq!(first.flow, Some(flow));

    // The system is not held up, nor are administrators.
    let node_question = ask(&node);
    let system = control.enter(&node_question).now_or_never().expect("at once").expect("a seat");
    assert_eq!(system.flow.as_ref().expect("a flow").level_uid, "system-level".into());
    let root = UserInfo::new("root", &["system:masters"]);
    let root_question = ask(&root);
    let mut all = Vec::new();
    for _ in 0..100 {
        all.push(control.enter(&root_question).now_or_never().expect("at once").expect("a seat"));
    }
    drop((system, all));

    // Another user's first request is next but one at most, whatever waits before it.
    let alice_question = ask(&alice);
    let mut hers = Box::pin(control.enter(&alice_question));
    assert!(hers.as_mut().now_or_never().is_none());
    drop(first);
    drop(second);
    assert!(hers.as_mut().now_or_never().expect("served").is_ok());
}

#[tokio::test]
async fn who_leaves_a_queue_leaves_nothing_behind() {
    let (_objects, control) = cluster();
    let FlowControl::Fair(fairness) = &control else { panic!("fair") };
    let bob = UserInfo::new("bob", &["people"]);
    let question = ask(&bob);
    let seats = (control.enter(&question).await.expect("a seat"), control.enter(&question).await.expect("a seat"));
    let mut waiting = Box::pin(control.enter(&question));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert!(fairness.levels().contains(&("users".into(), 2, 1)));
    drop(waiting);
    assert!(fairness.levels().contains(&("users".into(), 2, 0)));
    // Granted, and dropped before it was seen.
    let mut waiting = Box::pin(control.enter(&question));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(seats);
    assert!(fairness.levels().contains(&("users".into(), 1, 0)));
    drop(waiting);
    assert!(fairness.levels().iter().all(|(_, in_use, waiting)| (*in_use, *waiting) == (0, 0)));
}

/// What the metrics show of a schema: who runs, who waits, and why others did not run.
#[tokio::test]
async fn requests_are_counted_by_schema() {
    let (_objects, control) = cluster();
    let FlowControl::Fair(fairness) = &control else { panic!("fair") };
    let bob = UserInfo::new("bob", &["people"]);
    let question = ask(&bob);
    let seats = (control.enter(&question).await.expect("a seat"), control.enter(&question).await.expect("a seat"));
    let mut waiting = Box::pin(control.enter(&question));
    assert!(waiting.as_mut().now_or_never().is_none());
    let now = || fairness.flows().into_iter().find(|flow| flow.level == "users").expect("a flow");
    let counts = |flow: &FlowNow| (flow.waiting, flow.running, flow.seats, flow.dispatched, flow.refused.clone());
    assert_eq!(counts(&now()), (1, 2, 2, 2, vec![]));
    drop(waiting);
    assert_eq!(counts(&now()), (0, 2, 2, 2, vec![(Refusal::Cancelled, 1)]));
    drop(seats);
    assert_eq!(counts(&now()), (0, 0, 0, 2, vec![(Refusal::Cancelled, 1)]));
    let limits = fairness.now().into_iter().find(|level| level.name == "users").expect("a level").limits;
    assert_eq!((limits.nominal, limits.lower, limits.upper, limits.current), (2, 2, 2, 2));
}

#[tokio::test]
async fn lent_seats_come_back() {
    let objects = Arc::new(Objects::default());
    objects.put(LEVELS, level("low", 10, 50, Some((8, 2, 50))));
    objects.put(LEVELS, level("high", 10, 50, Some((8, 2, 50))));
    objects.put(LEVELS, level("catch-all", 0, 0, None));
    objects.put(SCHEMAS, schema("low", "low", 100, group("low"), "ByUser"));
    objects.put(SCHEMAS, schema("high", "high", 100, group("high"), "ByUser"));
    let control = FlowControl::Fair(Fairness::new(objects, 20));
    let (low, high) = (UserInfo::new("l", &["low"]), UserInfo::new("h", &["high"]));
    let (low_ask, high_ask) = (ask(&low), ask(&high));
    let mut running = Vec::new();
    while let Some(Ok(permit)) = control.enter(&low_ask).now_or_never() {
        running.push(permit);
    }
    // Its own ten, and the five that the other level lends.
    assert_eq!(running.len(), 15);
    let mut waits = Box::pin(control.enter(&low_ask));
    assert!(waits.as_mut().now_or_never().is_none());
    let mut guaranteed = Vec::new();
    while let Some(Ok(permit)) = control.enter(&high_ask).now_or_never() {
        guaranteed.push(permit);
    }
    assert_eq!(guaranteed.len(), 5);
    // The next seat that comes free goes to the level below its share.
    let mut first = Box::pin(control.enter(&high_ask));
    assert!(first.as_mut().now_or_never().is_none());
    running.pop();
    let _served = first.as_mut().now_or_never().expect("served").expect("a seat");
    assert!(waits.as_mut().now_or_never().is_none());
}

#[tokio::test]
async fn changes_are_seen_by_the_next_request() {
    let (objects, control) = cluster();
    let bob = UserInfo::new("bob", &["people"]);
    let question = ask(&bob);
    let of = |permit: Permit| permit.flow.expect("a flow").schema_uid;
    assert_eq!(of(control.enter(&question).await.expect("a seat")), "people-schema".into());
    objects.put(SCHEMAS, schema("bob", "system", 400, json!({"kind": "User", "user": {"name": "bob"}}), "ByUser"));
    assert_eq!(of(control.enter(&question).await.expect("a seat")), "bob-schema".into());
    // Without its level a schema does not count, and its status says so.
    objects.remove(LEVELS, "system");
    assert_eq!(of(control.enter(&question).await.expect("a seat")), "people-schema".into());
    let wrong = wanted_conditions(&*objects);
    let bobs = wrong.iter().find(|(name, _)| name == "bob").expect("a condition");
    assert_eq!((&bobs.1["status"], &bobs.1["reason"]), (&json!("True"), &json!("NotFound")));
}

#[tokio::test]
async fn without_fairness_requests_are_counted() {
    let control = FlowControl::InFlight { reading: Count::new(1), mutating: Count::new(0) };
    let (bob, root) = (UserInfo::new("bob", &[]), UserInfo::new("root", &["system:masters"]));
    let first = control.enter(&ask(&bob)).await.expect("a place");
    assert_eq!(control.enter(&ask(&bob)).await.err().expect("busy").retry_after_seconds, 1);
    assert!(control.enter(&ask(&root)).await.is_ok());
    assert!(control.enter(&Ask { verb: "create", ..ask(&bob) }).await.is_ok());
    drop(first);
    assert!(control.enter(&ask(&bob)).await.is_ok());
}

#[test]
fn requests_find_their_schemas() {
    let (objects, _) = cluster();
    objects.put(
        SCHEMAS,
        json!({
            "metadata": {"name": "special", "uid": "special"},
            "spec": {
                "matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "system"},
                "rules": [
                    {"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "ops", "name": "*"}}],
                     "resourceRules": [{"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"],
                                        "namespaces": ["a"]}]},
                    {"subjects": [group("*")], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/live/*"]}]},
                ],
            },
        }),
    );
    let seats = Seats::new(10);
    let schemas = Schemas::read(&*objects, &seats, &Tallies::default());
    let account = UserInfo::service_account("ops", "x", "");
    let other = UserInfo::service_account("dev", "x", "");
    let base = Ask { group: "apps", resource: "deployments", namespace: "a", ..ask(&account) };
    let path = |path: &'static str| Ask { is_resource: false, path, ..ask(&other) };
    for (question, special) in [
        (Ask { ..base }, true),
        (Ask { subresource: "scale", ..base }, true),
        (Ask { subresource: "status", ..base }, false),
        (Ask { namespace: "b", ..base }, false),
        (Ask { namespace: "", ..base }, false),
        (Ask { verb: "list", ..base }, false),
        (Ask { user: &other, ..base }, false),
        (path("/healthz"), true),
        (path("/healthz/x"), false),
        (path("/live/x"), true),
        (path("/livez"), false),
    ] {
        assert_eq!(&*schemas.find(&question).uid == "special", special, "{} {}", question.verb, question.path);
    }
}

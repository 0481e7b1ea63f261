//! What a request's turn costs where nobody else waits: a JSON line of microseconds for each request.
//!
//! `cargo bench -p ferry-fairness --bench fairness`

use std::sync::Arc;
use std::time::Instant;

use ferry_fairness::{Ask, Fairness, FlowControl};
use ferry_meta::{GroupResource, ObjectReader, UserInfo};
use serde_json::{Value, json};

const ROUNDS: u32 = 200_000;

/// Twelve schemas that do not fit before the one that does, as in a cluster as it comes.
struct Schemas(Vec<Arc<Value>>);

impl ObjectReader for Schemas {
    fn get(&self, _resource: &GroupResource, _namespace: &str, _name: &str) -> Option<Arc<Value>> {
        None
    }

    fn list(&self, resource: &GroupResource, _namespace: &str) -> Vec<Arc<Value>> {
        if resource.resource == ferry_fairness::SCHEMAS { self.0.clone() } else { Vec::new() }
    }

    fn version(&self, _resource: &GroupResource) -> u64 {
        1
    }
}

fn main() {
    let everything =
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}]);
    let schemas = (0..13).map(|number| {
        let group = if number == 12 { "people".to_owned() } else { format!("group{number}") };
        Arc::new(json!({
            "metadata": {"name": format!("s{number}"), "uid": "u"},
            "spec": {
                "matchingPrecedence": 100 + number, "priorityLevelConfiguration": {"name": "catch-all"},
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{"subjects": [{"kind": "Group", "group": {"name": group}}], "resourceRules": everything}],
            },
        }))
    });
    let control = FlowControl::Fair(Fairness::new(Arc::new(Schemas(schemas.collect())), 600));
    let user = UserInfo::new("alice", &["devs", "people", "system:authenticated"]);
    let ask = Ask {
        user: &user,
        verb: "get",
        is_resource: true,
        namespace: "default",
        group: "",
        resource: "pods",
        subresource: "",
        path: "/api/v1/namespaces/default/pods/p",
        width: 1,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            drop(control.enter(&ask).await.expect("a seat"));
        }
        let micros = begin.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
        println!(
            "{}",
            json!({"what": "priority and fairness, nobody waits", "us": (micros * 1000.0).round() / 1000.0})
        );
    });
}

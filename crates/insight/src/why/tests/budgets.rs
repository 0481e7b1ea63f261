//! Disruption budgets, and drains that they hold up.

use serde_json::{Value, json};

use super::{Reason, Situation, check_all, conditions, findings, merge, node, ready_pod, world};
use crate::gather::{ALL_BUDGETS, ALL_PODS};

fn budget(name: &str, selector: Value) -> Value {
    json!({
        "kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": { "name": name, "namespace": "d", "generation": 1 },
        "spec": { "maxUnavailable": 1, "selector": selector },
        "status": { "observedGeneration": 1, "disruptionsAllowed": 1, "expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 1 },
    })
}

#[test]
fn budgets() {
    let web = json!({ "matchLabels": { "app": "web" } });
    let (a, b) = (budget("a", web.clone()), budget("b", web.clone()));
    let none = |selector: Value| {
        let mut one = budget("a", selector);
        merge(&mut one, &json!({ "status": { "disruptionsAllowed": 0, "expectedPods": 0, "currentHealthy": 0 } }));
        one
    };
    let mut failed = none(web.clone());
    merge(
        &mut failed,
        &json!({ "status": { "conditions": [{ "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "found no controller ref for pod \"p\"" }] } }),
    );
    let gold = json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["gold"] }] });
    let rows: Vec<Situation<'_>> = vec![
        (
            "two for one pod",
            world(a.clone(), &[("pods", json!([ready_pod()])), ("poddisruptionbudgets", json!([a, b]))]),
            Reason::BudgetsOverlap,
            &["as p, are selected by the PodDisruptionBudget b too", "kubectl delete -n d pdb/a"],
        ),
        (
            "expressions",
            world(none(gold), &[("pods", json!([ready_pod()]))]),
            Reason::BudgetSelectsNothing,
            &["its selector tier in (gold) selects no pod"],
        ),
        (
            "no selector",
            world(none(Value::Null), &[("pods", json!([ready_pod()]))]),
            Reason::BudgetSelectsNothing,
            &["it has no selector, and so selects no pod"],
        ),
        (
            "pods of nobody",
            world(failed, &[("pods", json!([ready_pod()]))]),
            Reason::BudgetSync,
            &["found no controller ref", "minAvailable with a number"],
        ),
    ];
    check_all(&rows);
    let other = budget("b", json!({ "matchLabels": { "app": "db" } }));
    let apart = world(
        budget("a", web.clone()),
        &[("pods", json!([ready_pod()])), ("poddisruptionbudgets", json!([budget("a", web), other]))],
    );
    assert_eq!(findings(&apart), []);
}

#[test]
fn two_budgets_stop_a_drain() {
    let web = json!({ "matchLabels": { "app": "web" } });
    let mut cordoned = node("n", "True");
    merge(
        &mut cordoned,
        &json!({ "spec": { "unschedulable": true }, "status": { "conditions": conditions(&[("Ready", "True")]) } }),
    );
    let lists = [(ALL_PODS, json!([ready_pod()])), (ALL_BUDGETS, json!([budget("a", web.clone()), budget("b", web)]))];
    let rows: Vec<Situation<'_>> = vec![(
        "drain",
        world(cordoned, &lists),
        Reason::DrainBlocked,
        &["two PodDisruptionBudgets select the pod p in d, a and b", "ferry why -n d pdb/a"],
    )];
    check_all(&rows);
}

use serde_json::json;

use super::*;

/// Both readings of a spec agree.
fn check(spec: &Value, expected: QosClass) {
    assert_eq!(QosClass::of_json(spec), expected, "{spec}");
    let typed: PodSpec = serde_json::from_value(spec.clone()).expect("a spec");
    assert_eq!(QosClass::of(&typed), expected, "{spec}");
}

fn one(resources: &Value) -> Value {
    json!({"containers": [{"name": "a", "resources": resources}]})
}

#[test]
fn classes_follow_requests_and_limits_of_a_container() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    let full = json!({"cpu": "1", "memory": "1Gi"});
    for (resources, expected) in [
        (json!({}), BestEffort),
        (json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}), BestEffort),
        (json!({"requests": {"cpu": "0"}}), BestEffort),
        (json!({"requests": {"cpu": "1"}}), Burstable),
        (json!({"limits": {"memory": "1Gi"}}), Burstable),
        (json!({"limits": full}), Guaranteed),
        (json!({"limits": full, "requests": {"cpu": "1000m", "memory": "1024Mi"}}), Guaranteed),
        (json!({"limits": full, "requests": {"cpu": "500m"}}), Burstable),
        // A request of nothing is a request, and less than the limit.
        (json!({"limits": full, "requests": {"cpu": "0", "memory": "1Gi"}}), Burstable),
        (json!({"limits": {"cpu": "0", "memory": "1Gi"}}), Burstable),
    ] {
        check(&one(&resources), expected);
    }
}

#[test]
fn every_container_counts_and_the_pod_before_them() {
    let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let container = |resources: &Value| json!({"name": "c", "resources": resources});
    let both = |first: &Value, second: &Value| json!({"containers": [container(first)], "initContainers": [container(second)]});
    check(&both(&full, &full), QosClass::Guaranteed);
    check(&both(&full, &json!({})), QosClass::Burstable);
    check(&both(&json!({}), &json!({})), QosClass::BestEffort);
    let with = |pod: Value, of: &Value| json!({"resources": pod, "containers": [container(of)]});
    check(&with(full.clone(), &json!({})), QosClass::Guaranteed);
    check(&with(json!({"requests": {"cpu": "1"}}), &full), QosClass::Burstable);
    // Amounts that a pod cannot have as a whole leave it to the containers.
    check(&with(json!({"requests": {"ephemeral-storage": "1Gi"}}), &full), QosClass::Guaranteed);
    check(&json!({"containers": []}), QosClass::BestEffort);
}

#[test]
fn names_are_read_back() {
    for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
        assert_eq!(QosClass::named(class.as_str()), Some(class));
    }
    assert_eq!(QosClass::named("Best"), None);
}

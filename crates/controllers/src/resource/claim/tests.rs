//! Tests of how claims are made and reserved.

use super::*;

#[test]
fn claims_are_made_from_templates() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "p", "uid": "u" },
        "spec": { "containers": [], "resourceClaims": [
            { "name": "gpu", "resourceClaimTemplateName": "one-gpu" }, { "name": "shared", "resourceClaimName": "there" },
        ] },
        "status": { "resourceClaimStatuses": [{ "name": "gpu", "resourceClaimName": "p-gpu-x" }] },
    }))
    .expect("a pod");
    let template: ResourceClaimTemplate = serde_json::from_value(json!({
        "metadata": { "name": "one-gpu" }, "spec": { "metadata": { "labels": { "a": "b" } }, "spec": { "devices": {} } },
    }))
    .expect("a template");
    let (wanted, name) = templated(&pod).next().expect("a claim");
    assert_eq!((name, templated(&pod).count()), ("one-gpu", 1));
    let made = new_claim(&pod, wanted, &template);
    assert_eq!(made.metadata.generate_name.as_deref(), Some("p-gpu-"));
    assert_eq!((made.annotations()[POD_CLAIM].as_str(), made.labels()["a"].as_str()), ("gpu", "b"));
    assert_eq!((told(&pod, "gpu"), told(&pod, "shared")), (Some("p-gpu-x"), None));
    let mut long = pod.clone();
    long.metadata.name = Some("x".repeat(100));
    let name = new_claim(&long, wanted, &template).metadata.generate_name.expect("a name");
    assert!(name.len() <= LONGEST_PREFIX + 1 && name.starts_with("xxx") && name.ends_with("-g"), "{name}");
}

#[test]
fn what_is_allocated_is_reserved_once() {
    let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "p", "uid": "u" } })).expect("a pod");
    let claim = |status: serde_json::Value| -> ResourceClaim {
        serde_json::from_value(json!({ "metadata": { "name": "c" }, "spec": {}, "status": status })).expect("a claim")
    };
    assert_eq!(reserved_for(&claim(json!({})), &pod), None, "nobody has devices yet");
    let reserved = reserved_for(&claim(json!({ "allocation": {} })), &pod).expect("a change");
    let list = reserved.status.as_ref().and_then(|status| status.reserved_for.clone()).expect("a list");
    assert_eq!((list[0].resource.as_str(), list[0].uid.as_str()), ("pods", "u"));
    assert_eq!(reserved_for(&reserved, &pod), None);
    let others: Vec<_> =
        (0..MOST_CONSUMERS).map(|n| json!({ "resource": "pods", "name": "x", "uid": n.to_string() })).collect();
    assert_eq!(reserved_for(&claim(json!({ "allocation": {}, "reservedFor": others })), &pod), None);
}

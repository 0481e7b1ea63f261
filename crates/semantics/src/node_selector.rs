//! Which nodes a pod or a volume may be on by their labels and names: node selectors and required node affinity.

use k8s_openapi::api::core::v1::{Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

/// The node has the labels the pod asks for.
pub fn matches(spec: &PodSpec, node: &Node) -> bool {
    let has = |(key, value): (&String, &String)| label(node, key) == Some(value.as_str());
    let selected = spec.node_selector.iter().flatten().all(has);
    selected && affinity_matches(spec.affinity.as_ref(), node)
}

fn affinity_matches(affinity: Option<&Affinity>, node: &Node) -> bool {
    let required = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|required| selects(required, node))
}

/// Any of the selector's terms matches.
pub fn selects(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node))
}

/// A term without requirements matches nothing.
fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |requirement: &NodeSelectorRequirement| satisfies(requirement, label(node, &requirement.key));
    let field = |requirement: &NodeSelectorRequirement| {
        requirement.key == "metadata.name" && satisfies(requirement, node.metadata.name.as_deref())
    };
    expressions.iter().all(label) && fields.iter().all(field)
}

fn satisfies(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || value.is_some_and(|value| values.iter().any(|known| known == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let bound = || number(values.first().map(String::as_str));
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => matches!((number(value), bound()), (Some(value), Some(bound)) if value > bound),
        "Lt" => matches!((number(value), bound()), (Some(value), Some(bound)) if value < bound),
        _ => false,
    }
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, expected: bool) {
        let node: Node =
            serde_json::from_value(json!({ "metadata": { "name": "n", "labels": { "a": "1", "size": "7" } } }))
                .expect("a node");
        let mut full = json!({ "containers": [] });
        full.as_object_mut().expect("a map").extend(spec.as_object().cloned().expect("a map"));
        let parsed: PodSpec = serde_json::from_value(full).expect("a spec");
        assert_eq!(matches(&parsed, &node), expected, "{spec}");
    }

    fn term(requirement: Value) -> Value {
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [requirement],
        } } } })
    }

    #[test]
    fn selectors_and_affinity() {
        check(json!({}), true);
        check(json!({ "nodeSelector": { "a": "1" } }), true);
        check(json!({ "nodeSelector": { "a": "2" } }), false);
        check(term(json!({})), false);
        check(term(json!({ "matchExpressions": [{ "key": "size", "operator": "Gt", "values": ["6"] }] })), true);
        check(term(json!({ "matchExpressions": [{ "key": "size", "operator": "Lt", "values": ["7"] }] })), false);
        check(term(json!({ "matchExpressions": [{ "key": "b", "operator": "NotIn", "values": ["x"] }] })), true);
        check(term(json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] })), true);
        check(term(json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["m"] }] })), false);
    }
}

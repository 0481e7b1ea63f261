//! `nodeAffinity` in words, and the nodes that it names.

use ferry_meta::object;
use serde_json::Value;

const TERMS: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// What is asked for: the terms, of which one is enough.
pub(super) fn text(pod: &Value) -> String {
    of_terms(object::items(pod, TERMS))
}

/// Terms of which one is enough.
pub(super) fn of_terms(terms: &[Value]) -> String {
    let terms: Vec<String> = terms
        .iter()
        .map(|term| {
            let all = ["/matchExpressions", "/matchFields"].into_iter().flat_map(|list| object::items(term, list));
            all.map(requirement).collect::<Vec<_>>().join(" and ")
        })
        .collect();
    terms.join(", or ")
}

fn requirement(one: &Value) -> String {
    let values: Vec<&str> = object::items(one, "/values").iter().filter_map(Value::as_str).collect();
    let (key, values) = (object::text(one, "/key"), values.join(", "));
    match object::text(one, "/operator") {
        "In" => format!("{key}={values}"),
        "NotIn" => format!("{key} other than {values}"),
        "Exists" => format!("the label {key}"),
        "DoesNotExist" => format!("no label {key}"),
        "Gt" => format!("{key} greater than {values}"),
        "Lt" => format!("{key} less than {values}"),
        other => format!("{key} {other} {values}"),
    }
}

/// The labels of a node that the only term forbids, where the node is what is asked for but for these.
pub(super) fn unwanted(pod: &Value, node: &Value) -> Vec<String> {
    let [term] = object::items(pod, TERMS) else { return Vec::new() };
    if !object::items(term, "/matchFields").is_empty() {
        return Vec::new();
    }
    let has = |one: &Value| object::labels(node).contains_key(object::text(one, "/key"));
    let (forbid, others): (Vec<&Value>, Vec<&Value>) = object::items(term, "/matchExpressions")
        .iter()
        .partition(|one| object::text(one, "/operator") == "DoesNotExist");
    // Of the other requirements the simple ones are enough to know.
    let kept = |one: &&Value| {
        let value = object::labels(node).get(object::text(one, "/key"));
        match object::text(one, "/operator") {
            "Exists" => value.is_some(),
            "In" => value.is_some_and(|value| object::items(one, "/values").contains(value)),
            _ => false,
        }
    };
    if !others.iter().all(kept) {
        return Vec::new();
    }
    forbid.into_iter().filter(|one| has(one)).map(|one| object::text(one, "/key").to_owned()).collect()
}

/// The nodes that it names, where every term does. Empty: it names none.
pub(super) fn names(pod: &Value) -> Vec<&str> {
    let of_term = |term: &'_ Value| -> Option<Vec<String>> {
        let field = object::items(term, "/matchFields")
            .iter()
            .find(|field| object::text(field, "/key") == "metadata.name" && object::text(field, "/operator") == "In")?;
        Some(object::items(field, "/values").iter().filter_map(Value::as_str).map(str::to_owned).collect())
    };
    let terms = object::items(pod, TERMS);
    if terms.iter().any(|term| of_term(term).is_none()) {
        return Vec::new();
    }
    let fields = terms.iter().flat_map(|term| object::items(term, "/matchFields"));
    fields.flat_map(|field| object::items(field, "/values")).filter_map(Value::as_str).collect()
}

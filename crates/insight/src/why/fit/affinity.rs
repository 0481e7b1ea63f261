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

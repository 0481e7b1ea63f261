//! The rules of affinity, spreading and tolerations.

use std::collections::{HashMap, HashSet};

use ferry_meta::{FieldError, FieldErrors, names};
use ferry_semantics::taints;

use crate::check;
use crate::cursor::{Cursor, Report};

pub fn affinity(errors: &mut FieldErrors, affinity: &Cursor<'_>) {
    let node = affinity.get("nodeAffinity");
    let required = node.get("requiredDuringSchedulingIgnoredDuringExecution");
    if required.exists() {
        node_selector(errors, &required);
    }
    for term in node.items("preferredDuringSchedulingIgnoredDuringExecution") {
        weight(errors, &term);
        node_selector_term(errors, &term.get("preference"), false);
    }
    for pods in ["podAffinity", "podAntiAffinity"].map(|key| affinity.get(key)) {
        for term in pods.items("requiredDuringSchedulingIgnoredDuringExecution") {
            pod_term(errors, &term);
        }
        for term in pods.items("preferredDuringSchedulingIgnoredDuringExecution") {
            weight(errors, &term);
            pod_term(errors, &term.get("podAffinityTerm"));
        }
    }
}

fn weight(errors: &mut FieldErrors, term: &Cursor<'_>) {
    let weight = term.number("weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(term.at("weight"), weight, "must be in the range 1-100");
    }
}

pub fn node_selector(errors: &mut FieldErrors, selector: &Cursor<'_>) {
    let terms = selector.items("nodeSelectorTerms");
    if terms.is_empty() {
        return errors.required(selector.at("nodeSelectorTerms"), "must have at least one node selector term");
    }
    for term in terms {
        node_selector_term(errors, &term, true);
    }
}

fn node_selector_term(errors: &mut FieldErrors, term: &Cursor<'_>, check_values: bool) {
    for requirement in term.items("matchExpressions") {
        let values = requirement.array("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(requirement.at("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(requirement.at("values"), detail);
            }
            "Gt" | "Lt" if values.len() != 1 => {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.required(requirement.at("values"), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.invalid(requirement.at("operator"), other, "not a valid selector operator"),
        }
        errors.reasons(requirement.at("key"), requirement.text("key"), names::label_key(requirement.text("key")));
        if check_values {
            for value in requirement.items("values") {
                errors.reasons(value.path.clone(), value.as_text(), names::label_value(value.as_text()));
            }
        }
    }
    for requirement in term.items("matchFields") {
        match requirement.text("operator") {
            "In" | "NotIn" if requirement.array("values").len() != 1 => {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(requirement.at("values"), detail);
            }
            "In" | "NotIn" => {}
            other => errors.invalid(requirement.at("operator"), other, "not a valid selector operator"),
        }
        if requirement.text("key") == "metadata.name" {
            for value in requirement.items("values") {
                errors.reasons(value.path.clone(), value.as_text(), names::dns1123_subdomain(value.as_text()));
            }
        } else {
            errors.invalid(requirement.at("key"), requirement.text("key"), "not a valid field selector key");
        }
    }
}

fn pod_term(errors: &mut FieldErrors, term: &Cursor<'_>) {
    check::label_selector(errors, &term.get("labelSelector"));
    check::label_selector(errors, &term.get("namespaceSelector"));
    for namespace in term.texts("namespaces") {
        errors.reasons(term.at("namespace"), namespace, names::dns1123_label(namespace));
    }
    label_keys(errors, term);
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.required(term.at("topologyKey"), "can not be empty");
    }
    errors.reasons(term.at("topologyKey"), key, names::label_key(key));
}

/// `matchLabelKeys` and `mismatchLabelKeys` need a selector to add to, and must not contradict it or each other.
fn label_keys(errors: &mut FieldErrors, term: &Cursor<'_>) {
    let selector = term.get("labelSelector");
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        if term.array(list).is_empty() {
            continue;
        }
        if !selector.exists() {
            errors.forbidden(term.at(list), "must not be specified when labelSelector is not set");
            continue;
        }
        for key in term.items(list) {
            errors.reasons(key.path.clone(), key.as_text(), names::label_key(key.as_text()));
        }
    }
    let matching: Vec<&str> = term.texts("matchLabelKeys").collect();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (index, key) in matching.iter().enumerate() {
        places.entry(key).or_insert(index);
    }
    let mut selected: HashSet<&str> = selector.map("matchLabels").keys().map(String::as_str).collect();
    for expression in selector.items("matchExpressions") {
        let key = expression.text("key");
        if let Some(index) = places.get(key)
            && selected.contains(&key)
        {
            errors.invalid(term.path.index(*index), key, "exists in both matchLabelKeys and labelSelector");
        }
        selected.insert(key);
    }
    let mismatching: HashSet<&str> = term.texts("mismatchLabelKeys").collect();
    for (index, key) in matching.iter().enumerate() {
        if mismatching.contains(key) {
            let path = term.at("matchLabelKeys").index(index);
            errors.invalid(path, *key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

pub fn spread(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let constraints = spec.items("topologySpreadConstraints");
    // Of several that are alike the last is not told of.
    let mut left: HashMap<(&str, &str), usize> = HashMap::new();
    for constraint in &constraints {
        *left.entry((constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"))).or_default() += 1;
    }
    for constraint in &constraints {
        errors.positive(constraint.at("maxSkew"), constraint.number("maxSkew"));
        let (key, action) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
        if key.is_empty() {
            errors.required(constraint.at("topologyKey"), "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            errors.unsupported(constraint.at("whenUnsatisfiable"), action, &actions);
        }
        let again = left.get_mut(&(key, action)).is_some_and(|left| {
            *left -= 1;
            *left > 0
        });
        if again {
            errors.duplicate(constraint.at("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = constraint.int("minDomains") {
            errors.positive(constraint.at("minDomains"), domains);
            if action != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(constraint.at("minDomains"), domains, detail);
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = constraint.raw(key).as_str().filter(|p| !["Honor", "Ignore"].contains(p)) {
                errors.unsupported(constraint.at(key), policy, &["Honor", "Ignore"]);
            }
        }
        label_keys(errors, constraint);
        check::label_selector(errors, &constraint.get("labelSelector"));
    }
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// `compare` where operators that compare numbers are in use already: their feature gate is off, as it is upstream.
pub fn tolerations(errors: &mut FieldErrors, spec: &Cursor<'_>, compare: bool) {
    for toleration in spec.items("tolerations") {
        let (key, operator) = (toleration.text("key"), toleration.text("operator"));
        let (value, effect) = (toleration.text("value"), toleration.text("effect"));
        if !key.is_empty() {
            errors.reasons(toleration.at("key"), key, names::label_key(key));
        }
        if key.is_empty() && operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(toleration.at("operator"), operator, detail);
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(toleration.at("effect"), effect, detail);
        }
        match operator {
            "Equal" | "" => {
                let reasons = names::label_value(value);
                if !reasons.is_empty() {
                    errors.invalid(toleration.at("operator"), value, reasons.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(toleration.at("operator"), value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" if compare => {
                for reason in taints::integer_errors(value) {
                    errors.invalid(toleration.at("value"), value, reason);
                }
            }
            "Lt" | "Gt" => errors.unsupported(toleration.at("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]),
            other => errors.unsupported(toleration.at("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.unsupported(toleration.at("effect"), effect, &EFFECTS);
        }
    }
}

/// The taints of a node; upstream names their path below the metadata.
pub fn taints(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    let list = ferry_meta::Path::new("metadata.taints");
    for (index, value) in spec.array("taints").iter().enumerate() {
        let taint = Cursor::new(value, list.index(index));
        let (key, effect) = (taint.text("key"), taint.text("effect"));
        errors.reasons(taint.at("key"), key, names::label_key(key));
        let reasons = names::label_value(taint.text("value"));
        if !reasons.is_empty() {
            errors.invalid(taint.at("value"), taint.text("value"), reasons.join(";"));
        }
        if effect.is_empty() {
            errors.required(taint.at("effect"), "");
        } else if !EFFECTS.contains(&effect) {
            errors.unsupported(taint.at("effect"), effect, &EFFECTS);
        }
        if seen.contains(&(key, effect)) {
            let mut error = FieldError::duplicate(&taint.path, taint.value.clone());
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(error.shown_as(crate::internal::show("Taint", taint.value)));
            continue;
        }
        seen.insert((key, effect));
    }
}

//! Selectors over labels, parsed once and matched often.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Rule {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
    /// What cannot be understood matches nothing.
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Requirement {
    key: String,
    rule: Rule,
}

impl Requirement {
    fn new(key: &str, operator: &str, values: Option<&Vec<String>>) -> Self {
        let values = values.cloned().unwrap_or_default();
        let number = || values.first().filter(|_| values.len() == 1).and_then(|text| text.parse().ok());
        let rule = match operator {
            "In" => Rule::In(values),
            "NotIn" => Rule::NotIn(values),
            "Exists" => Rule::Exists,
            "DoesNotExist" => Rule::DoesNotExist,
            "Gt" => number().map_or(Rule::Never, Rule::GreaterThan),
            "Lt" => number().map_or(Rule::Never, Rule::LessThan),
            _ => Rule::Never,
        };
        Self { key: key.to_owned(), rule }
    }

    fn matches(&self, value: Option<&str>) -> bool {
        match (&self.rule, value) {
            (Rule::In(allowed), Some(value)) => allowed.iter().any(|known| known == value),
            (Rule::NotIn(forbidden), Some(value)) => !forbidden.iter().any(|known| known == value),
            (Rule::NotIn(_) | Rule::DoesNotExist, None) | (Rule::Exists, Some(_)) => true,
            (Rule::GreaterThan(limit), Some(value)) => value.parse::<i64>().is_ok_and(|value| value > *limit),
            (Rule::LessThan(limit), Some(value)) => value.parse::<i64>().is_ok_and(|value| value < *limit),
            _ => false,
        }
    }
}

/// All requirements must hold. Without any it matches everything, unless it is the selector of nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Selector {
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    pub fn everything() -> Self {
        Self { requirements: Vec::new(), nothing: false }
    }

    /// An absent selector selects nothing, an empty one everything.
    pub fn new(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else { return Self::nothing() };
        let mut requirements: Vec<Requirement> =
            selector.match_labels.iter().flatten().map(|(key, value)| equal(key, value)).collect();
        requirements.extend(
            selector
                .match_expressions
                .iter()
                .flatten()
                .map(|r| Requirement::new(&r.key, &r.operator, r.values.as_ref())),
        );
        Self { requirements, nothing: false }
    }

    pub fn from_labels(labels: &Labels) -> Self {
        Self { requirements: labels.iter().map(|(key, value)| equal(key, value)).collect(), nothing: false }
    }

    /// Narrowed by further labels.
    pub fn and(&mut self, labels: &Labels) {
        self.requirements.extend(labels.iter().map(|(key, value)| equal(key, value)));
    }

    pub fn and_selector(&mut self, other: Self) {
        self.nothing |= other.nothing;
        self.requirements.extend(other.requirements);
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        !self.nothing
            && self
                .requirements
                .iter()
                .all(|requirement| requirement.matches(labels.get(&requirement.key).map(String::as_str)))
    }

    /// A label that everything it selects has, with the values it may have: by it selectors can be found from labels.
    pub fn handle(&self) -> Option<(&str, &[String])> {
        self.requirements.iter().find_map(|requirement| match &requirement.rule {
            Rule::In(values) => Some((requirement.key.as_str(), values.as_slice())),
            _ => None,
        })
    }

    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Whether it has no requirement at all, be it that of everything or of nothing.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

fn equal(key: &str, value: &str) -> Requirement {
    Requirement { key: key.to_owned(), rule: Rule::In(vec![value.to_owned()]) }
}

/// One alternative of a node selector: all of its requirements on labels and on the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    names: Vec<Requirement>,
}

impl NodeTerm {
    /// Nothing for a term without requirements, which selects no node.
    pub fn new(term: &NodeSelectorTerm) -> Option<Self> {
        let parse = |list: &Option<Vec<NodeSelectorRequirement>>| -> Vec<Requirement> {
            list.iter().flatten().map(|r| Requirement::new(&r.key, &r.operator, r.values.as_ref())).collect()
        };
        let (labels, mut names) = (parse(&term.match_expressions), parse(&term.match_fields));
        for requirement in &mut names {
            let single = |list: &Vec<String>| list.len() == 1;
            let fine = match &requirement.rule {
                Rule::In(list) | Rule::NotIn(list) => single(list) && requirement.key == "metadata.name",
                _ => false,
            };
            if !fine {
                requirement.rule = Rule::Never;
            }
        }
        (!labels.is_empty() || !names.is_empty()).then_some(Self { labels, names })
    }

    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.labels.iter().all(|requirement| requirement.matches(labels.get(&requirement.key).map(String::as_str)))
            && self.names.iter().all(|requirement| requirement.matches(Some(name)))
    }

    /// The only names it can match, where it says so.
    pub fn only_names(&self) -> Option<Vec<&str>> {
        let mut found: Option<Vec<&str>> = None;
        for requirement in &self.names {
            if let Rule::In(list) = &requirement.rule {
                let list: Vec<&str> = list.iter().map(String::as_str).collect();
                found = Some(match found {
                    None => list,
                    Some(known) => known.into_iter().filter(|name| list.contains(name)).collect(),
                });
            }
        }
        found
    }
}

/// What a pod requires of its node: `nodeSelector` and required node affinity together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeRequirement {
    selector: Option<Selector>,
    /// Alternatives; an empty list matches no node.
    terms: Option<Vec<NodeTerm>>,
}

impl NodeRequirement {
    pub fn new(selector: Option<&Labels>, affinity: Option<&NodeSelector>) -> Self {
        Self {
            selector: selector.filter(|labels| !labels.is_empty()).map(Selector::from_labels),
            terms: affinity.map(|affinity| affinity.node_selector_terms.iter().filter_map(NodeTerm::new).collect()),
        }
    }

    pub fn is_any(&self) -> bool {
        self.selector.is_none() && self.terms.is_none()
    }

    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.selector.as_ref().is_none_or(|selector| selector.matches(labels))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(name, labels)))
    }

    pub fn terms(&self) -> Option<&[NodeTerm]> {
        self.terms.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn node_requirements_match_as_the_api_says() {
        let labels: Labels = [("zone", "a"), ("cores", "8")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let expression = |key: &str, operator: &str, values: serde_json::Value| json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
        for (terms, expected) in [
            (json!([]), false),
            (json!([{}]), false),
            (expression("zone", "In", json!(["a", "b"])), true),
            (expression("zone", "In", json!(["b"])), false),
            (expression("zone", "NotIn", json!(["b"])), true),
            (expression("none", "NotIn", json!(["b"])), true),
            (expression("zone", "Exists", json!(null)), true),
            (expression("zone", "DoesNotExist", json!(null)), false),
            (expression("cores", "Gt", json!(["4"])), true),
            (expression("cores", "Gt", json!(["8"])), false),
            (expression("cores", "Lt", json!(["9"])), true),
            (expression("zone", "Gt", json!(["1"])), false),
            (expression("cores", "Gt", json!(["x"])), false),
            (expression("zone", "Sometimes", json!(["a"])), false),
            (json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]), true),
            (json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]), false),
            (json!([{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n1"]}]}]), false),
            // Alternatives: one that fits is enough.
            (
                json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
                true,
            ),
        ] {
            let selector: NodeSelector =
                serde_json::from_value(json!({"nodeSelectorTerms": terms})).expect("a selector");
            assert_eq!(NodeRequirement::new(None, Some(&selector)).matches("n1", &labels), expected, "{terms}");
        }
        assert!(
            !NodeRequirement::new(Some(&[("zone".to_owned(), "b".to_owned())].into()), None).matches("n1", &labels)
        );
        assert!(NodeRequirement::new(Some(&Labels::new()), None).is_any());
    }
}

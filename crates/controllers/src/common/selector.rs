//! Label selectors of typed objects, checked once and matched often.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub(crate) type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    Equals(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// What a selector asks of labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Selector {
    /// An absent selector matches nothing, an empty one everything. An unknown operator matches nothing: validation
    /// keeps it out.
    pub(crate) fn new(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else { return Self { requirements: Vec::new(), nothing: true } };
        let mut made = Self::of_labels(selector.match_labels.as_ref());
        for expression in selector.match_expressions.iter().flatten() {
            let (key, values) = (expression.key.clone(), expression.values.clone().unwrap_or_default());
            made.requirements.push(match expression.operator.as_str() {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::Absent(key),
                _ => {
                    made.nothing = true;
                    continue;
                }
            });
        }
        made
    }

    /// Matches what has all of these labels.
    pub(crate) fn of_labels(labels: Option<&Labels>) -> Self {
        let equals = |(key, value): (&String, &String)| Requirement::Equals(key.clone(), value.clone());
        Self { requirements: labels.into_iter().flatten().map(equals).collect(), nothing: false }
    }

    pub(crate) fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub(crate) fn matches(&self, labels: Option<&Labels>) -> bool {
        let value = |key: &String| labels.and_then(|labels| labels.get(key));
        !self.nothing
            && self.requirements.iter().all(|requirement| match requirement {
                Requirement::Equals(key, wanted) => value(key) == Some(wanted),
                Requirement::In(key, wanted) => value(key).is_some_and(|value| wanted.contains(value)),
                Requirement::NotIn(key, wanted) => value(key).is_none_or(|value| !wanted.contains(value)),
                Requirement::Exists(key) => value(key).is_some(),
                Requirement::Absent(key) => value(key).is_none(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let selector: Option<LabelSelector> = serde_json::from_str(selector).expect("a selector");
        let labels: Labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        assert_eq!(Selector::new(selector.as_ref()).matches(Some(&labels)), expected, "{selector:?} {labels:?}");
    }

    #[test]
    fn selectors_match_as_upstream() {
        check("null", &[("a", "1")], false);
        check("{}", &[], true);
        check(r#"{"matchLabels":{"a":"1"}}"#, &[("a", "1"), ("b", "2")], true);
        check(r#"{"matchLabels":{"a":"1"}}"#, &[("a", "2")], false);
        check(r#"{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]}"#, &[("a", "2")], true);
        check(r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}"#, &[], true);
        check(r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}"#, &[("a", "1")], false);
        check(r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#, &[], false);
        check(r#"{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}"#, &[], true);
        check(r#"{"matchExpressions":[{"key":"a","operator":"Sounds"}]}"#, &[("a", "1")], false);
    }
}

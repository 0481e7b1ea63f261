//! Label and field selectors: the query language of lists and watches, and `LabelSelector` objects.

mod error;
mod field;
mod parse;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use self::parse::Parser;
use crate::selector_index::{LabelIndex, SHORT};

pub use error::SelectorError;
pub use field::{FieldSelector, FieldTerm};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: BTreeSet<String>,
}

/// All requirements must hold; none selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
    /// Where there are many.
    index: Option<Arc<LabelIndex>>,
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let have = value.and_then(|v| v.parse::<i64>().ok());
                let bound = self.values.first().and_then(|v| v.parse::<i64>().ok());
                match (have, bound, self.operator) {
                    (Some(have), Some(bound), Operator::GreaterThan) => have > bound,
                    (Some(have), Some(bound), _) => have < bound,
                    _ => false,
                }
            }
        }
    }
}

impl LabelSelector {
    fn new(requirements: Vec<Requirement>) -> Self {
        let index = (requirements.len() > SHORT).then(|| Arc::new(LabelIndex::new(&requirements)));
        Self { requirements, nothing: false, index }
    }

    pub fn nothing() -> Self {
        Self { nothing: true, ..Self::default() }
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    pub fn matches(&self, labels: &Map<String, Value>) -> bool {
        match &self.index {
            Some(index) => !self.nothing && index.matches(labels.iter().filter_map(|(k, v)| Some((&**k, v.as_str()?)))),
            None => self.matches_with(|key| labels.get(key).and_then(Value::as_str)),
        }
    }

    /// The same, for labels that are sorted by key.
    pub fn matches_sorted(&self, labels: &[(Box<str>, Box<str>)]) -> bool {
        match &self.index {
            Some(index) => !self.nothing && index.matches(labels.iter().map(|(key, value)| (&**key, &**value))),
            None => self.matches_with(|key| {
                let found = labels.binary_search_by(|(have, _)| (**have).cmp(key)).ok()?;
                Some(&labels[found].1)
            }),
        }
    }

    /// As `matches`, for labels kept in another form.
    pub fn matches_with<'a>(&self, mut value_of: impl FnMut(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(value_of(&r.key)))
    }

    /// Reads `labelSelector` of a query. The error is upstream's text.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Parser::new(text).parse().map(Self::new)
    }

    /// Reads a `LabelSelector` object (matchLabels, matchExpressions). Null selects nothing, an empty one everything.
    pub fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        if selector.is_null() {
            return Ok(Self::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let values = BTreeSet::from([value.as_str().unwrap_or_default().to_owned()]);
            requirements.push(Requirement { key: key.clone(), operator: Operator::In, values });
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let operator = match expression.get("operator").and_then(Value::as_str).unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            requirements.push(Requirement {
                key: expression.get("key").and_then(Value::as_str).unwrap_or_default().to_owned(),
                operator,
                values: (expression.get("values").and_then(Value::as_array).into_iter().flatten())
                    .filter_map(|v| v.as_str().map(str::to_owned))
                    .collect(),
            });
        }
        Ok(Self::new(requirements))
    }

    /// A map of labels that must all be there, as in a Service's selector.
    pub fn from_map(labels: &Map<String, Value>) -> Self {
        let requirements = labels
            .iter()
            .map(|(key, value)| Requirement {
                key: key.clone(),
                operator: Operator::In,
                values: BTreeSet::from([value.as_str().unwrap_or_default().to_owned()]),
            })
            .collect();
        Self::new(requirements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, labels: &str) -> Result<bool, String> {
        let labels: Value = serde_json::from_str(labels).expect("labels");
        Ok(LabelSelector::parse(selector)?.matches(labels.as_object().expect("a map")))
    }

    #[test]
    fn label_selectors_select() {
        for (selector, labels, want) in [
            ("", r#"{}"#, true),
            ("a", r#"{"a":"1"}"#, true),
            ("!a", r#"{"a":"1"}"#, false),
            ("a=1,b!=2", r#"{"a":"1"}"#, true),
            ("a==1,b!=2", r#"{"a":"1","b":"2"}"#, false),
            ("a in (1, 2)", r#"{"a":"2"}"#, true),
            ("a notin (1,2)", r#"{}"#, true),
            ("a in (,x)", r#"{"a":""}"#, true),
            ("n>5", r#"{"n":"6"}"#, true),
            ("n<5", r#"{"n":"6"}"#, false),
            ("in=in", r#"{"in":"in"}"#, true),
        ] {
            assert_eq!(check(selector, labels), Ok(want), "{selector} on {labels}");
            // A long selector is looked up by key, with the same outcome.
            let more: Vec<String> = (0..100).map(|number| format!("!z{number}")).collect();
            let once = if selector.is_empty() { more.join(",") } else { format!("{selector},{}", more.join(",")) };
            for text in [once, vec![selector; if selector.is_empty() { 0 } else { 40 }].join(",")] {
                assert_eq!(check(&text, labels), Ok(want), "{text} on {labels}");
            }
        }
        for (selector, want) in
            [("a in (1,2),a in (2,3)", true), ("a in (1,2),a in (3)", false), ("a,n>1,n<3,n>0", false)]
        {
            for text in [selector.to_owned(), vec![selector; 20].join(",")] {
                assert_eq!(check(&text, r#"{"a":"2","n":"3"}"#), Ok(want), "{text}");
            }
        }
    }

    #[test]
    fn long_field_selectors_select_as_short_ones() {
        for (selector, want) in [("a=1", true), ("a=2", false), ("a=1,a=2", false), ("b!=", false), ("a!=2,c=", true)] {
            let more: Vec<String> = (0..100).map(|number| format!("a!=x{number}")).collect();
            for text in [selector.to_owned(), format!("{selector},{}", more.join(","))] {
                let value = |field: &str| if field == "a" { "1" } else { "" }.into();
                assert_eq!(FieldSelector::parse(&text).map(|fields| fields.matches(value)), Ok(want), "{text}");
            }
        }
    }

    #[test]
    fn label_selector_errors_read_as_upstream() {
        for (selector, want) in [
            ("app=a b", "found 'b', expected: ',' or 'end of string'"),
            ("app in web", "unable to parse requirement: found 'web' expected: '('"),
            ("app in (web", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            ("app,", "found '', expected: identifier after ','"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("bad!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
            ("app===x", "unable to parse requirement: found '=', expected: identifier"),
        ] {
            assert_eq!(check(selector, "{}"), Err(want.to_owned()), "{selector}");
        }
    }

    #[test]
    fn field_selectors_read_and_select() {
        let selector = FieldSelector::parse("metadata.name=a,spec.x!=y\\,z").expect("a selector");
        assert_eq!(selector.required("metadata.name"), Some("a"));
        assert!(selector.matches(|f| if f == "metadata.name" { "a".into() } else { "q".into() }));
        assert!(!selector.matches(|f| if f == "metadata.name" { "a".into() } else { "y,z".into() }));
        assert!(FieldSelector::parse("=").expect("nothing").is_everything());
        assert_eq!(
            FieldSelector::parse("a=b=c").map_err(String::from),
            Err("invalid field selector: unescaped character in value: 61".to_owned())
        );
        assert_eq!(
            FieldSelector::parse("spec.nodeName").map_err(String::from),
            Err("invalid selector: 'spec.nodeName'; can't understand 'spec.nodeName'".to_owned())
        );
    }
}

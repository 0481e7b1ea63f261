//! Selectors with very many requirements, by key: an object is compared with what concerns its few labels, however long the selector.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::selector::{FieldTerm, Operator, Requirement};

/// Selectors up to this length are gone through, which is faster.
pub(crate) const SHORT: usize = 16;

/// All that is asked of one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    must_exist: bool,
    must_not_exist: bool,
    /// The values that all lists of allowed ones have in common.
    allowed: Option<BTreeSet<String>>,
    refused: BTreeSet<String>,
    above: Option<i64>,
    below: Option<i64>,
    /// A bound that is no number holds for nothing.
    never: bool,
}

impl Rule {
    fn add(&mut self, requirement: &Requirement) {
        match requirement.operator {
            Operator::In => {
                self.must_exist = true;
                self.allowed = Some(match self.allowed.take() {
                    Some(allowed) => allowed.intersection(&requirement.values).cloned().collect(),
                    None => requirement.values.clone(),
                });
            }
            Operator::NotIn => self.refused.extend(requirement.values.iter().cloned()),
            Operator::Exists => self.must_exist = true,
            Operator::DoesNotExist => self.must_not_exist = true,
            Operator::GreaterThan | Operator::LessThan => {
                self.must_exist = true;
                let bound = requirement.values.first().and_then(|value| value.parse::<i64>().ok());
                self.never |= bound.is_none();
                if requirement.operator == Operator::GreaterThan {
                    self.above = self.above.max(bound);
                } else {
                    self.below = self.below.into_iter().chain(bound).min();
                }
            }
        }
    }

    fn matches(&self, value: &str) -> bool {
        let number = value.parse::<i64>().ok();
        !self.must_not_exist
            && !self.never
            && self.allowed.as_ref().is_none_or(|allowed| allowed.contains(value))
            && !self.refused.contains(value)
            && self.above.is_none_or(|above| number.is_some_and(|number| number > above))
            && self.below.is_none_or(|below| number.is_some_and(|number| number < below))
    }
}

/// The requirements of a label selector by the label they are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelIndex {
    rules: HashMap<String, Rule>,
    /// Labels that an object has to have.
    needed: usize,
}

impl LabelIndex {
    pub(crate) fn new(requirements: &[Requirement]) -> Self {
        let mut rules: HashMap<String, Rule> = HashMap::new();
        for requirement in requirements {
            rules.entry(requirement.key.clone()).or_default().add(requirement);
        }
        let needed = rules.values().filter(|rule| rule.must_exist).count();
        Self { rules, needed }
    }

    /// Each label stands once among the labels.
    pub(crate) fn matches<'l>(&self, labels: impl Iterator<Item = (&'l str, &'l str)>) -> bool {
        let mut found = 0;
        for (key, value) in labels {
            let Some(rule) = self.rules.get(key) else { continue };
            if !rule.matches(value) {
                return false;
            }
            found += usize::from(rule.must_exist);
        }
        found == self.needed
    }
}

/// The terms of a field selector by their field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldIndex {
    rules: HashMap<String, FieldRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FieldRule {
    wanted: Option<String>,
    /// Two values at once are no value.
    never: bool,
    refused: HashSet<String>,
}

impl FieldIndex {
    pub(crate) fn new(terms: &[FieldTerm]) -> Self {
        let mut rules: HashMap<String, FieldRule> = HashMap::new();
        for term in terms {
            let rule = rules.entry(term.field.clone()).or_default();
            if term.negated {
                rule.refused.insert(term.value.clone());
            } else {
                rule.never |= rule.wanted.as_ref().is_some_and(|wanted| *wanted != term.value);
                rule.wanted = Some(term.value.clone());
            }
        }
        Self { rules }
    }

    pub(crate) fn matches<'a>(&self, mut value_of: impl FnMut(&str) -> std::borrow::Cow<'a, str>) -> bool {
        self.rules.iter().all(|(field, rule)| {
            let value = value_of(field);
            !rule.never
                && rule.wanted.as_deref().is_none_or(|wanted| *value == *wanted)
                && !rule.refused.contains(&*value)
        })
    }
}

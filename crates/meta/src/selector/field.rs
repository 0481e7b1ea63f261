//! Field selectors.

use std::sync::Arc;

use super::SelectorError;
use crate::selector_index::{FieldIndex, SHORT};

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub field: String,
    pub value: String,
    pub negated: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
    /// Where there are many.
    index: Option<Arc<FieldIndex>>,
}

impl FieldSelector {
    pub fn new(terms: Vec<FieldTerm>) -> Self {
        let index = (terms.len() > SHORT).then(|| Arc::new(FieldIndex::new(&terms)));
        Self { terms, index }
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value a field must have for an object to be selected.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.field == field && !t.negated).map(|t| t.value.as_str())
    }

    pub fn matches<'a>(&self, mut value_of: impl FnMut(&str) -> std::borrow::Cow<'a, str>) -> bool {
        if let Some(index) = &self.index {
            return index.matches(value_of);
        }
        self.terms.iter().all(|term| (value_of(&term.field) == term.value.as_str()) != term.negated)
    }

    /// Reads `fieldSelector` of a query. The error is upstream's text.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let Some((field, operator, value)) = split_term(&part) else {
                return Err(SelectorError::Term { selector: text.to_owned(), term: part.clone() });
            };
            let value = unescape(value)?;
            // Nothing is to be nothing: no term at all.
            if field.is_empty() && value.is_empty() && operator != "!=" {
                continue;
            }
            terms.push(FieldTerm { field: field.to_owned(), value, negated: operator == "!=" });
        }
        Ok(Self::new(terms))
    }
}

fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = terms.last_mut() {
            last.push(c);
        }
    }
    terms
}

fn split_term(term: &str) -> Option<(&str, &'static str, &str)> {
    (0..term.len()).filter(|i| term.is_char_boundary(*i)).find_map(|i| {
        let rest = &term[i..];
        ["!=", "==", "="].into_iter().find(|op| rest.starts_with(op)).map(|op| (&term[..i], op, &rest[op.len()..]))
    })
}

fn unescape(text: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(SelectorError::Escape(c.to_string())),
                None => return Err(SelectorError::Escape(String::new())),
            },
            ',' | '=' => return Err(SelectorError::Unescaped(u32::from(c))),
            c => out.push(c),
        }
    }
    Ok(out)
}

//! Label and field selectors: the query language of lists and watches, and `LabelSelector` objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::field::{FieldError, Path};
use crate::names;
use crate::selector_index::{FieldIndex, LabelIndex, SHORT};

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
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser::new(text).parse().map(Self::new)
    }

    /// Reads a `LabelSelector` object (matchLabels, matchExpressions). Null selects nothing, an empty one everything.
    pub fn from_object(selector: &Value) -> Result<Self, String> {
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
                other => return Err(format!("{other:?} is not a valid label selector operator")),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Identifier,
    In,
    NotIn,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Error,
}

struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn symbol(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "(" => Token::Open,
        "," => Token::Comma,
        "!" => Token::Not,
        "=" => Token::Equals,
        "==" => Token::DoubleEquals,
        "!=" => Token::NotEquals,
        ">" => Token::Greater,
        "<" => Token::Less,
        _ => return None,
    })
}

fn scan(text: &str) -> Vec<(Token, String)> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if matches!(c, ' ' | '\t' | '\r' | '\n') {
            at += 1;
        } else if is_special(c) {
            // The longest run of special characters that is a symbol.
            let pair: String = chars[at..chars.len().min(at + 2)].iter().collect();
            match symbol(&pair).filter(|_| pair.chars().count() == 2) {
                Some(token) => {
                    tokens.push((token, pair));
                    at += 2;
                }
                None => {
                    tokens.push((symbol(&c.to_string()).unwrap_or(Token::Error), c.to_string()));
                    at += 1;
                }
            }
        } else {
            let start = at;
            while at < chars.len() && !is_special(chars[at]) && !matches!(chars[at], ' ' | '\t' | '\r' | '\n') {
                at += 1;
            }
            let word: String = chars[start..at].iter().collect();
            let token = match word.as_str() {
                "in" => Token::In,
                "notin" => Token::NotIn,
                _ => Token::Identifier,
            };
            tokens.push((token, word));
        }
    }
    tokens
}

impl Parser {
    fn new(text: &str) -> Self {
        Self { tokens: scan(text), at: 0 }
    }

    /// In the place of a value `in` and `notin` are ordinary words.
    fn look(&self) -> (Token, String) {
        let (token, text) = self.tokens.get(self.at).cloned().unwrap_or((Token::End, String::new()));
        (if matches!(token, Token::In | Token::NotIn) { Token::Identifier } else { token }, text)
    }

    fn take(&mut self) -> (Token, String) {
        let found = self.look();
        self.at += 1;
        found
    }

    fn take_operator(&mut self) -> (Token, String) {
        let found = self.tokens.get(self.at).cloned().unwrap_or((Token::End, String::new()));
        self.at += 1;
        found
    }

    fn parse(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            let (token, text) = self.look();
            match token {
                Token::Identifier | Token::Not => {
                    let one = self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
                    requirements.push(one);
                    let (token, text) = self.take();
                    match token {
                        Token::End => break,
                        Token::Comma => {
                            let (token, text) = self.look();
                            if !matches!(token, Token::Identifier | Token::Not) {
                                return Err(format!("found '{text}', expected: identifier after ','"));
                            }
                        }
                        _ => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
                    }
                }
                Token::End => break,
                _ => return Err(format!("found '{text}', expected: !, identifier, or 'end of string'")),
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(requirements)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.take();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.take();
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        check(&Path::root(), &key, &names::label_key(&key))?;
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: BTreeSet::new() });
        }
        if matches!(self.look().0, Token::End | Token::Comma) {
            return Ok(Requirement { key, operator: Operator::Exists, values: BTreeSet::new() });
        }
        let (token, text) = self.take_operator();
        let operator = match token {
            Token::In | Token::Equals | Token::DoubleEquals => Operator::In,
            Token::NotIn | Token::NotEquals => Operator::NotIn,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            _ => return Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = if matches!(token, Token::In | Token::NotIn) { self.values()? } else { self.exact_value()? };
        for (index, value) in values.iter().enumerate() {
            let path = Path::new("values").index(index);
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) && value.parse::<i64>().is_err() {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                return Err(FieldError::invalid(&path, value.clone(), why).line());
            }
            check(&path.key(&key), value, &names::label_value(value))?;
        }
        Ok(Requirement { key, operator, values })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let (token, text) = self.take();
        if token != Token::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        match self.look() {
            (Token::Identifier | Token::Comma, text) => {
                let values = self.identifiers()?;
                if self.take().0 != Token::Close {
                    return Err(format!("found '{text}', expected: ')'"));
                }
                Ok(values)
            }
            (Token::Close, _) => {
                self.take();
                Ok(BTreeSet::from([String::new()]))
            }
            (_, text) => Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            let (token, text) = self.take();
            match token {
                Token::Identifier => {
                    values.insert(text);
                    match self.look() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                Token::Comma => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.look().0 {
                        Token::Close => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.take();
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                _ => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.look().0, Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.take() {
            (Token::Identifier, text) => Ok(BTreeSet::from([text])),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}

fn check(path: &Path, value: &str, errors: &[String]) -> Result<(), String> {
    if errors.is_empty() { Ok(()) } else { Err(FieldError::invalid(path, value, errors.join("; ")).line()) }
}

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
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let Some((field, operator, value)) = split_term(&part) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
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

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(format!("invalid field selector: invalid escape sequence: \\{c}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c))),
            c => out.push(c),
        }
    }
    Ok(out)
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
            FieldSelector::parse("a=b=c"),
            Err("invalid field selector: unescaped character in value: 61".to_owned())
        );
        assert_eq!(
            FieldSelector::parse("spec.nodeName"),
            Err("invalid selector: 'spec.nodeName'; can't understand 'spec.nodeName'".to_owned())
        );
    }
}

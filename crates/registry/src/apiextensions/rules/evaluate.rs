//! Rules at work on an object.

use std::collections::HashMap;

use ferry_cel::{Budget, Error, REQUEST_BUDGET, Value};
use ferry_meta::{FieldError, FieldErrors, Path};
use serde_json::{Map, Value as Json};

use super::{OLD, Rule, Rules, SELF};

/// Longer messages of expressions are not used.
const LONGEST_MESSAGE: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What became of the rules.
#[derive(Default)]
pub(crate) struct Findings {
    pub errors: FieldErrors,
    /// What would be an error if it were new.
    pub warnings: FieldErrors,
}

/// What an update left as it was is forgiven: a value is compared with what it was before, or, where that cannot be told, what is
/// around it.
#[derive(Clone, Copy, Default)]
struct Before<'a> {
    own: Option<(&'a Json, &'a Json)>,
    around: Option<(&'a Json, &'a Json)>,
}

impl<'a> Before<'a> {
    fn unchanged(&self) -> bool {
        self.own.or(self.around).is_some_and(|(new, old)| new == old)
    }

    fn key(self, key: &str) -> Self {
        let Some((new, old)) = self.own else { return self };
        if self.around.is_none() && ["apiVersion", "kind"].contains(&key) {
            return Self::default();
        }
        Self { own: new.get(key).zip(old.get(key)), around: self.own }
    }

    fn item(self, item: &'a Json, old: Option<&'a Json>) -> Self {
        if self.own.is_none() { self } else { Self { own: old.map(|old| (item, old)), around: self.own } }
    }
}

/// No more rules are to be run.
struct Spent;

struct Run {
    budget: Budget,
    findings: Findings,
}

impl Rules {
    pub fn evaluate(&self, object: &Json, old: Option<&Json>) -> Findings {
        let mut run = Run { budget: Budget::new(REQUEST_BUDGET), findings: Findings::default() };
        let before = Before { own: old.map(|old| (object, old)), around: None };
        let _ = run.walk(self, object, old, before, &Path::root());
        run.findings
    }
}

impl Rules {
    /// A default has to pass as what was there before, and as what is new.
    pub fn judge_default(&self, value: &Json, path: &Path) -> FieldErrors {
        let judge = |old: Option<&Json>| {
            let mut run = Run { budget: Budget::new(REQUEST_BUDGET), findings: Findings::default() };
            let _ = run.walk(self, value, old, Before::default(), path);
            run.findings.errors
        };
        let errors = judge(Some(value));
        if errors.is_empty() { judge(None) } else { errors }
    }
}

fn invalid(path: &Path, kind: &str, detail: String) -> FieldError {
    FieldError::invalid(path, kind, detail)
}

impl Run {
    fn walk(
        &mut self,
        rules: &Rules,
        value: &Json,
        old: Option<&Json>,
        before: Before<'_>,
        path: &Path,
    ) -> Result<(), Spent> {
        if value.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        self.own(rules, value, old, before, path)?;
        for part in &rules.all_of {
            self.walk(part, value, old, Before { own: None, around: before.around }, path)?;
        }
        match value {
            Json::Array(items) => {
                let Some(of) = &rules.items else { return Ok(()) };
                fn known_by<'v>(keys: &[String], item: &'v Json) -> Vec<Option<&'v Json>> {
                    keys.iter().map(|key| item.get(key)).collect()
                }
                let keys = rules.keys.as_ref().filter(|_| old.is_some());
                let mut known = HashMap::new();
                if let (Some(keys), Some(old)) = (keys, old.and_then(Json::as_array)) {
                    for was in old {
                        known.entry(known_by(keys, was)).or_insert(was);
                    }
                }
                for (index, item) in items.iter().enumerate() {
                    let was = keys.and_then(|keys| known.get(&known_by(keys, item))).copied();
                    self.walk(of, item, was, before.item(item, was), &path.index(index))?;
                }
                Ok(())
            }
            Json::Object(map) => self.fields(rules, map, old, before, path),
            _ => Ok(()),
        }
    }

    fn fields(
        &mut self,
        rules: &Rules,
        map: &Map<String, Json>,
        old: Option<&Json>,
        before: Before<'_>,
        path: &Path,
    ) -> Result<(), Spent> {
        if let Some(of) = &rules.additional {
            for (key, value) in map {
                self.walk(of, value, old.and_then(|old| old.get(key)), before.key(key), &path.key(key))?;
            }
        }
        for (key, of) in &rules.properties {
            if let Some(value) = map.get(key) {
                self.walk(of, value, old.and_then(|old| old.get(key)), before.key(key), &path.child(key))?;
            }
        }
        Ok(())
    }

    fn own(
        &mut self,
        rules: &Rules,
        value: &Json,
        old: Option<&Json>,
        before: Before<'_>,
        path: &Path,
    ) -> Result<(), Spent> {
        let Some(decl) = rules.decl.as_deref().filter(|_| !rules.own.is_empty()) else { return Ok(()) };
        if self.budget.remaining() == 0 {
            self.findings.errors.push(invalid(path, &rules.kind, OUT_OF_BUDGET.to_owned()));
            return Err(Spent);
        }
        for rule in &rules.own {
            let program = match &rule.program {
                Ok(program) => program,
                Err(error) => {
                    let detail = format!("rule compile error: compilation failed: {error}");
                    self.findings.errors.push(invalid(path, &rules.kind, detail));
                    continue;
                }
            };
            if rule.uses_old && old.is_none() && !rule.optional_old {
                continue;
            }
            let bound = Value::typed(value, Some(decl)).and_then(|now| {
                let was = old.map(|old| Value::typed(old, Some(decl))).transpose()?;
                let was = if rule.optional_old {
                    Value::Optional(was.map(std::sync::Arc::new))
                } else {
                    was.unwrap_or(Value::Null)
                };
                let mut bound = [Value::Null, Value::Null];
                bound[SELF] = now;
                bound[OLD] = was;
                Ok(bound)
            });
            let outcome = bound.and_then(|bound| {
                let result = program.evaluate(&bound, &mut self.budget)?;
                Ok((bound, result))
            });
            match outcome {
                Ok((_, Value::Bool(true))) => {}
                Ok((bound, _)) => self.broken(rules, rule, &bound, value, before, path)?,
                Err(error) => self.failed(rules, rule, &error, path)?,
            }
        }
        Ok(())
    }

    fn failed(&mut self, rules: &Rules, rule: &Rule, error: &Error, path: &Path) -> Result<(), Spent> {
        let name = rule.shown();
        let (detail, spent) = match error {
            Error::BudgetExhausted => (OUT_OF_BUDGET.to_owned(), true),
            Error::CostLimit => {
                let why = "no further validation rules will be run due to call cost exceeds limit for rule";
                (format!("'{error}': {why}: {name}"), true)
            }
            Error::NoSuchOverload(_) => {
                let why = "call arguments did not match a supported operator, function or macro signature for rule";
                (format!("'{error}': {why}: {name}"), false)
            }
            error => (format!("{error} evaluating rule: {name}"), false),
        };
        self.findings.errors.push(invalid(path, &rules.kind, detail));
        if spent { Err(Spent) } else { Ok(()) }
    }

    /// A rule that does not hold.
    fn broken(
        &mut self,
        rules: &Rules,
        rule: &Rule,
        bound: &[Value<'_>; 2],
        value: &Json,
        before: Before<'_>,
        path: &Path,
    ) -> Result<(), Spent> {
        let path = match rule.field.as_str() {
            "" => path.clone(),
            field => path.child(field),
        };
        let forgiven = !rule.uses_old && before.unchanged();
        let mut detail = None;
        let mut spent = false;
        if let Some(program) = &rule.message_program {
            match program.evaluate(bound, &mut self.budget) {
                Ok(Value::String(text)) => {
                    let text = text.trim();
                    let usable = !text.is_empty() && !text.contains('\n') && text.len() <= LONGEST_MESSAGE;
                    detail = usable.then(|| text.to_owned());
                }
                Err(Error::BudgetExhausted) => {
                    spent = true;
                    let why = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
                    self.add(invalid(&path, &rules.kind, why.to_owned()), forgiven);
                }
                Err(Error::CostLimit) => {
                    spent = true;
                    let quoted = ferry_meta::field::quote(program.text());
                    let why =
                        "no further validation rules will be run due to call cost exceeds limit for messageExpression";
                    self.add(invalid(&path, &rules.kind, format!("{why}: {quoted}")), forgiven);
                }
                Ok(_) | Err(_) => {}
            }
        }
        if spent {
            return Err(Spent);
        }
        let detail = detail.unwrap_or_else(|| match rule.message.as_str() {
            "" => format!("failed rule: {}", rule.shown()),
            message => message.trim().to_owned(),
        });
        // Objects and lists are too long to be shown.
        let whole = ["object", "array"].contains(&rules.kind.as_str());
        let error = match rule.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(&path, detail),
            "FieldValueRequired" => FieldError::required(&path, detail),
            "FieldValueDuplicate" => FieldError::duplicate(&path, value.clone()),
            _ => FieldError::invalid(&path, value.clone(), detail),
        };
        self.add(if whole { error.shown_as("") } else { error }, forgiven);
        Ok(())
    }

    fn add(&mut self, error: FieldError, forgiven: bool) {
        if forgiven { self.findings.warnings.push(error) } else { self.findings.errors.push(error) }
    }
}

//! Rules when a definition is written: they compile, give what they have to, and cannot cost too much.

use std::fmt::Write;

use ferry_cel::{Decl, MAX_REQUEST_BYTES, Type};
use ferry_meta::{FieldError, FieldErrors, Path};
use serde_json::Value;

use super::{OLD, environment};
use crate::apiextensions::schema::{EMBEDDED, LIST_TYPE, RULES, fields};
use crate::cursor::{Cursor, Report};

/// What one expression may cost for all the values it can be evaluated for.
const MOST_PER_RULE: u64 = 10_000_000;
/// What all expressions of a schema may cost together.
const MOST_PER_SCHEMA: u64 = 100_000_000;
/// How many of the dearest are named.
const NAMED: usize = 4;

/// Judges the rules of a schema that is sound otherwise; `errors` are those found before.
pub(in crate::apiextensions) fn check(errors: &mut FieldErrors, schema: &Cursor<'_>) {
    let mut checker = Checker {
        sound: Sound(errors.iter().map(|error| error.path.clone()).collect()),
        found: FieldErrors::new(),
        total: 0,
        dear: Vec::new(),
    };
    let decl = Decl::from_schema(schema.value, "selfType", true);
    checker.walk(schema, decl.as_ref(), Some(1), None);
    errors.extend(checker.found);
    if checker.total > MOST_PER_SCHEMA {
        for (path, _) in checker.dear {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.forbidden(path, detail);
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(schema.path.clone(), too_dear(name, checker.total, MOST_PER_SCHEMA));
    }
}

fn too_dear(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// The places where something else is wrong; rules there are not looked at.
struct Sound(Vec<Path>);

impl Sound {
    fn below(&self, path: &Path) -> bool {
        !self.0.iter().any(|wrong| wrong.as_str().starts_with(path.as_str()))
    }
}

struct Checker {
    sound: Sound,
    found: FieldErrors,
    total: u64,
    dear: Vec<(Path, u64)>,
}

/// How many values there can be below one; None when nothing bounds them.
fn most_below(schema: &Cursor<'_>) -> Option<u64> {
    let count = |key: &str| schema.int(key).map(|value| u64::try_from(value).unwrap_or(0));
    match schema.text("type") {
        "object" if schema.has("additionalProperties") => count("maxProperties"),
        "array" => count("maxItems"),
        _ => Some(1),
    }
}

impl Checker {
    /// `times` says for how many values the rules here can be evaluated, `uncorrelated` which list makes it impossible to tell what a
    /// value was before.
    fn walk(&mut self, schema: &Cursor<'_>, decl: Option<&Decl>, times: Option<u64>, uncorrelated: Option<&Path>) {
        let below = times.and_then(|times| Some(times.saturating_mul(most_below(schema)?)));
        let item = decl.and_then(|decl| match &decl.shape {
            ferry_cel::Shape::List { items, .. } => Some(items.clone()),
            ferry_cel::Shape::Map(values) => Some(values.clone()),
            _ => None,
        });
        let additional = schema.get("additionalProperties");
        if additional.value.is_object() {
            self.walk(&additional, item.as_deref(), below, uncorrelated);
        }
        for (name, field) in fields(schema) {
            let known = ferry_cel::escape(name).and_then(|escaped| match decl.map(|decl| &decl.shape) {
                Some(ferry_cel::Shape::Object(object)) => object.fields.get(&escaped).map(|field| field.decl.clone()),
                _ => None,
            });
            let own = || Decl::from_schema(field.value, "selfType", field.is_true(EMBEDDED)).map(std::sync::Arc::new);
            let known = known.or_else(own);
            self.walk(&field, known.as_deref(), below, uncorrelated);
        }
        let items = schema.get("items");
        if items.value.is_object() {
            let path = schema.path.clone();
            let lost = uncorrelated.or_else(|| (schema.text(LIST_TYPE) != "map").then_some(&path));
            self.walk(&items, item.as_deref(), below, lost);
        }
        if schema.array(RULES).is_empty() || !self.sound.below(&schema.path) {
            return;
        }
        let Some(decl) = decl else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.found.push(FieldError::internal(&schema.at(RULES), detail));
            return;
        };
        for rule in schema.items(RULES) {
            self.rule(&rule, decl, times, uncorrelated);
        }
    }

    fn observe(&mut self, path: Path, name: &str, cost: u64) {
        if cost > MOST_PER_RULE {
            self.found.forbidden(path.clone(), too_dear(name, cost, MOST_PER_RULE));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= MOST_PER_SCHEMA / 100 {
            self.dear.push((path, cost));
            self.dear.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.dear.truncate(NAMED);
        }
    }

    fn rule(&mut self, rule: &Cursor<'_>, decl: &Decl, times: Option<u64>, uncorrelated: Option<&Path>) {
        let text = rule.text("rule");
        if text.trim().is_empty() {
            return;
        }
        let environment = environment(decl, rule.is_true("optionalOldSelf"));
        let refuse = |key: &str, detail: String| {
            FieldError::invalid(&rule.at(key), rule.value.clone(), detail).shown_as(shown(rule.value))
        };
        let program = match environment.compile(text) {
            Ok(program) if *program.result() == Type::Bool => program,
            Ok(_) => {
                self.found.push(refuse("rule", "cel expression must evaluate to a bool".to_owned()));
                return self.without_old(rule);
            }
            Err(error) => {
                self.found.push(refuse("rule", format!("compilation failed: {error}")));
                return self.without_old(rule);
            }
        };
        let most = environment.estimate(&program, Some(decl)).max;
        let times = times.unwrap_or(MAX_REQUEST_BYTES / (decl.min_size + 1));
        self.observe(rule.at("rule"), "estimated rule cost", most.saturating_mul(times));
        let expression = rule.text("messageExpression");
        if !expression.is_empty() {
            match environment.compile(expression) {
                Ok(message) if *message.result() == Type::String => {
                    let most = environment.estimate(&message, Some(decl)).max;
                    self.observe(rule.at("messageExpression"), "estimated messageExpression cost", most);
                }
                Ok(_) => {
                    let detail = "messageExpression must evaluate to a string".to_owned();
                    self.found.push(refuse("messageExpression", detail));
                }
                Err(error) => {
                    let detail = format!("messageExpression compilation failed: {error}");
                    self.found.push(refuse("messageExpression", detail));
                }
            }
        }
        if !program.uses(OLD) {
            return self.without_old(rule);
        }
        if let Some(path) = uncorrelated {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {path}");
            self.found.invalid(rule.at("rule"), text, detail);
        }
    }

    fn without_old(&mut self, rule: &Cursor<'_>) {
        if let Some(value) = rule.flag("optionalOldSelf") {
            let detail = "may not be set if oldSelf is not used in rule";
            self.found.invalid(rule.at("optionalOldSelf"), value, detail);
        }
    }
}

/// A rule as upstream shows it: all fields in its order.
fn shown(rule: &Value) -> String {
    let json = |value: &Value| {
        // Go escapes what HTML would take for markup.
        value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    };
    let empty = Value::String(String::new());
    let mut out = String::from("{");
    for (index, (name, key)) in [
        ("Rule", "rule"),
        ("Message", "message"),
        ("MessageExpression", "messageExpression"),
        ("Reason", "reason"),
        ("FieldPath", "fieldPath"),
        ("OptionalOldSelf", "optionalOldSelf"),
    ]
    .into_iter()
    .enumerate()
    {
        let value = match rule.get(key) {
            Some(value) => value,
            None if ["reason", "optionalOldSelf"].contains(&key) => &Value::Null,
            None => &empty,
        };
        let _ = write!(out, "{}\"{name}\":{}", if index == 0 { "" } else { "," }, json(value));
    }
    out.push('}');
    out
}

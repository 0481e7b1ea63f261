//! Rules of custom resources: `x-kubernetes-validations`, compiled when a definition is read, evaluated when an object is written.

mod check;
mod evaluate;

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_cel::{CompileError, Decl, Environment, Program, Type};
use serde_json::Value;

use super::paths;
use super::schema::{EMBEDDED, LIST_KEYS, LIST_TYPE, RULES};

pub(super) use check::check;

/// The rules of a schema, in its shape.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// `type` of the schema: what objects and lists are not shown for.
    kind: String,
    decl: Option<Arc<Decl>>,
    own: Vec<Rule>,
    items: Option<Box<Rules>>,
    properties: BTreeMap<String, Rules>,
    additional: Option<Box<Rules>>,
    all_of: Vec<Rules>,
    /// The keys of a list of type map: only its items can be told to be the same as before.
    keys: Option<Vec<String>>,
}

#[derive(Debug)]
struct Rule {
    text: String,
    message: String,
    reason: String,
    /// The field that errors name, below the rule's own.
    field: String,
    optional_old: bool,
    uses_old: bool,
    program: Result<Program, CompileError>,
    message_program: Option<Program>,
}

/// The slots of the variables.
const SELF: usize = 0;
const OLD: usize = 1;

/// What the variables of rules are, with `oldSelf` that may be absent.
fn environment(decl: &Decl, optional_old: bool) -> Environment {
    let ty = decl.ty.clone();
    let old = if optional_old { Type::optional(ty.clone()) } else { ty.clone() };
    Environment::new().variable("self", ty).variable("oldSelf", old)
}

impl Rules {
    /// The rules of a resource's schema; None where there are none.
    pub fn compile(schema: &Value) -> Option<Self> {
        let decl = Decl::from_schema(schema, "selfType", true).map(Arc::new);
        Self::of(schema, schema, decl)
    }

    /// The rules of a part of a schema, for a value of its own.
    pub fn of_part(schema: &Value) -> Option<Self> {
        let decl = Decl::from_schema(schema, "selfType", schema[EMBEDDED] == true).map(Arc::new);
        Self::of(schema, schema, decl)
    }

    /// `narrowed` has the rules, `schema` the types.
    fn of(narrowed: &Value, schema: &Value, decl: Option<Arc<Decl>>) -> Option<Self> {
        let rules = narrowed[RULES].as_array().map_or(&[][..], Vec::as_slice);
        let own: Vec<Rule> = match &decl {
            Some(decl) => rules.iter().filter_map(|rule| Rule::compile(rule, schema, decl)).collect(),
            None => Vec::new(),
        };
        let below = |key: &str| {
            let (narrowed, schema) = (&narrowed[key], &schema[key]);
            let decl = decl.as_ref().and_then(|decl| match &decl.shape {
                ferry_cel::Shape::List { items, .. } if key == "items" => Some(items.clone()),
                ferry_cel::Shape::Map(values) if key == "additionalProperties" => Some(values.clone()),
                _ => None,
            });
            if narrowed.is_object() && schema.is_object() {
                Self::of(narrowed, schema, decl).map(Box::new)
            } else {
                None
            }
        };
        let (items, additional) = (below("items"), below("additionalProperties"));
        let mut properties = BTreeMap::new();
        for (name, narrowed) in narrowed["properties"].as_object().into_iter().flatten() {
            let schema = &schema["properties"][name];
            let decl = match ferry_cel::escape(name) {
                Some(escaped) => decl.as_ref().and_then(|decl| match &decl.shape {
                    ferry_cel::Shape::Object(object) => object.fields.get(&escaped).map(|field| field.decl.clone()),
                    _ => None,
                }),
                None => Decl::from_schema(schema, "selfType", schema[EMBEDDED] == true).map(Arc::new),
            };
            if let Some(rules) = decl.and_then(|decl| Self::of(narrowed, schema, Some(decl))) {
                properties.insert(name.clone(), rules);
            }
        }
        let all_of = narrowed["allOf"].as_array().into_iter().flatten();
        let all_of: Vec<Self> = all_of.filter_map(|part| Self::of(part, schema, decl.clone())).collect();
        if own.is_empty() && items.is_none() && additional.is_none() && properties.is_empty() && all_of.is_empty() {
            return None;
        }
        let keys = (schema[LIST_TYPE] == "map").then(|| {
            let keys = schema[LIST_KEYS].as_array().into_iter().flatten();
            keys.filter_map(Value::as_str).map(str::to_owned).collect()
        });
        let kind = schema["type"].as_str().unwrap_or_default().to_owned();
        Some(Self { kind, decl, own, items, properties, additional, all_of, keys })
    }
}

impl Rule {
    fn compile(rule: &Value, schema: &Value, decl: &Decl) -> Option<Self> {
        let text = |key: &str| rule[key].as_str().unwrap_or_default().to_owned();
        if text("rule").trim().is_empty() {
            return None;
        }
        let optional_old = rule["optionalOldSelf"] == true;
        let environment = environment(decl, optional_old);
        let program = environment.compile(&text("rule"));
        let message_program = match text("messageExpression").as_str() {
            "" => None,
            expression => environment.compile(expression).ok(),
        };
        let field = match text("fieldPath").as_str() {
            "" => String::new(),
            path => paths::shown(path, schema).unwrap_or_default(),
        };
        Some(Self {
            uses_old: program.as_ref().is_ok_and(|program| program.uses(OLD)),
            text: text("rule"),
            message: text("message"),
            reason: text("reason"),
            field,
            optional_old,
            program,
            message_program,
        })
    }

    /// What errors call the rule.
    fn shown(&self) -> &str {
        match self.message.trim() {
            "" => self.text.trim(),
            message => message,
        }
    }
}

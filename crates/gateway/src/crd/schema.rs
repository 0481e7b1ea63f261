//! Structural schemas out of `types.txt`.
//!
//! `alias NAME BASE attributes` names a scalar. `type NAME` names an object; each indented line below it is a field,
//! `name TYPE attributes`, with `!` behind the name where it is required. `[]` stands before the type of a list's items,
//! `map` for strings by strings. `@ RULE` is a rule of the object, `@field RULE` one of that field.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

const TYPES: &str = include_str!("types.txt");

#[derive(Default)]
struct Type {
    fields: Vec<(String, bool, String)>,
    rules: Vec<(String, String)>,
}

/// All types by their name.
pub struct Types {
    aliases: HashMap<String, String>,
    types: HashMap<String, Type>,
}

impl Types {
    pub fn read() -> Self {
        let (mut aliases, mut types) = (HashMap::new(), HashMap::new());
        let mut current = None;
        for line in TYPES.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let (first, rest) = line.trim_start().split_once(' ').unwrap_or((line.trim(), ""));
            if !line.starts_with(' ') {
                match first {
                    "alias" => {
                        let (name, definition) = rest.split_once(' ').unwrap_or((rest, ""));
                        aliases.insert(name.to_owned(), definition.to_owned());
                    }
                    _ => {
                        current = Some(rest.to_owned());
                        types.insert(rest.to_owned(), Type::default());
                    }
                }
            } else if let Some(known) = current.as_ref().and_then(|name| types.get_mut(name)) {
                match first.strip_prefix('@') {
                    Some(field) => known.rules.push((field.to_owned(), rest.to_owned())),
                    None => {
                        let name = first.trim_end_matches('!');
                        known.fields.push((name.to_owned(), first.ends_with('!'), rest.to_owned()));
                    }
                }
            }
        }
        Self { aliases, types }
    }

    /// The schema of a type. Types do not contain themselves.
    pub fn schema(&self, name: &str) -> Value {
        let Some(known) = self.types.get(name) else { return json!({ "type": "object" }) };
        let mut properties = Map::new();
        for (field, _, definition) in &known.fields {
            properties.insert(field.clone(), self.field(definition));
        }
        let required: Vec<_> =
            known.fields.iter().filter(|(_, required, _)| *required).map(|(name, ..)| name).collect();
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        for (field, rule) in &known.rules {
            let place = match field.as_str() {
                "" => &mut schema,
                field => &mut schema["properties"][field],
            };
            add_rule(place, rule);
        }
        schema
    }

    fn field(&self, definition: &str) -> Value {
        let (kind, attributes) = definition.split_once(' ').unwrap_or((definition, ""));
        if let Some(item) = kind.strip_prefix("[]") {
            let mut schema = json!({ "type": "array", "items": self.field(item) });
            apply(&mut schema, attributes);
            return schema;
        }
        let mut schema = match kind {
            "map" => json!({ "type": "object", "additionalProperties": { "type": "string", "maxLength": 4096 } }),
            "string" | "integer" | "boolean" => json!({ "type": kind }),
            _ => match self.aliases.get(kind) {
                Some(alias) => self.field(alias),
                None => self.schema(kind),
            },
        };
        apply(&mut schema, attributes);
        schema
    }
}

fn add_rule(schema: &mut Value, rule: &str) {
    let rule = json!({ "rule": rule });
    match schema["x-kubernetes-validations"].as_array_mut() {
        Some(list) => list.push(rule),
        None => schema["x-kubernetes-validations"] = json!([rule]),
    }
}

/// Attributes end at a blank; a default and a pattern go on to the end of the line.
fn apply(schema: &mut Value, attributes: &str) {
    let mut rest = attributes.trim_start();
    while let Some((name, after)) = rest.split_once('=') {
        let to_the_end = matches!(name, "default" | "pattern");
        let (value, next) = if to_the_end { (after, "") } else { after.split_once(' ').unwrap_or((after, "")) };
        rest = next.trim_start();
        let (low, high) = value.split_once("..").unwrap_or((value, ""));
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = |schema: &mut Value, lowest: &str, most: &str| {
            if let Some(low) = number(low).filter(|low| *low > 0 || lowest == "minimum") {
                schema[lowest] = json!(low);
            }
            if let Some(high) = number(high) {
                schema[most] = json!(high);
            }
        };
        match name {
            "default" => schema["default"] = serde_json::from_str(value).unwrap_or_default(),
            "pattern" => schema["pattern"] = json!(value),
            "format" => schema["format"] = json!(value),
            "enum" => schema["enum"] = value.split('|').collect(),
            "numbers" => schema["enum"] = value.split('|').filter_map(number).collect(),
            "each" => schema["items"]["enum"] = value.split('|').collect(),
            "within" => bound(&mut schema["items"], "minimum", "maximum"),
            "len" => bound(schema, "minLength", "maxLength"),
            "range" => bound(schema, "minimum", "maximum"),
            "items" => bound(schema, "minItems", "maxItems"),
            "most" => schema["maxProperties"] = json!(number(value)),
            "list" => match value.split_once(':') {
                Some((kind, key)) => {
                    schema["x-kubernetes-list-type"] = json!(kind);
                    schema["x-kubernetes-list-map-keys"] = json!([key]);
                }
                None => schema["x-kubernetes-list-type"] = json!(value),
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every type that a field names is there, and every attribute is known.
    #[test]
    fn types_are_whole() {
        let types = Types::read();
        let scalars = ["string", "integer", "boolean", "map"];
        let known =
            |name: &str| scalars.contains(&name) || types.aliases.contains_key(name) || types.types.contains_key(name);
        for (name, one) in &types.types {
            for (field, _, definition) in &one.fields {
                let kind = definition.split(' ').next().unwrap().trim_start_matches("[]");
                assert!(known(kind), "{name}.{field} is of type {kind}, which is not there");
            }
            for (field, _) in one.rules.iter().filter(|(field, _)| !field.is_empty()) {
                assert!(one.fields.iter().any(|(known, ..)| known == field), "{name} has a rule for {field}");
            }
        }
    }

    #[test]
    fn fields_have_their_bounds() {
        let route = Types::read().schema("HTTPRouteSpec");
        assert_eq!(route.pointer("/properties/rules/maxItems"), Some(&json!(16)));
        assert_eq!(
            route.pointer("/properties/rules/items/properties/retry/properties/codes/items/minimum"),
            Some(&json!(400))
        );
        assert_eq!(
            route.pointer("/properties/rules/items/properties/matches/items/properties/path/default"),
            Some(&json!({ "type": "PathPrefix", "value": "/" }))
        );
        assert_eq!(route.pointer("/properties/parentRefs/items/required"), Some(&json!(["name"])));
        let gateway = Types::read().schema("GatewaySpec");
        assert_eq!(gateway.pointer("/properties/listeners/x-kubernetes-list-map-keys"), Some(&json!(["name"])));
        assert_eq!(gateway.pointer("/properties/listeners/items/properties/port/maximum"), Some(&json!(65535)));
    }
}

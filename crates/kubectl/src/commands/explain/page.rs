//! The page of a kind or a field: description, type, allowed values, the fields below.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::discovery::Resource;
use crate::error::Error;

pub struct Page<'a> {
    pub document: &'a Value,
    pub recursive: bool,
    /// 0 for no end but that of the schema.
    pub depth: usize,
}

/// Schemas of a chain of references are read so far; a document may lead in circles.
const DEEPEST: usize = 64;
/// A list of maps of lists: so many schemas describe one field.
const NESTED: usize = 6;

impl<'a> Page<'a> {
    /// What could be said, and what could not be found.
    pub fn whole(&self, resource: &Resource, fields: &[String]) -> (String, Option<Error>) {
        let Some(gvk) = self.gvk(resource) else {
            let gvr = format!("{}/{}, Resource={}", resource.group, resource.version, resource.plural);
            return (String::new(), Some(Error::say(format!("error: GVR ({gvr}) not found in OpenAPI schema"))));
        };
        let text = |field: &str| gvk[field].as_str().unwrap_or_default();
        let mut out = String::new();
        if !text("group").is_empty() {
            out.push_str(&format!("GROUP:      {}\n", text("group")));
        }
        out.push_str(&format!("KIND:       {}\nVERSION:    {}\n\n", text("kind"), text("version")));
        let is_it = |schema: &&Value| {
            schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|list| list.contains(gvk))
        };
        let schemas = self.document["components"]["schemas"].as_object();
        let Some(schema) = schemas.into_iter().flat_map(Map::values).find(is_it) else {
            let shown = format!("map[group:{} kind:{} version:{}]", text("group"), text("kind"), text("version"));
            return (out, Some(Error::say(format!("error: GVK {shown} not found in OpenAPI schema"))));
        };
        match self.output(schema, fields, &HashSet::new()) {
            Some(page) => {
                out.push_str(&page);
                out.push('\n');
                (out, None)
            }
            None => {
                let field = fields.last().map(String::as_str).unwrap_or_default();
                (out, Some(Error::say(format!("error: field \"{field}\" does not exist"))))
            }
        }
    }

    /// The kind that the paths of a resource tell.
    fn gvk(&self, resource: &Resource) -> Option<&'a Value> {
        let collection = resource.collection(None);
        let below = collection.trim_end_matches(&*resource.plural).to_owned();
        let namespaced = format!("{below}namespaces/{{namespace}}/{}", resource.plural);
        let mut found = None;
        for path in [&collection, &format!("{collection}/{{name}}"), &namespaced, &format!("{namespaced}/{{name}}")] {
            let operations = &self.document["paths"][path];
            for method in ["get", "post", "put", "patch", "delete"] {
                let gvk = &operations[method]["x-kubernetes-group-version-kind"];
                if gvk.is_object() {
                    found = Some(gvk);
                    break;
                }
            }
        }
        found
    }

    fn resolve(&self, reference: &str) -> Option<&'a Value> {
        self.document.pointer(reference.strip_prefix('#')?)
    }

    fn resolved(&self, schema: &'a Value) -> &'a Value {
        schema["$ref"].as_str().and_then(|reference| self.resolve(reference)).unwrap_or(schema)
    }

    fn output(&self, schema: &'a Value, fields: &[String], seen: &HashSet<&'a str>) -> Option<String> {
        let reference = schema["$ref"].as_str().unwrap_or_default();
        let resolved = self.resolved(schema);
        let Some((field, rest)) = fields.split_first() else {
            return Some(self.described(resolved));
        };
        if !reference.is_empty() && seen.contains(reference) {
            return None;
        }
        let mut seen = seen.clone();
        seen.insert(reference);
        if let Some(below) = resolved["properties"].get(field) {
            let mut out = String::new();
            if rest.is_empty() {
                out.push_str(&format!("FIELD: {field} <{}>\n", self.type_of(below, 0)));
                if let Some(values) = below["enum"].as_array().filter(|values| !values.is_empty()) {
                    out.push_str("ENUM:");
                    values.iter().for_each(|value| out.push_str(&format!("\n    {}", shown(value))));
                }
                out.push_str("\n\n");
            }
            let page = self.output(below, rest, &HashSet::new());
            return match page {
                Some(page) => Some(out + &page),
                None if out.is_empty() => None,
                None => Some(out),
            };
        }
        if let Some(items) = some(&resolved["items"]) {
            return self.output(items, fields, &seen);
        }
        if let Some(values) = schema_of_values(resolved) {
            return self.output(values, fields, &seen);
        }
        let all = resolved["allOf"].as_array().map_or(&[][..], Vec::as_slice);
        all.iter().find_map(|one| self.output(one, fields, &seen))
    }

    fn described(&self, schema: &'a Value) -> String {
        let mut description = String::new();
        self.description(schema, &mut description, 0);
        if description.is_empty() {
            description.push_str("<empty>");
        }
        let mut out = format!("DESCRIPTION:\n{}\n", indent(4, &wrap(76, &description)));
        if let Some(docs) = some(&schema["externalDocs"]) {
            out.push_str(&format!("\nEXTERNAL DOCS:\n{}", external(docs, 76, 4)));
        }
        let mut list = String::new();
        self.fields(schema, 1, &HashSet::new(), &mut list);
        if !list.is_empty() {
            out.push_str("FIELDS:\n");
            out.push_str(&list);
        }
        out
    }

    /// Of the schema and of those that it is made of.
    fn description(&self, schema: &'a Value, out: &mut String, deep: usize) {
        if deep > NESTED {
            return;
        }
        let schema = self.resolved(schema);
        if let Some(text) = schema["description"].as_str().filter(|text| !text.is_empty()) {
            out.push_str(text);
            out.push('\n');
        }
        let parts = schema["allOf"].as_array().into_iter().flatten();
        for part in parts.chain(some(&schema["items"])).chain(schema_of_values(schema)) {
            self.description(part, out, deep + 1);
        }
    }

    fn fields(&self, schema: &'a Value, level: usize, seen: &HashSet<&'a str>, out: &mut String) {
        let reference = schema["$ref"].as_str().unwrap_or_default();
        if level > DEEPEST || (!reference.is_empty() && seen.contains(reference)) {
            return;
        }
        let mut seen = seen.clone();
        seen.insert(reference);
        let schema = self.resolved(schema);
        let mut properties: Vec<(&String, &Value)> = schema["properties"].as_object().into_iter().flatten().collect();
        properties.sort_by_key(|(name, _)| *name);
        for (name, below) in properties {
            self.field(schema, name, below, level, out);
            if self.recursive && (self.depth == 0 || level < self.depth) {
                self.fields(below, level + 1, &seen, out);
            }
        }
        let parts = schema["allOf"].as_array().into_iter().flatten();
        for part in parts.chain(some(&schema["items"])).chain(schema_of_values(schema)) {
            self.fields(part, level, &seen, out);
        }
    }

    fn field(&self, parent: &Value, name: &str, schema: &'a Value, level: usize, out: &mut String) {
        let column = level * 2;
        out.push_str(&format!("{}\t<{}>", indent(column, name), self.type_of(schema, 0)));
        if parent["required"].as_array().is_some_and(|list| list.iter().any(|field| field == name)) {
            out.push_str(" -required-");
        }
        if let Some(values) = schema["enum"].as_array().filter(|values| !values.is_empty()) {
            let some: Vec<String> = values.iter().take(4).map(shown).collect();
            let more = if values.len() > 4 { ", ...." } else { "" };
            out.push_str(&format!("\n{}enum: {}{more}", " ".repeat(column), some.join(", ")));
        }
        out.push('\n');
        if self.recursive {
            return;
        }
        let text = schema["description"].as_str().filter(|text| !text.is_empty()).unwrap_or("<no description>");
        out.push_str(&indent(column + 2, &wrap(78 - column, text)));
        out.push('\n');
        if let Some(docs) = some(&schema["externalDocs"]) {
            out.push_str(&format!("\n{}\n", indent(column + 2, "EXTERNAL DOCS:")));
            out.push_str(&external(docs, 76 - column, column + 4));
        }
        out.push('\n');
    }

    /// `string`, `[]Container`, `map[string]string`, `PodSpec`.
    fn type_of(&self, schema: &Value, deep: usize) -> String {
        let of_type = |schema: &Value| match schema["type"].as_str() {
            None | Some("object" | "") => "Object".to_owned(),
            Some(name) => name.to_owned(),
        };
        if deep > DEEPEST {
            return of_type(schema);
        }
        if let Some(items) = some(&schema["items"]) {
            return format!("[]{}", self.type_of(items, deep + 1));
        }
        if let Some(values) = schema_of_values(schema) {
            return format!("map[string]{}", self.type_of(values, deep + 1));
        }
        if let Some([one]) = schema["allOf"].as_array().map(Vec::as_slice).filter(|_| schema["properties"].is_null()) {
            return self.type_of(one, deep + 1);
        }
        let Some(reference) = schema["$ref"].as_str() else { return of_type(schema) };
        match self.resolve(reference).and_then(|schema| schema["type"].as_str()) {
            None | Some("object" | "") => {
                let name = reference.rsplit('/').next().unwrap_or_default();
                let last = name.rsplit('.').next().unwrap_or_default();
                if last.is_empty() { "Object".to_owned() } else { last.to_owned() }
            }
            Some(name) => name.to_owned(),
        }
    }
}

fn some(schema: &Value) -> Option<&Value> {
    Some(schema).filter(|schema| schema.as_object().is_some_and(|map| !map.is_empty()))
}

fn schema_of_values(schema: &Value) -> Option<&Value> {
    some(&schema["additionalProperties"])
}

fn external(docs: &Value, width: usize, column: usize) -> String {
    let mut out = String::new();
    if let Some(text) = docs["description"].as_str().filter(|text| !text.is_empty()) {
        out.push_str(&format!("{}\n", indent(column, &wrap(width, text))));
    }
    if let Some(url) = docs["url"].as_str().filter(|url| !url.is_empty()) {
        out.push_str(&format!("{}\n", indent(column, &format!("URL: {url}"))));
    }
    out
}

fn shown(value: &Value) -> String {
    match value.as_str() {
        Some("") => "\"\"".to_owned(),
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

fn indent(columns: usize, text: &str) -> String {
    let space = " ".repeat(columns);
    format!("{space}{}", text.replace('\n', &format!("\n{space}")))
}

/// Breaks lines at spaces; a space that does not fit is gone.
fn wrap(width: usize, text: &str) -> String {
    let (mut out, mut word, mut space) = (String::with_capacity(text.len() + 16), String::new(), String::new());
    let (mut column, mut letters, mut spaces) = (0, 0, 0);
    for c in text.chars() {
        if c == '\n' {
            if !word.is_empty() || column + spaces <= width {
                out.push_str(&space);
            }
            out.push_str(&word);
            out.push('\n');
            (word, space) = (String::new(), String::new());
            (column, letters, spaces) = (0, 0, 0);
        } else if c.is_whitespace() && c != '\u{a0}' {
            if space.is_empty() || !word.is_empty() {
                column += spaces + letters;
                out.push_str(&space);
                out.push_str(&word);
                (word, space) = (String::new(), String::new());
                (letters, spaces) = (0, 0);
            }
            space.push(c);
            spaces += 1;
        } else {
            word.push(c);
            letters += 1;
            if column + letters + spaces > width && letters < width {
                out.push('\n');
                (column, spaces) = (0, 0);
                space.clear();
            }
        }
    }
    if !word.is_empty() || column + spaces <= width {
        out.push_str(&space);
    }
    out.push_str(&word);
    out
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrap(10, "one two three four\nfive\n"), "one two\nthree four\nfive\n");
        assert_eq!(wrap(4, "abcdefgh ij"), "abcdefgh\nij");
    }

    #[test]
    fn a_schema_that_is_part_of_itself_has_an_end() {
        let document = serde_json::json!({"components": {"schemas": {
            "Tree": {"description": "A tree.", "type": "object", "items": {"$ref": "#/components/schemas/Tree"}},
        }}});
        let page = super::Page { document: &document, recursive: true, depth: 0 };
        let tree = &document["components"]["schemas"]["Tree"];
        assert!(page.described(tree).starts_with("DESCRIPTION:\n    A tree."));
        assert!(page.type_of(&serde_json::json!({"$ref": "#/components/schemas/Tree"}), 0) == "Tree");
    }
}

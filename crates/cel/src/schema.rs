//! From OpenAPI schemas to types: which fields an object has, how long its lists and texts can be at most, and how its JSON reads.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::types::Type;

/// The largest request: nothing in an object is longer.
pub const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// A place of a schema as expressions see it.
#[derive(Clone, Debug)]
pub struct Decl {
    pub ty: Type,
    pub shape: Shape,
    /// How many items, keys or bytes there can be.
    pub max_elements: u64,
    /// How many bytes the smallest value takes in JSON.
    pub min_size: u64,
    pub nullable: bool,
}

/// How the JSON of a value reads.
#[derive(Clone, Debug)]
pub enum Shape {
    /// As it is written: numbers without a point are integers.
    Plain,
    /// Numbers are doubles, whatever is written.
    Double,
    Bytes,
    Duration,
    Date,
    DateTime,
    List {
        items: Arc<Decl>,
        kind: ListKind,
    },
    Map(Arc<Decl>),
    Object(Arc<Object>),
}

/// What makes two lists equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// An object with named fields.
#[derive(Debug)]
pub struct Object {
    pub name: String,
    /// By the name expressions use.
    pub fields: BTreeMap<String, Field>,
    /// Any field may be asked for; each is an object of this kind, or whatever it is given.
    pub open: bool,
}

#[derive(Clone, Debug)]
pub struct Field {
    /// The name in JSON.
    pub name: String,
    pub decl: Arc<Decl>,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Object {}

impl Hash for Object {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Decl {
    /// A declaration of a type alone, whose values read as they are written.
    pub fn of(ty: Type) -> Self {
        Self { ty, shape: Shape::Plain, max_elements: 0, min_size: 0, nullable: false }
    }

    /// An object with fields of the given types; expressions name them as they are.
    pub fn object(name: &str, fields: &[(&str, Decl)]) -> Self {
        let fields = fields
            .iter()
            .map(|(key, decl)| ((*key).to_owned(), Field { name: (*key).to_owned(), decl: Arc::new(decl.clone()) }));
        let object = Arc::new(Object { name: name.to_owned(), fields: fields.collect(), open: false });
        Self { shape: Shape::Object(object.clone()), ..Self::of(Type::Object(object)) }
    }

    pub fn list(items: Decl) -> Self {
        let ty = Type::list(items.ty.clone());
        Self { shape: Shape::List { items: Arc::new(items), kind: ListKind::Atomic }, ..Self::of(ty) }
    }

    pub fn map(values: Decl) -> Self {
        let ty = Type::map(Type::String, values.ty.clone());
        Self { shape: Shape::Map(Arc::new(values)), ..Self::of(ty) }
    }

    /// The declaration of a schema; None where expressions cannot see its values. `resource` is set for the root of a resource,
    /// whose kind, version and names are there whatever the schema says.
    pub fn from_schema(schema: &Json, name: &str, resource: bool) -> Option<Self> {
        let map = schema.as_object()?;
        let mut decl = declare(map, name, resource)?;
        decl.nullable = flag(map, "nullable");
        Some(decl)
    }

    pub(crate) fn items(&self) -> Option<&Decl> {
        match &self.shape {
            Shape::List { items, .. } => Some(items),
            Shape::Map(values) => Some(values),
            _ => None,
        }
    }

    /// Keys of the maps of a device are domains, and names in the maps below; of others nothing is known.
    pub(crate) fn longest_key(&self, values: &Decl) -> u64 {
        match (self.min_size == 0 && self.max_elements > 0, &values.shape) {
            (false, _) => 0,
            (true, Shape::Map(_)) => 63,
            (true, _) => 32,
        }
    }

    /// A map that was declared without a schema, whose values are of any type and of a known size.
    pub(crate) fn is_open(&self) -> bool {
        matches!(&self.shape, Shape::Map(values)
            if matches!(values.ty, Type::Dyn | Type::Any) && values.min_size == 0 && values.max_elements > 0)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        match &self.shape {
            Shape::Object(object) => object.fields.get(name),
            _ => None,
        }
    }
}

fn flag(map: &Map<String, Json>, key: &str) -> bool {
    map.get(key).and_then(Json::as_bool).unwrap_or(false)
}

fn count(map: &Map<String, Json>, key: &str) -> Option<u64> {
    map.get(key).and_then(Json::as_i64).map(|value| u64::try_from(value).unwrap_or(0))
}

fn declare(map: &Map<String, Json>, name: &str, resource: bool) -> Option<Decl> {
    let text = |key: &str| map.get(key).and_then(Json::as_str).unwrap_or_default();
    let longest = MAX_REQUEST_BYTES - 2;
    let length = || count(map, "maxLength").map(|length| length.saturating_mul(4));
    let simple = |ty, shape, min_size, max_elements| Some(Decl { ty, shape, max_elements, min_size, nullable: false });
    if flag(map, "x-kubernetes-int-or-string") {
        return simple(Type::Dyn, Shape::Plain, 1, length().unwrap_or(longest));
    }
    match text("type") {
        "array" => list(map, name),
        "object" => object(map, name, resource),
        "string" => match text("format") {
            "byte" => simple(Type::Bytes, Shape::Bytes, 2, count(map, "maxLength").unwrap_or(longest)),
            "duration" => simple(Type::Duration, Shape::Duration, 3, 32),
            "date" => simple(Type::Timestamp, Shape::Date, 12, 12),
            "date-time" => simple(Type::Timestamp, Shape::DateTime, 21, 32),
            _ => {
                let allowed = map.get("enum").and_then(Json::as_array).filter(|values| !values.is_empty());
                let of_enum = || {
                    let texts = allowed?.iter().filter_map(Json::as_str);
                    Some(texts.map(str::len).max().unwrap_or(0) as u64)
                };
                simple(Type::String, Shape::Plain, 2, length().or_else(of_enum).unwrap_or(longest))
            }
        },
        "boolean" => simple(Type::Bool, Shape::Plain, 4, 0),
        "number" => simple(Type::Double, Shape::Double, 1, 0),
        "integer" => simple(Type::Int, Shape::Plain, 1, 0),
        _ => None,
    }
}

fn list(map: &Map<String, Json>, name: &str) -> Option<Decl> {
    let schema = map.get("items")?;
    let embedded = schema.as_object().is_some_and(|items| flag(items, "x-kubernetes-embedded-resource"));
    let items = Decl::from_schema(schema, &format!("{name}.@idx"), embedded)?;
    let most = (MAX_REQUEST_BYTES - 2) / (items.min_size + 1);
    let keys = || {
        let keys = map.get("x-kubernetes-list-map-keys").and_then(Json::as_array).into_iter().flatten();
        keys.filter_map(Json::as_str).map(str::to_owned).collect()
    };
    let kind = match map.get("x-kubernetes-list-type").and_then(Json::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => ListKind::Map(keys()),
        _ => ListKind::Atomic,
    };
    Some(Decl {
        ty: Type::list(items.ty.clone()),
        max_elements: count(map, "maxItems").unwrap_or(most),
        shape: Shape::List { items: Arc::new(items), kind },
        min_size: 2,
        nullable: false,
    })
}

fn object(map: &Map<String, Json>, name: &str, resource: bool) -> Option<Decl> {
    if let Some(schema) = map.get("additionalProperties").filter(|schema| schema.is_object()) {
        let embedded = schema.as_object().is_some_and(|values| flag(values, "x-kubernetes-embedded-resource"));
        let values = Decl::from_schema(schema, &format!("{name}.@elem"), embedded)?;
        let most = (MAX_REQUEST_BYTES - 2) / (values.min_size + 6);
        return Some(Decl {
            ty: Type::map(Type::String, values.ty.clone()),
            max_elements: count(map, "maxProperties").unwrap_or(most),
            shape: Shape::Map(Arc::new(values)),
            min_size: 2,
            nullable: false,
        });
    }
    let empty = Map::new();
    let properties = map.get("properties").and_then(Json::as_object).unwrap_or(&empty);
    let required: Vec<&str> =
        map.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
    let mut fields = BTreeMap::new();
    let mut min_size = 2;
    let mut add = |key: &str, schema: &Json, embedded: bool| {
        let Some(decl) = Decl::from_schema(schema, &format!("{name}.{key}"), embedded) else { return };
        if required.contains(&key) && schema.get("default").is_none_or(Json::is_null) {
            min_size += key.len() as u64 + decl.min_size + 4;
        }
        if let Some(escaped) = escape(key) {
            fields.insert(escaped, Field { name: key.to_owned(), decl: Arc::new(decl) });
        }
    };
    for (key, schema) in properties {
        let embedded = schema.as_object().is_some_and(|inner| flag(inner, "x-kubernetes-embedded-resource"));
        add(key, schema, embedded);
    }
    if resource {
        let string = serde_json::json!({"type": "string"});
        add("kind", &string, false);
        add("apiVersion", &string, false);
        let names = serde_json::json!({"type": "object", "properties": {"name": string, "generateName": string}});
        add("metadata", &names, false);
    }
    let object = Arc::new(Object { name: name.to_owned(), fields, open: false });
    Some(Decl {
        ty: Type::Object(object.clone()),
        shape: Shape::Object(object),
        max_elements: 0,
        min_size,
        nullable: false,
    })
}

/// Words that CEL keeps for itself: no field or variable is called so.
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name of a field in expressions; None where it cannot be named there.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            escaped.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => escaped.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_escaped_as_upstream_does() {
        let cases = [
            ("a", Some("a")),
            ("a.b", Some("a__dot__b")),
            ("a-b/c", Some("a__dash__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("namespace", Some("__namespace__")),
            ("1a", None),
            ("ä", None),
            ("", None),
        ];
        for (name, wanted) in cases {
            assert_eq!(escape(name).as_deref(), wanted, "{name}");
        }
    }
}

//! Values of expressions. JSON is looked at where it lies; only what an expression makes is copied.

mod collections;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use base64::Engine;
use ferry_meta::Quantity;
use ferry_meta::bounds::{self, Extent};
use jiff::Timestamp;
use serde_json::Value as Json;

use crate::authorization::{Authority, AuthorizerDecision, Check};
use crate::error::Error;
use crate::library::format::NamedFormat;
use crate::library::network::Cidr;
use crate::library::semver::Semver;
use crate::library::time;
use crate::library::url::Url;
use crate::schema::{Decl, ListKind, Object, Shape};
use crate::types::Type;
use crate::work::{self, Counting};

/// What one expression can make at most, as deep as expressions nest.
const MOST_LEVELS: usize = 500;

#[derive(Clone, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(List<'a>),
    Map(Map<'a>),
    Type(Type),
    Optional(Option<Arc<Value<'a>>>),
    /// An object that the expression made.
    Object(Arc<Made<'a>>),
    Quantity(Arc<Quantity>),
    Url(Arc<Url>),
    Semver(Arc<Semver>),
    Ip(IpAddr),
    Cidr(Cidr),
    Format(&'static NamedFormat),
    Authorizer(Arc<Authority>),
    Check(Arc<Check>),
    Decision(Arc<AuthorizerDecision>),
}

/// A text that lies elsewhere, or one of its own.
#[derive(Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[derive(Clone, Debug)]
pub enum List<'a> {
    Json { items: &'a [Json], of: Option<&'a Decl>, kind: Option<&'a ListKind> },
    Values(Arc<Vec<Value<'a>>>),
}

#[derive(Clone, Debug)]
pub enum Map<'a> {
    Json {
        map: &'a serde_json::Map<String, Json>,
        decl: Option<&'a Decl>,
    },
    Values(Arc<BTreeMap<Key<'a>, (Value<'a>, Value<'a>)>>),
    /// The same; whoever asks for a key that is not there gets an empty map.
    Open(Arc<BTreeMap<Key<'a>, (Value<'a>, Value<'a>)>>),
}

/// Keys of maps; whole numbers are the same whatever their type.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    Bool(bool),
    Number(i128),
    Text(Text<'a>),
}

/// An object made by an expression, such as `Object.spec{…}`.
#[derive(Debug)]
pub struct Made<'a> {
    pub object: Arc<Object>,
    pub fields: Vec<(String, Value<'a>)>,
}

/// As `%s` shows it in messages.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _counting = Counting::start();
        match crate::library::printf::shown(self) {
            Ok(text) => f.write_str(&text),
            Err(_) => write!(f, "<{}>", self.type_name()),
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::String(Text::Shared(text.into()))
    }
}

impl<'a> From<Vec<Value<'a>>> for Value<'a> {
    fn from(items: Vec<Value<'a>>) -> Self {
        Self::List(List::Values(Arc::new(items)))
    }
}

impl<'a> Value<'a> {
    /// JSON as it is written.
    pub fn json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Self::Int(int),
                (None, Some(uint)) => Self::Uint(uint),
                _ => Self::Double(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => Self::from(text.as_str()),
            Json::Array(items) => Self::List(List::Json { items, of: None, kind: None }),
            Json::Object(map) => Self::Map(Map::Json { map, decl: None }),
        }
    }

    /// JSON as its schema says.
    pub fn typed(json: &'a Json, decl: Option<&'a Decl>) -> Result<Self, Error> {
        let Some(decl) = decl else { return Ok(Self::json(json)) };
        let wrong = |what: &str| Err(Error::new(format!("invalid data, expected {what}")));
        match (&decl.shape, json) {
            (Shape::Plain, _) | (_, Json::Null) => Ok(Self::json(json)),
            (Shape::Double, Json::Number(number)) => Ok(Self::Double(number.as_f64().unwrap_or_default())),
            (Shape::Double, _) => wrong("float"),
            (Shape::List { items: of, kind }, Json::Array(items)) => {
                Ok(Self::List(List::Json { items, of: Some(of), kind: Some(kind) }))
            }
            (Shape::List { .. }, _) => wrong("an array for the provided schema with type=array"),
            (Shape::Map(_) | Shape::Object(_), Json::Object(map)) => Ok(Self::Map(Map::Json { map, decl: Some(decl) })),
            (Shape::Map(_) | Shape::Object(_), _) => wrong("a map for the provided schema with type=object"),
            (Shape::Bytes, Json::String(text)) => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                let bytes =
                    bytes.map_err(|error| Error::new(format!("Invalid byte formatted string {text}: {error}")))?;
                Ok(Self::Bytes(bytes.into()))
            }
            (Shape::Duration, Json::String(text)) => ferry_semantics::duration::parse_format(text)
                .map(Self::Duration)
                .ok_or_else(|| Error::new(format!("Invalid duration {text}"))),
            (Shape::Date, Json::String(text)) => {
                let day = time::parse_timestamp(&format!("{text}T00:00:00Z"));
                day.map(Self::Timestamp).ok_or_else(|| Error::new(format!("Invalid date formatted string {text}")))
            }
            (Shape::DateTime, Json::String(text)) => time::parse_timestamp(text)
                .map(Self::Timestamp)
                .ok_or_else(|| Error::new(format!("Invalid date-time formatted string {text}"))),
            _ => wrong("string"),
        }
    }

    pub fn list(items: Vec<Value<'a>>) -> Self {
        Self::from(items)
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The type a value has when it is asked.
    pub fn ty(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Type(_) => Type::Type(None),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Object(made) => Type::Object(made.object.clone()),
            Self::Quantity(_) => Type::Opaque("kubernetes.Quantity"),
            Self::Url(_) => Type::Opaque("kubernetes.URL"),
            Self::Semver(_) => Type::Opaque("kubernetes.Semver"),
            Self::Ip(_) => Type::Opaque("net.IP"),
            Self::Cidr(_) => Type::Opaque("net.CIDR"),
            Self::Format(_) => Type::Opaque("kubernetes.NamedFormat"),
            Self::Authorizer(_) => Type::Opaque("kubernetes.authorization.Authorizer"),
            Self::Check(check) => Type::Opaque(check.type_name()),
            Self::Decision(_) => Type::Opaque("kubernetes.authorization.Decision"),
        }
    }

    /// The type as messages name it.
    pub fn type_name(&self) -> String {
        match self {
            Self::Null => "null_type".to_owned(),
            Self::Duration(_) => "google.protobuf.Duration".to_owned(),
            Self::Timestamp(_) => "google.protobuf.Timestamp".to_owned(),
            Self::List(_) => "list".to_owned(),
            Self::Map(_) => "map".to_owned(),
            Self::Optional(_) => "optional_type".to_owned(),
            other => other.ty().to_string(),
        }
    }

    /// Whether more values stand in each other than they may: dropping them would take as much of the stack. Those that an expression
    /// makes can stand in those that others made.
    pub fn is_too_deep(&self) -> bool {
        fn parts<'v, 'a>(value: &'v Value<'a>) -> Box<dyn Iterator<Item = &'v Value<'a>> + 'v> {
            match value {
                Value::List(List::Values(items)) => Box::new(items.iter()),
                Value::Map(Map::Values(entries) | Map::Open(entries)) => {
                    Box::new(entries.values().map(|(_, value)| value))
                }
                Value::Optional(Some(of)) => Box::new(std::iter::once(&**of)),
                Value::Object(made) => Box::new(made.fields.iter().map(|(_, value)| value)),
                _ => Box::new(std::iter::empty()),
            }
        }
        /// Parts that are shared are looked at once.
        fn depth<'v, 'a>(value: &'v Value<'a>, room: usize, known: &mut HashMap<*const (), usize>) -> usize {
            let shared: *const () = match value {
                Value::List(List::Values(items)) => Arc::as_ptr(items).cast(),
                Value::Map(Map::Values(entries) | Map::Open(entries)) => Arc::as_ptr(entries).cast(),
                Value::Optional(Some(of)) => Arc::as_ptr(of).cast(),
                Value::Object(made) => Arc::as_ptr(made).cast(),
                _ => return 0,
            };
            if let Some(known) = known.get(&shared) {
                return *known;
            }
            if room == 0 {
                return usize::MAX;
            }
            let below = parts(value).map(|part| depth(part, room - 1, known)).max().unwrap_or_default();
            let own = below.saturating_add(1);
            known.insert(shared, own);
            own
        }
        depth(self, MOST_LEVELS, &mut HashMap::new()) > MOST_LEVELS
    }

    /// How many characters, items or keys there are; one for anything else.
    pub(crate) fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Optional(Some(of)) => return of.size(),
            Self::Cidr(cidr) => return if cidr.address.is_ipv4() { 4 } else { 16 },
            Self::Ip(ip) => return if ip.is_ipv4() { 4 } else { 16 },
            _ => 1,
        };
        size as u64
    }

    /// The value under a field or key, if it is there.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        match self {
            Self::Map(map) => map.get_text(name),
            Self::Object(made) => Ok(made.fields.iter().find(|(have, _)| have == name).map(|(_, value)| value.clone())),
            Self::Optional(Some(of)) => of.get(name),
            _ => Ok(None),
        }
    }

    /// As JSON; None for what has no form there, and for what would be larger or deeper than values may be.
    pub fn to_json(&self) -> Option<Json> {
        self.to_json_within(bounds::HEAVIEST)
    }

    /// The same, of this weight at most. Parts that a value shares are there several times in JSON.
    pub(crate) fn to_json_within(&self, weight: usize) -> Option<Json> {
        let _counting = Counting::start();
        self.json_at(0, &mut { weight })
    }

    fn json_at(&self, depth: usize, left: &mut usize) -> Option<Json> {
        let mut weigh = |bytes: usize| {
            *left = left.checked_sub(bytes)?;
            work::step(1).then_some(())
        };
        if depth > bounds::DEEPEST {
            return None;
        }
        let scalar = |text: String| Some(Json::String(text));
        let json = match self {
            Self::Null => Json::Null,
            Self::Bool(value) => (*value).into(),
            Self::Int(value) => (*value).into(),
            Self::Uint(value) => (*value).into(),
            // A double without a fraction is a whole number in JSON.
            Self::Double(value) if value.fract() == 0.0 && value.abs() < 9.0e15 => (*value as i64).into(),
            Self::Double(value) => serde_json::Number::from_f64(*value)?.into(),
            Self::String(text) => {
                weigh(text.len())?;
                return scalar((**text).to_owned());
            }
            Self::Bytes(bytes) => {
                weigh(2 * bytes.len())?;
                return scalar(base64::engine::general_purpose::STANDARD.encode(bytes));
            }
            Self::Duration(nanos) => ferry_semantics::duration::show(*nanos).into(),
            Self::Timestamp(time) => time::show_timestamp(*time).into(),
            Self::List(list) => {
                weigh(list.len() * bounds::ITEM)?;
                let items = (0..list.len()).map(|index| list.get(index).ok().flatten()?.json_at(depth + 1, left));
                Json::Array(items.collect::<Option<_>>()?)
            }
            Self::Map(Map::Json { map, .. }) => {
                let extent = Extent::of_map(map);
                if depth + extent.depth > bounds::DEEPEST || !work::text(extent.weight) {
                    return None;
                }
                weigh(extent.weight)?;
                Json::Object((*map).clone())
            }
            Self::Map(Map::Values(entries) | Map::Open(entries)) => {
                let mut map = serde_json::Map::new();
                for (key, value) in entries.values() {
                    let Self::String(key) = key else { return None };
                    *left =
                        left.checked_sub(bounds::ENTRY + key.len() + if map.is_empty() { bounds::MAP } else { 0 })?;
                    map.insert((**key).to_owned(), value.json_at(depth + 1, left)?);
                }
                Json::Object(map)
            }
            Self::Optional(Some(of)) => of.json_at(depth + 1, left)?,
            Self::Object(made) => {
                weigh(bounds::MAP + made.fields.len() * bounds::ENTRY)?;
                let fields =
                    made.fields.iter().map(|(name, value)| Some((name.clone(), value.json_at(depth + 1, left)?)));
                Json::Object(fields.collect::<Option<_>>()?)
            }
            _ => return None,
        };
        Some(json)
    }
}

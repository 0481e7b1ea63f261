//! Types of expressions, and which may stand where another is asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::schema::Object;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Dyn,
    /// Like `dyn`, but nothing can go through it: attributes of devices.
    Any,
    /// Of an expression that was refused already.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// The type of a type.
    Type(Option<Arc<Type>>),
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    Optional(Arc<Type>),
    /// A letter in a function's signature.
    Parameter(char),
    /// A letter of one call, to be found out.
    Variable(usize),
    /// An object with named fields.
    Object(Arc<Object>),
    /// A type of a library, such as `kubernetes.Quantity`.
    Opaque(&'static str),
}

/// The opaque types, by the names they have in texts.
pub(crate) const OPAQUE: [&str; 11] = [
    "kubernetes.URL",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
    "net.IP",
    "net.CIDR",
    "kubernetes.authorization.Authorizer",
    "kubernetes.authorization.PathCheck",
    "kubernetes.authorization.GroupCheck",
    "kubernetes.authorization.ResourceCheck",
    "kubernetes.authorization.Decision",
];

impl Type {
    pub fn list(of: Type) -> Self {
        Self::List(Arc::new(of))
    }

    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(of: Type) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// The name that upstream's messages have for it.
    pub fn go_name(&self) -> String {
        match self {
            Self::Null => "null_type".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::List(of) => format!("list({})", of.go_name()),
            Self::Map(key, value) => format!("map({}, {})", key.go_name(), value.go_name()),
            Self::Optional(of) => format!("optional_type({})", of.go_name()),
            other => other.to_string(),
        }
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any | Self::Error)
    }

    /// Reads a type of a signature.
    pub(crate) fn parse(text: &str) -> Self {
        let inside = |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(')'));
        if let Some(inner) = inside("list(") {
            return Self::list(Self::parse(inner));
        }
        if let Some(inner) = inside("optional_type(") {
            return Self::optional(Self::parse(inner));
        }
        if let Some(inner) = inside("type(") {
            return Self::Type(Some(Arc::new(Self::parse(inner))));
        }
        if let Some(inner) = inside("map(") {
            let parts = split(inner);
            return Self::map(Self::parse(parts[0]), Self::parse(parts.get(1).copied().unwrap_or("dyn")));
        }
        match text {
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "duration" => Self::Duration,
            "timestamp" => Self::Timestamp,
            "null" => Self::Null,
            _ => match (text.len(), text.chars().next()) {
                (1, Some(letter)) => Self::Parameter(letter),
                _ => OPAQUE.iter().find(|name| **name == text).map_or(Self::Dyn, |name| Self::Opaque(name)),
            },
        }
    }
}

/// The parts of a list of types, split at its own commas only.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    if start < text.len() {
        parts.push(text[start..].trim());
    }
    parts
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Type(None) => f.write_str("type"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Parameter(letter) => write!(f, "{letter}"),
            Self::Variable(number) => write!(f, "_var{number}"),
            Self::Object(object) => f.write_str(&object.name),
            Self::Opaque(name) => f.write_str(name),
        }
    }
}

/// What the letters of calls were found to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapping {
    found: HashMap<usize, Type>,
}

impl Mapping {
    /// The type with what is known put in; letters that stay unknown become `dyn` if asked for.
    pub fn substitute(&self, ty: &Type, to_dyn: bool) -> Type {
        match ty {
            Type::Variable(number) => match self.found.get(number) {
                Some(found) => self.substitute(found, to_dyn),
                None if to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(of) => Type::list(self.substitute(of, to_dyn)),
            Type::Map(key, value) => Type::map(self.substitute(key, to_dyn), self.substitute(value, to_dyn)),
            Type::Optional(of) => Type::optional(self.substitute(of, to_dyn)),
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(self.substitute(of, to_dyn)))),
            _ => ty.clone(),
        }
    }

    /// Whether every one of `given` may stand where `wanted` is asked for; letters are only found out if all may.
    pub fn assign(&mut self, given: &[Type], wanted: &[Type]) -> bool {
        let mut tried = self.clone();
        let fits = given.len() == wanted.len() && given.iter().zip(wanted).all(|(one, two)| tried.assignable(one, two));
        if fits {
            *self = tried;
        }
        fits
    }

    fn assignable(&mut self, one: &Type, two: &Type) -> bool {
        if let Type::Variable(number) = two {
            let (valid, known) = self.put(*number, one);
            if valid || known {
                return valid;
            }
        }
        if let Type::Variable(number) = one {
            return self.put(*number, two).0;
        }
        if one.is_dyn_or_error() || two.is_dyn_or_error() {
            return true;
        }
        match (one, two) {
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(one), Type::List(two)) | (Type::Optional(one), Type::Optional(two)) => {
                self.assignable(one, two)
            }
            (Type::Map(key, value), Type::Map(other_key, other_value)) => {
                self.assignable(key, other_key) && self.assignable(value, other_value)
            }
            _ => one == two,
        }
    }

    /// Makes a letter stand for a type: whether it may, and whether it stood for something before.
    fn put(&mut self, number: usize, ty: &Type) -> (bool, bool) {
        if *ty == Type::Variable(number) {
            return (true, true);
        }
        if let Some(before) = self.found.get(&number).cloned() {
            if *ty == before {
                return (true, true);
            }
            if !self.assignable(ty, &before) {
                return (false, true);
            }
            let general = most_general(ty, &before);
            if !self.mentions(number, &general) {
                self.found.insert(number, general);
            }
            return (true, true);
        }
        if self.mentions(number, ty) {
            return (false, false);
        }
        self.found.insert(number, ty.clone());
        (true, false)
    }

    fn mentions(&self, number: usize, ty: &Type) -> bool {
        match ty {
            Type::Variable(other) if *other == number => true,
            Type::Variable(other) => self.found.get(other).is_some_and(|found| self.mentions(number, found)),
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => self.mentions(number, of),
            Type::Map(key, value) => self.mentions(number, key) || self.mentions(number, value),
            _ => false,
        }
    }
}

fn nullable(ty: &Type) -> bool {
    matches!(ty, Type::Null | Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Duration | Type::Timestamp)
}

pub(crate) fn most_general(one: &Type, two: &Type) -> Type {
    if is_as_general(one, two) { one.clone() } else { two.clone() }
}

fn is_as_general(one: &Type, two: &Type) -> bool {
    if matches!(one, Type::Dyn | Type::Any | Type::Error | Type::Variable(_) | Type::Parameter(_)) {
        return true;
    }
    if matches!(two, Type::Dyn | Type::Any | Type::Error | Type::Variable(_) | Type::Parameter(_)) {
        return false;
    }
    match (one, two) {
        (Type::List(one), Type::List(two)) | (Type::Optional(one), Type::Optional(two)) => is_as_general(one, two),
        (Type::Map(key, value), Type::Map(other_key, other_value)) => {
            is_as_general(key, other_key) && is_as_general(value, other_value)
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => one == two,
    }
}

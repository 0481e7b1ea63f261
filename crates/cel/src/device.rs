//! Selectors of devices (resource.k8s.io): what they can name, and a device as they see it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use ferry_meta::Quantity;

use crate::environment::Environment;
use crate::error::{CompileError, Error};
use crate::library::semver::Semver;
use crate::program::{Budget, PER_CALL_LIMIT, Program};
use crate::schema::{Decl, Shape};
use crate::types::Type;
use crate::value::{Key, List, Map, Text, Value};

/// What one expression may cost at most, beforehand and when it is run.
pub const MOST: u64 = PER_CALL_LIMIT;
/// How many attributes and capacities a device can have.
const MOST_NAMES: u64 = 32;
const LONGEST_VALUE: u64 = 64;
const LONGEST_DRIVER: u64 = 63;

static DEVICE: LazyLock<(Environment, Decl)> = LazyLock::new(|| {
    let of = |ty: Type, max_elements: u64| Decl { max_elements, ..Decl::of(ty) };
    let map = |values: Decl| Decl {
        ty: Type::map(Type::String, values.ty.clone()),
        max_elements: MOST_NAMES,
        shape: Shape::Map(Arc::new(values)),
        ..Decl::of(Type::Dyn)
    };
    let device = Decl::object(
        "kubernetes.DRADevice",
        &[
            ("driver", of(Type::String, LONGEST_DRIVER)),
            ("attributes", map(map(of(Type::Any, LONGEST_VALUE)))),
            ("capacity", map(map(of(Type::Opaque("kubernetes.Quantity"), 0)))),
            ("allowMultipleAllocations", of(Type::Bool, 1)),
        ],
    );
    (Environment::new().binding().variable("device", device.ty.clone()), device)
});

/// A compiled selector.
#[derive(Debug)]
pub struct Selector(Program);

/// A device as selectors see it; made once, asked often.
#[derive(Clone, Debug)]
pub struct Device(Value<'static>);

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    Bool(bool),
    Int(i64),
    String(String),
    Version(String),
    List(Vec<Attribute>),
}

/// Why a text is no selector, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorError {
    Compile(CompileError),
    /// It says neither yes nor no.
    Result(String),
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compile(error) => write!(f, "compilation failed: {error}"),
            Self::Result(found) => write!(f, "must evaluate to bool or the unknown type, not {found}"),
        }
    }
}

impl std::error::Error for SelectorError {}

/// For answers, which are texts.
impl From<SelectorError> for String {
    fn from(error: SelectorError) -> Self {
        error.to_string()
    }
}

/// Why selectors cannot see a device: the attribute that is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeError {
    Unsupported(String),
    /// It is to be a semantic version, and is none.
    Version {
        name: String,
        why: String,
    },
}

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(name) => write!(f, "attribute {name}: unsupported attribute value"),
            Self::Version { name, why } => write!(f, "attribute {name}: parse semantic version: {why}"),
        }
    }
}

impl std::error::Error for AttributeError {}

impl Selector {
    pub fn compile(text: &str) -> Result<Self, SelectorError> {
        let program = DEVICE.0.compile(text).map_err(SelectorError::Compile)?;
        match program.result() {
            Type::Bool | Type::Any => Ok(Self(program)),
            other => Err(SelectorError::Result(other.go_name())),
        }
    }

    /// The most that it can cost, by what devices can be.
    pub fn cost(&self) -> u64 {
        DEVICE.0.estimate(&self.0, Some(&DEVICE.1)).max
    }

    pub fn matches(&self, device: &Device) -> Result<bool, Error> {
        let result = self.0.evaluate(std::slice::from_ref(&device.0), &mut Budget::new(2 * MOST))?;
        result.as_bool().ok_or_else(|| {
            let ty = result.type_name();
            Error::new(format!(
                "CEL result of type {ty} could not be converted to bool: unsupported native conversion from {ty} to 'bool'"
            ))
        })
    }
}

impl Device {
    /// Names without a domain are the driver's own. An attribute that no expression could read is an error.
    pub fn new<'a>(
        driver: &str,
        multiple: bool,
        attributes: impl Iterator<Item = (&'a str, Option<Attribute>)>,
        capacity: impl Iterator<Item = (&'a str, Quantity)>,
    ) -> Result<Self, AttributeError> {
        let mut values: Vec<(&str, Value<'static>)> = Vec::new();
        for (name, attribute) in attributes {
            let attribute = attribute.ok_or_else(|| AttributeError::Unsupported(name.to_owned()))?;
            let value = value(&attribute).map_err(|why| AttributeError::Version { name: name.to_owned(), why })?;
            values.push((name, value));
        }
        let capacity = capacity.map(|(name, amount)| (name, Value::Quantity(Arc::new(amount))));
        let fields = [
            ("driver", Value::String(shared(driver))),
            ("allowMultipleAllocations", Value::Bool(multiple)),
            ("attributes", by_domain(driver, values.into_iter())),
            ("capacity", by_domain(driver, capacity)),
        ];
        Ok(Self(Value::Map(Map::Values(Arc::new(
            fields.into_iter().map(|(name, value)| entry(name, value)).collect(),
        )))))
    }
}

type Entry = (Key<'static>, (Value<'static>, Value<'static>));

fn shared(text: &str) -> Text<'static> {
    Text::Shared(text.into())
}

fn entry(name: &str, value: Value<'static>) -> Entry {
    let name = shared(name);
    (Key::Text(name.clone()), (Value::String(name), value))
}

/// The error says why a version is none.
fn value(attribute: &Attribute) -> Result<Value<'static>, String> {
    Ok(match attribute {
        Attribute::Bool(value) => Value::Bool(*value),
        Attribute::Int(value) => Value::Int(*value),
        Attribute::String(text) => Value::String(shared(text)),
        Attribute::Version(text) => Value::Semver(Arc::new(Semver::parse(text)?)),
        Attribute::List(items) => {
            Value::List(List::Values(Arc::new(items.iter().map(value).collect::<Result<_, _>>()?)))
        }
    })
}

/// Two maps in each other, by domain and by name. A domain that the device does not have is an empty map.
fn by_domain<'a>(driver: &str, values: impl Iterator<Item = (&'a str, Value<'static>)>) -> Value<'static> {
    let mut domains: BTreeMap<&str, BTreeMap<Key<'static>, (Value<'static>, Value<'static>)>> = BTreeMap::new();
    let values: Vec<(&str, Value<'static>)> = values.collect();
    for (name, value) in &values {
        let (domain, name) = name.split_once('/').unwrap_or((driver, name));
        domains.entry(domain).or_default().extend([entry(name, value.clone())]);
    }
    let domains = domains.into_iter().map(|(domain, names)| entry(domain, Value::Map(Map::Values(Arc::new(names)))));
    Value::Map(Map::Open(Arc::new(domains.collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Device {
        let attributes = [
            ("model", Attribute::String("a100".into())),
            ("healthy", Attribute::Bool(true)),
            ("index", Attribute::Int(3)),
            ("version", Attribute::Version("1.2.3".into())),
            ("other.example.com/numa", Attribute::Int(1)),
            ("sizes", Attribute::List(vec![Attribute::Int(1), Attribute::Int(2)])),
        ];
        let attributes = attributes.iter().map(|(name, value)| (*name, Some(value.clone())));
        let capacity = [("memory", Quantity::parse("40Gi").expect("an amount"))].into_iter();
        Device::new("gpu.example.com", true, attributes, capacity).expect("a device")
    }

    #[test]
    fn devices_are_selected() {
        for (expression, wanted) in [
            ("true", Ok(true)),
            ("device.driver == 'gpu.example.com'", Ok(true)),
            ("device.attributes['gpu.example.com'].model == 'a100'", Ok(true)),
            ("device.attributes['gpu.example.com'].model.startsWith('b')", Ok(false)),
            ("device.attributes['gpu.example.com'].healthy", Ok(true)),
            ("device.attributes['gpu.example.com'].index > 2", Ok(true)),
            ("device.attributes['gpu.example.com'].version.isGreaterThan(semver('1.0.0'))", Ok(true)),
            ("device.attributes['other.example.com'].numa == 1", Ok(true)),
            ("2 in device.attributes['gpu.example.com'].sizes", Ok(true)),
            ("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('10Gi'))", Ok(true)),
            ("device.capacity['gpu.example.com'].memory.compareTo(quantity('41Gi')) >= 0", Ok(false)),
            ("device.allowMultipleAllocations", Ok(true)),
            ("cel.bind(gpu, device.attributes['gpu.example.com'], gpu.index == 3 && gpu.healthy)", Ok(true)),
            // A domain that is not there is empty, and not there all the same.
            ("has(device.attributes['nobody.example.com'].model)", Ok(false)),
            ("'nobody.example.com' in device.attributes", Ok(false)),
            ("'gpu.example.com' in device.attributes", Ok(true)),
            ("size(device.attributes['nobody.example.com']) == 0", Ok(true)),
            ("device.attributes.all(domain, size(device.attributes[domain]) > 0)", Ok(true)),
            ("device.attributes['nobody.example.com'].?model.orValue('x') == 'x'", Ok(true)),
            ("device.attributes['nobody.example.com'].model == 'x'", Err("no such key: model")),
            ("device.attributes['gpu.example.com'].model", Err("CEL result of type string could not be converted")),
        ] {
            let found = Selector::compile(expression).expect(expression).matches(&device());
            match (found, wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{expression}"),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{expression}: {error}"),
                (found, _) => panic!("{expression}: {found:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let odd = Attribute::Version("one".into());
        for (attribute, words) in [
            (Some(odd), "attribute a: parse semantic version: No Major.Minor.Patch elements found"),
            (None, "attribute a: unsupported attribute value"),
        ] {
            let error = Device::new("d", false, [("a", attribute)].into_iter(), std::iter::empty());
            assert_eq!(error.map(|_| ()).expect_err("an error").to_string(), words);
        }
    }

    #[test]
    fn a_selector_that_runs_too_long_ends() {
        let expression = "device.attributes.all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, \
                          [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, \
                          [1,2,3,4,5,6,7,8,9].all(g, true)))))))";
        let selector = Selector::compile(expression).expect("it compiles");
        assert!(selector.cost() > MOST);
        let error = selector.matches(&device()).expect_err("it ends");
        assert_eq!(error.to_string(), "operation cancelled: actual cost limit exceeded");
    }
}

//! Named formats: what names, labels and their like have to look like.

use std::sync::Arc;

use base64::Engine;
use ferry_meta::names;

use super::{Builtin, Outcome, text, time, url};
use crate::error::Error;
use crate::program::Bindings;
use crate::value::Value;

#[derive(Debug)]
pub struct NamedFormat {
    pub name: &'static str,
    complaints: fn(&str) -> Vec<String>,
}

fn prefix(text: &str) -> String {
    names::mask_trailing_dash(text)
}

fn complain(good: bool, why: &str) -> Vec<String> {
    if good { Vec::new() } else { vec![why.to_owned()] }
}

fn is_uuid(text: &str) -> bool {
    let plain: String = text.chars().filter(|c| *c != '-').collect();
    plain.len() == 32 && plain.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && time::parse_timestamp(&format!("{text}T00:00:00Z")).is_some()
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat { name: "dns1123Label", complaints: |text| names::dns1123_label(text) },
    NamedFormat { name: "dns1123Subdomain", complaints: |text| names::dns1123_subdomain(text) },
    NamedFormat { name: "dns1035Label", complaints: |text| names::dns1035_label(text) },
    NamedFormat { name: "qualifiedName", complaints: |text| names::qualified_name(text) },
    NamedFormat { name: "dns1123LabelPrefix", complaints: |text| names::dns1123_label(&prefix(text)) },
    NamedFormat { name: "dns1123SubdomainPrefix", complaints: |text| names::dns1123_subdomain(&prefix(text)) },
    NamedFormat { name: "dns1035LabelPrefix", complaints: |text| names::dns1035_label(&prefix(text)) },
    NamedFormat { name: "labelValue", complaints: |text| names::label_value(text) },
    NamedFormat { name: "uri", complaints: |text| url::complaint(text).into_iter().collect() },
    NamedFormat { name: "uuid", complaints: |text| complain(is_uuid(text), "does not match the UUID format") },
    NamedFormat {
        name: "byte",
        complaints: |text| complain(base64::engine::general_purpose::STANDARD.decode(text).is_ok(), "invalid base64"),
    },
    NamedFormat { name: "date", complaints: |text| complain(is_date(text), "invalid date") },
    NamedFormat {
        name: "datetime",
        complaints: |text| complain(time::parse_timestamp(text).is_some(), "invalid datetime"),
    },
];

macro_rules! constants {
    ($($index:literal $name:literal $function:ident;)*) => {
        $(fn $function<'a>(_: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
            Ok(Value::Format(&FORMATS[$index]))
        })*

        /// The function that gives a format, by its name.
        pub(crate) fn by_function(name: &str) -> Option<Builtin> {
            match name {
                $($name => Some($function),)*
                _ => None,
            }
        }
    };
}

constants! {
    0 "format.dns1123Label" dns1123_label;
    1 "format.dns1123Subdomain" dns1123_subdomain;
    2 "format.dns1035Label" dns1035_label;
    3 "format.qualifiedName" qualified_name;
    4 "format.dns1123LabelPrefix" dns1123_label_prefix;
    5 "format.dns1123SubdomainPrefix" dns1123_subdomain_prefix;
    6 "format.dns1035LabelPrefix" dns1035_label_prefix;
    7 "format.labelValue" label_value;
    8 "format.uri" uri;
    9 "format.uuid" uuid;
    10 "format.byte" byte;
    11 "format.date" date;
    12 "format.datetime" datetime;
}

pub(crate) fn named<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let name = text(arguments, 0)?;
    let found = FORMATS.iter().find(|format| *format.name == **name);
    Ok(Value::Optional(found.map(|format| Arc::new(Value::Format(format)))))
}

pub(crate) fn validate<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let Value::Format(format) = &arguments[0] else { return Err(Error::no_such_overload()) };
    let complaints = (format.complaints)(text(arguments, 1)?);
    if complaints.is_empty() {
        return Ok(Value::Optional(None));
    }
    let complaints: Vec<Value<'a>> = complaints.into_iter().map(Value::from).collect();
    Ok(Value::Optional(Some(Arc::new(Value::from(complaints)))))
}

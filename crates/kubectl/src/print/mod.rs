//! How objects are shown: `-o` and what goes with it.

pub mod columns;
mod format;
pub mod go_value;
pub mod jsonpath;
mod jsonpath_parse;
pub mod kyaml;
pub mod sort;
pub mod table;
pub mod tabs;
pub mod template;
mod template_functions;
mod template_parse;

pub use template_functions::html_escaped;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::flags::{Flag, Parsed, switch, text};

/// Flags of every command that prints objects.
pub const FLAGS: [Flag; 4] = [
    text("output", "Output format.").short('o'),
    text("template", "Template string or path to template file for -o=go-template and the like."),
    switch("show-managed-fields", "Keep the managed fields of objects in JSON and YAML."),
    Flag::new(
        "allow-missing-template-keys",
        crate::flags::Kind::Bool,
        "true",
        "Ignore what a template names and is not there.",
    ),
];

pub enum Format {
    Human { wide: bool },
    Json { managed: bool },
    Kyaml { managed: bool },
    Yaml { managed: bool },
    Name,
    JsonPath { template: jsonpath::Template, as_json: bool },
    Columns(columns::Columns),
    Template(template::Template),
}

const ALL: &str = "custom-columns,custom-columns-file,go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,wide,yaml";
const WRITES: &str =
    "go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,yaml";

impl Format {
    /// For `get`, with tables and columns.
    pub fn for_reading(flags: &Parsed) -> Result<Self> {
        Self::parse(flags, true)
    }

    /// For commands that change objects: none means a line about what was done.
    pub fn for_writing(flags: &Parsed) -> Result<Self> {
        Self::parse(flags, false)
    }

    fn parse(flags: &Parsed, reading: bool) -> Result<Self> {
        let output = flags.text("output");
        let managed = flags.is("show-managed-fields");
        let (kind, argument) = match output.split_once('=') {
            Some((kind, argument)) => (kind, Some(argument.to_owned())),
            None => (output, None),
        };
        let argument = argument.or_else(|| flags.given("template").map(str::to_owned));
        let kind = match kind {
            // `-o=` is a form of this name, which nobody knows.
            "" if !output.is_empty() => output,
            "" if argument.is_some() => "go-template",
            kind => kind,
        };
        let lower = kind.to_lowercase();
        // Plain forms are known in any case, and take nothing behind them.
        let kind = match &*lower {
            "wide" | "json" | "yaml" | "kyaml" | "name" if !output.contains('=') => &*lower,
            "wide" | "json" | "yaml" | "kyaml" | "name" => output,
            _ => kind,
        };
        let strict = !flags.is("allow-missing-template-keys");
        let path = |text: &str| path(text).map(|template| template.strict(strict));
        let missing = || Error::say("template format specified but no template given");
        let need = |argument: Option<String>| argument.filter(|text| !text.is_empty()).ok_or_else(missing);
        let shown = if kind == "custom-columns-file" { "template" } else { "--template" };
        let of_file = |argument: Option<String>| {
            let path = need(argument)?;
            std::fs::read_to_string(&path).map_err(|error| {
                let why = crate::config::file::go_error("open", std::path::Path::new(&path), &error);
                Error::say(format!("error reading {shown} {path}, {why}"))
            })
        };
        Ok(match kind {
            "" => Self::Human { wide: false },
            "wide" if reading => Self::Human { wide: true },
            "json" => Self::Json { managed },
            "yaml" => Self::Yaml { managed },
            "kyaml" => Self::Kyaml { managed },
            "name" => Self::Name,
            "jsonpath" | "jsonpath-as-json" => {
                Self::JsonPath { template: path(&need(argument)?)?, as_json: kind == "jsonpath-as-json" }
            }
            "jsonpath-file" => Self::JsonPath { template: path(&of_file(argument)?)?, as_json: false },
            "go-template" | "template" => Self::Template(template::Template::parse(&need(argument)?)?.strict(strict)),
            "go-template-file" | "templatefile" => {
                Self::Template(template::Template::parse(&of_file(argument)?)?.strict(strict))
            }
            "custom-columns" if reading => {
                Self::Columns(columns::Columns::parse(argument.as_deref().unwrap_or_default(), flags.is("no-headers"))?)
            }
            "custom-columns-file" if reading => {
                let file = of_file(argument)?;
                Self::Columns(columns::Columns::of_file(&file, flags.is("no-headers"))?)
            }
            _ => {
                let allowed = if reading { ALL } else { WRITES };
                return Err(Error::say(format!(
                    "unable to match a printer suitable for the output format {}, allowed formats are: {allowed}",
                    crate::text::quote(output)
                )));
            }
        })
    }

    pub fn is_human(&self) -> bool {
        matches!(self, Self::Human { .. })
    }

    /// One object; `first` is false for those behind it.
    pub fn object(&self, object: &Value, first: bool) -> Result<String> {
        Ok(match self {
            Self::Human { .. } => String::new(),
            Self::Json { managed } => json(&kept(object, *managed)),
            Self::Yaml { managed } => {
                format!("{}{}", if first { "" } else { "---\n" }, ferry_schema::yaml::to_yaml(&kept(object, *managed)))
            }
            Self::Kyaml { managed } => kyaml::document(&kept(object, *managed)),
            Self::Name => match object["items"].as_array().filter(|_| is_list(object)) {
                Some(items) => items.iter().map(name).collect(),
                None => name(object),
            },
            Self::JsonPath { template, as_json: false } => template.print(object)?,
            Self::JsonPath { template, as_json: true } => template.print_json(object)?,
            Self::Columns(columns) => match columns.print(object, first) {
                (text, None) => text,
                (text, Some(why)) => {
                    // What came before the mistake is shown.
                    crate::text::print(text);
                    return Err(Error::say(why));
                }
            },
            Self::Template(template) => template.print(object)?,
        })
    }
}

fn path(text: &str) -> Result<jsonpath::Template> {
    jsonpath::Template::parse(text).map_err(|why| Error::say(format!("error parsing jsonpath {text}, {why}")))
}

pub fn is_list(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && object["items"].is_array()
}

/// `deployment.apps/web` in a line.
fn name(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let group = object["apiVersion"].as_str().and_then(|v| v.split_once('/')).map_or("", |(group, _)| group);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    format!("{}/{name}\n", crate::discovery::qualified(&kind, group))
}

/// Without the managed fields, unless they are asked for.
fn kept(object: &Value, managed: bool) -> std::borrow::Cow<'_, Value> {
    if managed {
        return std::borrow::Cow::Borrowed(object);
    }
    let mut object = object.clone();
    strip(&mut object);
    if let Some(Value::Array(items)) = object.get_mut("items") {
        items.iter_mut().for_each(strip);
    }
    std::borrow::Cow::Owned(object)
}

fn strip(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}

/// An object of a built-in kind, with its fields in the order of Go's structs.
pub fn typed_json(object: &Value) -> Option<String> {
    let api_version = object["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = ferry_meta::GroupVersionKind::new(group, version, object["kind"].as_str()?);
    let ty = ferry_schema::builtin().kind(&gvk)?;
    let object = kept(object, false);
    Some(four_spaces(ferry_schema::encode_json_pretty(&ty, &object)))
}

/// The same in one line.
pub fn typed_line(object: &Value) -> Option<String> {
    let api_version = object["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = ferry_meta::GroupVersionKind::new(group, version, object["kind"].as_str()?);
    let ty = ferry_schema::builtin().kind(&gvk)?;
    String::from_utf8(ferry_schema::encode_json(&ty, object)).ok().map(|text| text + "\n")
}

/// JSON with its fields in a given order at each depth, and the others behind them by name: as Go writes its structs.
pub fn in_order(value: &Value, orders: &[&[&str]], indent: usize, step: usize) -> String {
    let (open, close) = (" ".repeat(indent + step), " ".repeat(indent));
    match value {
        Value::Array(items) if !items.is_empty() => {
            let items: Vec<String> =
                items.iter().map(|item| open.clone() + &in_order(item, orders, indent + step, step)).collect();
            format!("[\n{}\n{close}]", items.join(",\n"))
        }
        Value::Object(map) if !map.is_empty() => {
            let (order, below) = orders.split_first().map_or((&[][..], &[][..]), |(first, rest)| (*first, rest));
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            let place = |name: &str| order.iter().position(|known| *known == name).unwrap_or(order.len());
            fields.sort_by_key(|(name, _)| place(name));
            let fields: Vec<String> = fields
                .into_iter()
                .map(|(name, value)| {
                    format!("{open}{}: {}", compact(&name.as_str().into()), in_order(value, below, indent + step, step))
                })
                .collect();
            format!("{{\n{}\n{close}}}", fields.join(",\n"))
        }
        other => compact(other),
    }
}

/// JSON as Go indents it, by four spaces, with its escapes.
pub fn json(value: &Value) -> String {
    four_spaces(ferry_schema::encode::encode_any(value, true))
}

pub fn four_spaces(two: Vec<u8>) -> String {
    let text = String::from_utf8(two).unwrap_or_default();
    let mut out = String::with_capacity(text.len() * 5 / 4);
    for line in text.split_inclusive('\n') {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        out.extend(std::iter::repeat_n(' ', spaces * 2));
        out.push_str(&line[spaces..]);
    }
    out.push('\n');
    out
}

/// JSON in one line, as Go writes it.
pub fn compact(value: &Value) -> String {
    String::from_utf8(ferry_schema::encode::encode_any(value, false)).unwrap_or_default()
}

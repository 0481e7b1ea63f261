//! Generates the type catalogue of the built-in kinds from facts about their Go types (order, pointers, omitempty), the
//! schemas of `k8s-openapi` (required fields) and the wire facts (list types, merge keys, protobuf numbers, defaults).
//!
//! The format is read by `ferry_schema::catalogue::load`, which documents it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use anyhow::{Context, Result};

const GO_TYPES: &str = include_str!("../data/go-types.tsv");
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const APIEXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions";

struct GoField {
    json: String,
    go: String,
    flags: String,
    proto: String,
}

#[derive(Default)]
struct GoTypes {
    groups: BTreeMap<String, (String, String)>,
    named: HashMap<String, String>,
    structs: BTreeMap<String, Vec<GoField>>,
}

fn read_go_types() -> GoTypes {
    let mut types = GoTypes::default();
    let mut current = String::new();
    for line in GO_TYPES.lines().filter(|l| !l.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let cell = |i: usize| cells.get(i).copied().unwrap_or_default().to_owned();
        match cells[0] {
            "!group" => {
                types.groups.insert(cell(1), (cell(2), cell(3)));
            }
            "!named" => {
                types.named.insert(cell(1), cell(2));
            }
            "!struct" => {
                current = cell(1);
                types.structs.insert(current.clone(), Vec::new());
            }
            _ => {
                let proto = if cell(3).is_empty() { cell(0) } else { cell(3) };
                let field = GoField { json: cell(0), go: cell(1), flags: cell(2), proto };
                types.structs.entry(current.clone()).or_default().push(field);
            }
        }
    }
    types
}

/// What `lists.tsv` says of one field.
#[derive(Clone, Default)]
struct ListFacts {
    list_type: String,
    keys: String,
    strategy: String,
    merge_key: String,
    map_type: String,
}

struct Facts {
    lists: HashMap<(String, String), ListFacts>,
    numbers: HashMap<(String, String), u32>,
    messages: BTreeSet<String>,
    defaults: HashMap<(String, String), String>,
    required: HashMap<String, BTreeSet<String>>,
}

fn read_table(name: &str) -> Result<Vec<Vec<String>>> {
    Ok(ferry_testkit::data::read(name)?.lines().skip(1).map(|l| l.split('\t').map(str::to_owned).collect()).collect())
}

fn read_facts() -> Result<Facts> {
    let mut facts = Facts {
        lists: HashMap::new(),
        numbers: HashMap::new(),
        messages: BTreeSet::new(),
        defaults: HashMap::new(),
        required: HashMap::new(),
    };
    for row in read_table("facts/lists.tsv")? {
        let cell = |i: usize| row.get(i).cloned().unwrap_or_default();
        let entry =
            ListFacts { list_type: cell(2), keys: cell(3), strategy: cell(4), merge_key: cell(5), map_type: cell(6) };
        facts.lists.insert((cell(0), cell(1)), entry);
    }
    for row in read_table("facts/protobuf.tsv.gz")? {
        let [message, number, field, ..] = row.as_slice() else { continue };
        facts.messages.insert(message.clone());
        facts.numbers.insert((message.clone(), field.clone()), number.parse().context("a field number")?);
    }
    for row in read_table("facts/openapi-defaults.tsv")? {
        let [name, field, default] = row.as_slice() else { continue };
        facts.defaults.insert((name.clone(), field.clone()), default.clone());
    }
    for (name, schema) in crate::schemas::schemas() {
        let required = schema.get("required").and_then(|r| r.as_array()).cloned().unwrap_or_default();
        facts.required.insert(name, required.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect());
    }
    Ok(facts)
}

/// `io.k8s.api.core.v1.Pod` → `k8s.io.api.core.v1.Pod`, with underscores where protobuf packages have them.
fn message_name(name: &str) -> String {
    let (package, leaf) = name.rsplit_once('.').unwrap_or(("", name));
    format!("{}.{leaf}", package.replacen("io.k8s.", "k8s.io.", 1).replace('-', "_"))
}

/// Types whose JSON form is their own affair.
fn special(name: &str) -> Option<&'static str> {
    let leaf = name.rsplit('.').next().unwrap_or_default();
    Some(match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => "Q",
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => "I",
        "io.k8s.apimachinery.pkg.runtime.RawExtension" => "R",
        _ if name.starts_with(META) => match leaf {
            "Time" => "T",
            "MicroTime" => "M",
            "Duration" => "D",
            "FieldsV1" => "F",
            _ => return None,
        },
        _ if name.starts_with(APIEXTENSIONS) => match leaf {
            "JSON" => "J",
            "JSONSchemaPropsOrArray" => "1",
            "JSONSchemaPropsOrBool" => "2",
            "JSONSchemaPropsOrStringArray" => "3",
            _ => return None,
        },
        _ => return None,
    })
}

struct Generator {
    go: GoTypes,
    facts: Facts,
}

impl Generator {
    /// `v1.PodPhase` of `io.k8s.api.core.v1#PodPhase`, as Go's errors name it.
    fn go_name(reference: &str) -> String {
        let (package, leaf) = reference.split_once('#').unwrap_or(("", reference));
        let package = package.rsplit(['.', '/']).next().unwrap_or_default();
        format!("{package}.{leaf}")
    }

    /// The expression of a Go type; see the reader for its grammar.
    fn expression(&self, go: &str) -> String {
        if let Some(rest) = go.strip_prefix('*') {
            return format!("*{}", self.expression(rest));
        }
        if go == "[]byte" {
            return "y".into();
        }
        if let Some(rest) = go.strip_prefix("[]") {
            return format!("[{}", self.expression(rest));
        }
        if let Some(rest) = go.strip_prefix("map[") {
            let (key, value) = rest.split_once(']').unwrap_or(("string", rest));
            let key = if key == "string" { String::new() } else { format!("({})", Self::go_name(key)) };
            return format!("{{{key}{}", self.expression(value));
        }
        match go {
            "string" => return "s".into(),
            "bool" => return "b".into(),
            "int32" | "int16" | "int8" => return "i".into(),
            "int64" | "int" => return "l".into(),
            "uint32" | "uint8" | "byte" => return "u".into(),
            "uint64" => return "v".into(),
            "float64" | "float32" => return "d".into(),
            "interface{}" | "any" => return "a".into(),
            _ => {}
        }
        let name = go.replace('#', ".");
        if let Some(letter) = special(&name) {
            return letter.into();
        }
        if self.go.structs.contains_key(&name) {
            return format!("@{name};");
        }
        let Some(underlying) = self.go.named.get(&name) else {
            // Names outside the API packages (UID, NodeName) are all strings.
            return format!("~{}:s", Self::go_name(go));
        };
        let under = self.expression(underlying);
        if under.starts_with(['@', '~']) {
            return under; // an alias
        }
        // A named list has a protobuf message of its own.
        let wrapped = if self.facts.messages.contains(&message_name(&name)) { "%" } else { "" };
        format!("~{}:{wrapped}{under}", Self::go_name(go))
    }

    /// The types whose facts may speak of a field of `name`: itself, or those that inline it.
    fn outers<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        let mut found = vec![name];
        let mut next = 0;
        while next < found.len() {
            let inner = found[next];
            next += 1;
            for (outer, fields) in &self.go.structs {
                if fields.iter().any(|f| f.flags.contains('i') && f.go.replace('#', ".") == inner) {
                    found.push(outer);
                }
            }
        }
        found
    }

    fn field_line(&self, name: &str, outers: &[&str], field: &GoField) -> String {
        let of = |outer: &&str| ((*outer).to_owned(), field.json.clone());
        let list = outers.iter().find_map(|o| self.facts.lists.get(&of(o))).cloned().unwrap_or_default();
        let default = outers.iter().find_map(|o| self.facts.defaults.get(&of(o))).cloned().unwrap_or_default();
        let number = self.facts.numbers.get(&(message_name(name), field.proto.clone())).copied().unwrap_or(0);
        let required = match outers.iter().find_map(|o| self.facts.required.get(*o)) {
            Some(required) => required.contains(&field.json),
            None => !field.flags.contains(['e', 'i']),
        };
        let mut flags = field.flags.clone();
        if required {
            flags.push('r');
        }
        match list.list_type.as_str() {
            "map" => write!(flags, "m").unwrap_or_default(),
            "set" => write!(flags, "s").unwrap_or_default(),
            "atomic" => write!(flags, "a").unwrap_or_default(),
            _ => {}
        }
        match list.map_type.as_str() {
            "atomic" => flags.push('a'),
            "granular" => flags.push('g'),
            _ => {}
        }
        for strategy in list.strategy.split(',') {
            match strategy {
                "merge" => flags.push('M'),
                "retainKeys" => flags.push('K'),
                "replace" => flags.push('P'),
                _ => {}
            }
        }
        let mut line = format!("{}\t{}\t{flags}\t{number}", field.json, self.expression(&field.go));
        let extras = [list.keys, list.merge_key, default];
        let used = extras.iter().rposition(|e| !e.is_empty()).map_or(0, |i| i + 1);
        for extra in &extras[..used] {
            line.push('\t');
            line.push_str(extra);
        }
        line
    }

    fn run(&self) -> String {
        let mut out = String::from("# Generated by `cargo run -p xtask -- catalogue`; read by catalogue/load.rs.\n");
        let mut package_before = "";
        for (name, fields) in &self.go.structs {
            let (package, leaf) = name.rsplit_once('.').unwrap_or(("", name));
            let exported = leaf.chars().next().is_some_and(char::is_uppercase);
            if special(name).is_some() || !exported {
                continue;
            }
            if package != package_before {
                package_before = package;
                let (group, version) = self.go.groups.get(package).cloned().unwrap_or_default();
                let _ = writeln!(out, "!p\t{package}\t{group}\t{version}");
            }
            let type_meta = fields.iter().any(|f| f.flags.contains('i') && f.go == format!("{META}#TypeMeta"));
            let kind = type_meta || name == &format!("{META}.WatchEvent");
            let atomic = self.facts.lists.get(&(name.clone(), String::new())).is_some_and(|l| l.map_type == "atomic");
            let message = fields.is_empty() || self.facts.messages.contains(&message_name(name));
            let flags: String = [(kind, 'k'), (atomic, 'a'), (message, 'p')]
                .into_iter()
                .filter_map(|(on, letter)| on.then_some(letter))
                .collect();
            let _ = writeln!(out, "!t\t{leaf}\t{flags}");
            let outers = self.outers(name);
            for field in fields {
                let _ = writeln!(out, "{}", self.field_line(name, &outers, field));
            }
        }
        for (name, target) in self.go.named.iter().collect::<BTreeMap<_, _>>() {
            let target = target.replace('#', ".");
            if self.go.structs.contains_key(&target) && !self.go.structs.contains_key(name) {
                let _ = writeln!(out, "!a\t{name}\t{target}");
            }
        }
        out
    }
}

pub(crate) fn generate() -> Result<String> {
    Ok(Generator { go: read_go_types(), facts: read_facts()? }.run())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_catalogue_is_current() {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/schema/data/catalogue.txt");
        let committed = std::fs::read_to_string(committed).expect("the committed catalogue");
        let fresh = generate().expect("a catalogue");
        let differs = committed.lines().zip(fresh.lines()).find(|(a, b)| a != b);
        assert_eq!(differs, None, "run `cargo run -p xtask -- catalogue`");
        assert_eq!(committed.len(), fresh.len(), "run `cargo run -p xtask -- catalogue`");
    }
}

//! Whether an answer is the recorded one: what differs from run to run is replaced by marks first.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::step::Step;
use crate::values;

const UID: &str = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
const TIME: &str = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z";

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

static ANY_UID: LazyLock<Regex> = LazyLock::new(|| pattern(UID));
static ANY_TIME: LazyLock<Regex> = LazyLock::new(|| pattern(TIME));
static ONLY_TIME: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("^{TIME}$")));
static VERSION_IN_TEXT: LazyLock<Regex> = LazyLock::new(|| pattern(r#"(resourceVersion"?: ?")\d+"#));

/// One line for each.
pub fn differences(step: &Step, want: &Value, mut answer: Value, namespace: &str) -> Vec<String> {
    mark(&mut answer, "", namespace);
    choose(step, &mut answer["body"]);
    let mut want = want.clone();
    sort_managers(&mut want, "");
    sort_managers(&mut answer, "");
    let mut found = Vec::new();
    compare("", &want, &answer, &mut found);
    found
}

/// Ids, times, versions and the namespace's name become marks.
fn mark(value: &mut Value, key: &str, namespace: &str) {
    let plain = |text: &str| ANY_UID.replace_all(&text.replace(namespace, "{ns}"), "<uid>").into_owned();
    match value {
        Value::Object(fields) => {
            let marked = std::mem::take(fields).into_iter().map(|(key, mut field)| {
                mark(&mut field, &key, namespace);
                (plain(&key), field)
            });
            *fields = marked.collect();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mark(item, key, namespace)),
        Value::String(text) => {
            *text = match key {
                "resourceVersion" if !text.is_empty() && text != "0" => "<rv>".into(),
                "continue" if !text.is_empty() => "<continue>".into(),
                _ if ONLY_TIME.is_match(text) => "<time>".into(),
                _ => plain(text),
            }
        }
        _ => {}
    }
}

/// The part of the body that was recorded.
fn choose(step: &Step, body: &mut Value) {
    if let (true, Value::String(text)) = (step.text, &mut *body) {
        *text = VERSION_IN_TEXT.replace_all(text, "$1<rv>").into_owned();
        *text = ANY_TIME.replace_all(text, "<time>").into_owned();
    }
    for (path, conditions) in &step.keep {
        let Some(Value::Array(items)) = values::get_mut(body, path) else { continue };
        items.retain(|item| {
            conditions.iter().all(|(path, wanted)| match values::get(item, path) {
                Some(Value::String(text)) => pattern(wanted).is_match(text),
                Some(other) => pattern(wanted).is_match(&other.to_string()),
                None => false,
            })
        });
    }
    if let (Some(paths), true) = (&step.only, body.is_object() || body.is_array()) {
        let absent = || Value::from("<absent>");
        let chosen: Map<String, Value> =
            paths.iter().map(|path| (path.clone(), values::get(body, path).cloned().unwrap_or_else(absent))).collect();
        *body = Value::Object(chosen);
    }
    for path in &step.ignore {
        values::ignore(body, path);
    }
}

/// Managers are sorted by time, and in which second a write fell is chance.
fn sort_managers(value: &mut Value, key: &str) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(key, field)| sort_managers(field, key)),
        Value::Array(items) => {
            items.iter_mut().for_each(|item| sort_managers(item, ""));
            if key.ends_with("managedFields") {
                let names = ["operation", "manager", "subresource", "apiVersion"];
                items.sort_by_cached_key(|item| names.map(|name| item[name].as_str().unwrap_or_default().to_owned()));
            }
        }
        _ => {}
    }
}

fn compare(path: &str, want: &Value, got: &Value, found: &mut Vec<String>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (want, got) {
        (Value::Object(wanted), Value::Object(given)) => {
            for name in wanted.keys().chain(given.keys()).collect::<BTreeSet<_>>() {
                match (wanted.get(name), given.get(name)) {
                    (Some(want), Some(got)) => compare(&below(name), want, got, found),
                    (Some(want), None) => found.push(format!("{}: missing, upstream has {}", below(name), short(want))),
                    (_, got) => found.push(format!(
                        "{}: {}, upstream has none",
                        below(name),
                        short(&got.cloned().unwrap_or_default())
                    )),
                }
            }
        }
        (Value::Array(wanted), Value::Array(given)) => {
            if wanted.len() != given.len() {
                found.push(format!("{path}: {} items, upstream has {}", given.len(), wanted.len()));
            }
            for (number, (want, got)) in wanted.iter().zip(given).enumerate() {
                compare(&below(&number.to_string()), want, got, found);
            }
        }
        (Value::String(want), Value::String(got)) if is_hash_of(want, got) => {}
        _ if want == got => {}
        _ => found.push(format!("{path}: {}, upstream has {}", short(got), short(want))),
    }
}

fn is_hash_of(want: &str, got: &str) -> bool {
    let hash = want.strip_prefix("<sha256:").and_then(|rest| rest.strip_suffix('>'));
    hash.is_some_and(|hash| hash == Sha256::digest(got).iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

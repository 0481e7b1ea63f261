//! The cells of tables: ages and lists as kubectl's readers expect them, and the small expressions of `columns.tsv`.

use ferry_meta::{GroupVersion, object, time};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::cursor::Cursor;

/// The value of a column's expression. `.a.b` is a field, `.a.b|text` a field or else this text; a word before a field says how
/// it is shown. Nothing gives an empty text.
pub fn evaluate(expression: &str, object: &Value, now: Timestamp) -> Value {
    let (form, path) = expression.split_once(' ').unwrap_or(match expression.starts_with('.') {
        true => ("", expression),
        false => (expression, ""),
    });
    let (path, otherwise) = path.split_once('|').map_or((path, ""), |(path, text)| (path, text));
    let value = at(object, path.split(' ').next().unwrap_or_default());
    match form {
        "" => match value {
            None | Some(Value::Null) => otherwise.into(),
            Some(Value::String(text)) if text.is_empty() => otherwise.into(),
            Some(found) => found.clone(),
        },
        "text" => match value {
            None | Some(Value::Null) => otherwise.into(),
            Some(found) => found.as_str().map_or_else(|| found.to_string(), str::to_owned).into(),
        },
        "age" => age(object, now).into(),
        "since" => since(value.and_then(Value::as_str).unwrap_or_default(), now).into(),
        "len" => length(value).into(),
        "num" => number(value).into(),
        "bool" => value.and_then(Value::as_bool).unwrap_or(otherwise == "true").into(),
        "ratio" => {
            let total = at(object, path.split(' ').nth(1).unwrap_or_default());
            format!("{}/{}", number(value), number(total)).into()
        }
        "names" => containers(value, "name").into(),
        "images" => containers(value, "image").into(),
        "list" => texts(value).collect::<Vec<_>>().join(",").into(),
        "join" => joined(texts(value)).into(),
        "labels" => labels(value.and_then(Value::as_object)).into(),
        "selector" => none_if_empty(selector(value)).into(),
        "selector-text" => selector(value).into(),
        _ => described(form, path, value, object).into(),
    }
}

/// Forms that belong to one or two kinds.
fn described(form: &str, path: &str, value: Option<&Value>, whole: &Value) -> String {
    let null = Value::Null;
    let part = Cursor::root(value.unwrap_or(&null));
    let join = |parts: &[&str], separator: &str| {
        parts.iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join(separator)
    };
    match form {
        "controller" => controller(whole),
        "kind" if part.exists() => format!("{}/{}", part.text("apiVersion"), part.text("kind")),
        "param" if !part.text("name").is_empty() => {
            let namespace = if part.text("namespace").is_empty() { "*" } else { part.text("namespace") };
            format!("{namespace}/{}", part.text("name"))
        }
        "param" if part.has("selector") => go_selector(&part.get("selector")),
        "kind" | "param" => "<unset>".to_owned(),
        "parameters" if part.exists() => {
            format!("{}/{}", join(&[part.text("kind"), part.text("apiGroup")], "."), part.text("name"))
        }
        "parent" if part.exists() => {
            let resource = join(&[part.text("resource"), part.text("group")], ".").to_lowercase();
            join(&[&resource, part.text("namespace"), part.text("name")], "/")
        }
        "parameters" | "parent" => "<none>".to_owned(),
        "audiences" if part.exists() => {
            let list = part.value.as_array().into_iter().flatten();
            list.map(|t| t["audience"].as_str().unwrap_or_default()).collect::<Vec<_>>().join(",")
        }
        "audiences" => "<unset>".to_owned(),
        "condition" => {
            let kind = path.split(' ').nth(1).unwrap_or_default();
            condition(value, kind).unwrap_or("?").to_owned()
        }
        "state" => {
            let word =
                |found: &Value| ["Issued", "Denied", "Failed"].into_iter().find(|w| found["type"].as_str() == Some(w));
            value
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(word)
                .next_back()
                .unwrap_or("Pending")
                .to_owned()
        }
        "claim" => claim_state(whole),
        "service" if part.exists() => format!("{}/{}", part.text("namespace"), part.text("name")),
        "service" => "Local".to_owned(),
        "available" => available(whole),
        "resource" => join(&[part.text("resource"), part.text("group")], "."),
        "migration" => {
            let words = ["Running", "Failed", "Succeeded"];
            let conditions = object::items(whole, "/status/conditions").iter();
            let mut on = conditions.filter(|c| c["status"].as_str() == Some("True")).filter_map(|c| c["type"].as_str());
            on.rfind(|kind| words.contains(kind)).unwrap_or("Unknown").to_owned()
        }
        _ => String::new(),
    }
}

fn controller(object: &Value) -> String {
    let owners = object::items(object, "/metadata/ownerReferences").iter();
    let Some(owner) = owners.map(Cursor::root).find(|o| o.is_true("controller")) else { return "<none>".to_owned() };
    let group = GroupVersion::parse(owner.text("apiVersion")).map(|v| v.group).unwrap_or_default();
    let kind = if group.is_empty() { owner.text("kind").to_owned() } else { format!("{}.{group}", owner.text("kind")) };
    format!("{}/{}", kind.to_lowercase(), owner.text("name"))
}

fn claim_state(claim: &Value) -> String {
    let status = Cursor::root(claim).get("status");
    let mut states = Vec::new();
    if object::is_being_deleted(claim) {
        states.push("deleted");
    }
    if status.has("allocation") {
        states.push("allocated");
        if !status.array("reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if states.is_empty() {
        states.push("pending");
    }
    states.join(",")
}

fn available(service: &Value) -> String {
    let conditions = object::items(service, "/status/conditions").iter();
    let Some(found) = conditions.map(Cursor::root).find(|c| c.text("type") == "Available") else {
        return "Unknown".to_owned();
    };
    match (found.text("status"), found.text("reason")) {
        ("True", _) => "True".to_owned(),
        (status, reason) => format!("{status} ({reason})"),
    }
}

/// A label selector as Go prints the struct.
fn go_selector(selector: &Cursor<'_>) -> String {
    let labels = selector.map("matchLabels").iter().map(|(k, v)| format!("{k}: {},", v.as_str().unwrap_or_default()));
    let expressions = selector.items("matchExpressions");
    let expressions = expressions.iter().map(|e| {
        let values = e.texts("values").collect::<Vec<_>>().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", e.text("key"), e.text("operator"))
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.collect::<String>(),
        expressions.collect::<String>()
    )
}

fn condition<'a>(conditions: Option<&'a Value>, kind: &str) -> Option<&'a str> {
    let found = conditions?.as_array()?.iter().find(|c| c["type"].as_str() == Some(kind))?;
    found["status"].as_str()
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let path = path.strip_prefix('.')?;
    path.split('.').try_fold(object, |value, part| value.get(part))
}

fn length(value: Option<&Value>) -> usize {
    match value {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(map)) => map.len(),
        _ => 0,
    }
}

fn number(value: Option<&Value>) -> i64 {
    value.and_then(Value::as_i64).unwrap_or_default()
}

fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn containers(value: Option<&Value>, key: &str) -> String {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.map(|c| c[key].as_str().unwrap_or_default()).collect::<Vec<_>>().join(",")
}

/// `a=b,c=d`, or `<none>`.
pub fn labels(labels: Option<&Map<String, Value>>) -> String {
    let pairs =
        labels.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    none_if_empty(pairs.collect::<Vec<_>>().join(","))
}

/// A label selector on one line.
pub fn selector(value: Option<&Value>) -> String {
    let null = Value::Null;
    let selector = Cursor::root(value.unwrap_or(&null));
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in selector.map("matchLabels") {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in selector.items("matchExpressions") {
        let key = expression.text("key");
        let mut values: Vec<&str> = expression.texts("values").collect();
        values.sort_unstable();
        let text = match expression.text("operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<invalid>".to_owned(),
        };
        parts.push((key.to_owned(), text));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

pub fn none_if_empty(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// How long ago the object was created.
pub fn age(object: &Value, now: Timestamp) -> String {
    since(object::text(object, "/metadata/creationTimestamp"), now)
}

/// How long ago a time on the wire was, or `<unknown>`.
pub fn since(text: &str, now: Timestamp) -> String {
    match time::parse(text) {
        Some(at) => human_duration(now.as_second() - at.as_second()),
        None => "<unknown>".to_owned(),
    }
}

/// Seconds as upstream shortens them: two units while both tell something, then one.
pub fn human_duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        let tail = if small == 0 { String::new() } else { format!("{small}{small_unit}") };
        format!("{big}{big_unit}{tail}")
    };
    match seconds {
        s if s < -1 => "<invalid>".to_owned(),
        s if s < 0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, "h", s / MINUTE % 60, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, "d", s / HOUR % 24, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s / DAY % 365, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// `a,b,c` of a list of texts, or `<none>`.
pub fn joined<'a>(items: impl Iterator<Item = &'a str>) -> String {
    none_if_empty(items.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_read_as_upstream() {
        let check = |seconds: i64, want: &str| assert_eq!(human_duration(seconds), want, "{seconds}");
        check(-5, "<invalid>");
        check(-1, "0s");
        check(119, "119s");
        check(120, "2m");
        check(599, "9m59s");
        check(3600, "60m");
        check(3 * 3600, "3h");
        check(3 * 3600 + 60, "3h1m");
        check(8 * 3600 + 60, "8h");
        check(2 * 86400 + 3600, "2d1h");
        check(8 * 86400, "8d");
        check(3 * 365 * 86400 + 86400, "3y1d");
        check(9 * 365 * 86400, "9y");
    }

    #[test]
    fn expressions_show_fields() {
        let object = json!({
            "metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": true}]},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"b": "c", "a": "b"}}, "list": ["x", "y"], "map": {"k": "v"}},
            "status": {"ready": 2},
        });
        let now = time::parse("2026-01-01T00:00:00Z").expect("a time");
        let check =
            |expression: &str, want: Value| assert_eq!(evaluate(expression, &object, now), want, "{expression}");
        check(".spec.replicas", json!(3));
        check(".spec.none|N/A", json!("N/A"));
        check("text .spec.replicas|N/A", json!("3"));
        check("len .spec.list", json!(2));
        check("ratio .status.ready .spec.replicas", json!("2/3"));
        check("join .spec.list", json!("x,y"));
        check("labels .spec.map", json!("k=v"));
        check("selector .spec.selector", json!("a=b,b=c"));
        check("selector .spec.none", json!("<none>"));
        check("controller", json!("statefulset.apps/s"));
        check("bool .spec.none|true", json!(true));
    }
}

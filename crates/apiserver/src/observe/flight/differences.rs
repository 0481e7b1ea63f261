//! Which fields of an object a write changed, from what to what: short texts that outlast the object itself.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// So many fields of one write are told.
const MOST: usize = 64;
/// A value is cut to so many bytes of JSON, a path to as many.
const LONGEST: usize = 256;
/// The fields by which elements of lists are told from each other, as in strategic merge patches.
const KEYS: &[&str] = &["name", "type", "ip", "uid", "key", "containerPort", "port"];
/// What every write changes, or what says who changed it.
const LEFT_OUT: &[&str] = &["managedFields", "resourceVersion"];

/// Field by field. None: the object is not there.
pub(super) fn between(before: Option<&Value>, after: Option<&Value>) -> Vec<Value> {
    let null = Value::Null;
    let mut found = Vec::new();
    compare(&mut String::new(), before.unwrap_or(&null), after.unwrap_or(&null), &mut found);
    found
}

fn compare(path: &mut String, before: &Value, after: &Value, found: &mut Vec<Value>) {
    if before == after || found.len() >= MOST {
        return;
    }
    let empty = Map::new();
    match (before, after) {
        (Value::Object(_) | Value::Null, Value::Object(_) | Value::Null) => {
            let (old, new) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
            let left_out = if path == "metadata" { LEFT_OUT } else { &[] };
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names.into_iter().filter(|name| !left_out.contains(&name.as_str())) {
                let [old, new] = [old, new].map(|of| of.get(name).unwrap_or(&Value::Null));
                below(path, if path.is_empty() { "" } else { "." }, name, "", |path| compare(path, old, new, found));
            }
        }
        (Value::Array(_) | Value::Null, Value::Array(_) | Value::Null) if list_key(before, after).is_some() => {
            let key = list_key(before, after).unwrap_or_default();
            let mut told = BTreeSet::new();
            for name in items(before).iter().chain(items(after)).filter_map(|one| named(one, key)) {
                if told.insert(name.clone()) {
                    let [old, new] = [before, after].map(|list| {
                        items(list).iter().find(|one| named(one, key).as_ref() == Some(&name)).unwrap_or(&Value::Null)
                    });
                    below(path, "[", &name, "]", |path| compare(path, old, new, found));
                }
            }
        }
        _ => {
            let mut one = json!({ "path": cut(path) });
            for (name, value) in [("before", before), ("after", after)] {
                if !value.is_null() {
                    one[name] = shown(value).into();
                }
            }
            found.push(one);
        }
    }
}

fn below(path: &mut String, open: &str, name: &str, close: &str, work: impl FnOnce(&mut String)) {
    let length = path.len();
    for part in [open, cut(name), close] {
        path.push_str(part);
    }
    work(path);
    path.truncate(length);
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn named(one: &Value, key: &str) -> Option<String> {
    match one.get(key)? {
        Value::String(name) => Some(name.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The field that every element of both has, with another value in each.
fn list_key(before: &Value, after: &Value) -> Option<&'static str> {
    let tells_apart = |list: &[Value], key: &str| {
        let names: BTreeSet<String> = list.iter().filter_map(|one| named(one, key)).collect();
        names.len() == list.len()
    };
    let (old, new) = (items(before), items(after));
    // Where all the values of a list are compared with each other, a long list would cost too much.
    let is_short = old.len().max(new.len()) <= MOST && !(old.is_empty() && new.is_empty());
    KEYS.iter().find(|key| is_short && tells_apart(old, key) && tells_apart(new, key)).copied()
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= LONGEST { text } else { format!("{}…", cut(&text)) }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: Value, after: Value, want: Value) {
        let or_none = |value: &Value| (!value.is_null()).then(|| value.clone());
        assert_eq!(json!(between(or_none(&before).as_ref(), or_none(&after).as_ref())), want);
    }

    #[test]
    fn fields_are_told_with_their_paths() {
        let before = json!({
            "metadata": {"name": "web", "resourceVersion": "1", "managedFields": [{"manager": "a"}], "labels": {"a": "b"}},
            "spec": {"replicas": 1, "paused": true, "containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "i:1"}]},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        });
        let after = json!({
            "metadata": {"name": "web", "resourceVersion": "2", "managedFields": [{"manager": "b"}], "labels": {"a": "c"}},
            "spec": {"replicas": 2, "containers": [{"name": "d", "image": "i:1"}, {"name": "c", "image": "i:2"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}]},
        });
        let want = json!([
            {"path": "metadata.labels.a", "before": "\"b\"", "after": "\"c\""},
            {"path": "spec.containers[c].image", "before": "\"i:1\"", "after": "\"i:2\""},
            {"path": "spec.paused", "before": "true"},
            {"path": "spec.replicas", "before": "1", "after": "2"},
            {"path": "status.conditions[Ready].status", "before": "\"False\"", "after": "\"True\""},
            {"path": "status.conditions[Other].status", "after": "\"True\""},
            {"path": "status.conditions[Other].type", "after": "\"Other\""},
        ]);
        check(before.clone(), after, want);
        check(before.clone(), before, json!([]));
        // Lists without keys are told as a whole; what is of another type, too.
        check(
            json!({"args": ["a"]}),
            json!({"args": ["a", "b"]}),
            json!([{"path": "args", "before": r#"["a"]"#, "after": r#"["a","b"]"#}]),
        );
        check(json!({"v": {"a": 1}}), json!({"v": 1}), json!([{"path": "v", "before": r#"{"a":1}"#, "after": "1"}]));
        check(Value::Null, json!({"spec": {"a": 1}}), json!([{"path": "spec.a", "after": "1"}]));
        check(json!({"spec": {"a": 1}}), Value::Null, json!([{"path": "spec.a", "before": "1"}]));
    }

    #[test]
    fn what_is_told_of_a_write_is_bounded() {
        let wide: Map<String, Value> =
            (0..10_000).map(|n| (format!("{n}-{}", "é".repeat(5_000)), "é".repeat(5_000).into())).collect();
        let found = between(None, Some(&json!({ "data": wide })));
        assert_eq!(found.len(), MOST);
        assert!(json!(found).to_string().len() < MOST * (2 * LONGEST + 64));
        let list: Vec<Value> = (0..100_000).map(|n| json!({ "name": n.to_string() })).collect();
        assert_eq!(between(Some(&json!({ "list": list[1..] })), Some(&json!({ "list": list }))).len(), 1);
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!({ "level".repeat(20): deep });
        }
        assert!(json!(between(None, Some(&deep))).to_string().len() < 4 * LONGEST);
    }
}

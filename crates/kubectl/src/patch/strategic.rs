//! For built-in kinds: a strategic merge patch, with the order of lists and what is to be deleted of them.

use ferry_schema::{Field, Type};
use serde_json::{Map, Value, json};

#[derive(Clone, Copy)]
struct Mode {
    deletions: bool,
    changes: bool,
    order: bool,
}

pub fn three_way(ty: &Type, original: &Value, modified: &Value, current: &Value) -> Value {
    let delta = diff(Some(ty), current, modified, Mode { deletions: false, changes: true, order: true });
    let mut patch = diff(Some(ty), original, modified, Mode { deletions: true, changes: false, order: false });
    join(Some(ty), &mut patch, delta);
    Value::Object(patch)
}

/// From one form of an object to another.
pub fn two_way(ty: &Type, from: &Value, to: &Value) -> Value {
    Value::Object(diff(Some(ty), from, to, Mode { deletions: true, changes: true, order: true }))
}

fn field<'a>(ty: Option<&'a Type>, name: &str) -> Option<&'a Field> {
    ty.and_then(|ty| ty.def().field(name))
}

fn diff(ty: Option<&Type>, from: &Value, to: &Value, mode: Mode) -> Map<String, Value> {
    let mut patch = Map::new();
    let empty = Map::new();
    let (from, to) = (from.as_object().unwrap_or(&empty), to.as_object().unwrap_or(&empty));
    for (key, before) in from {
        let Some(after) = to.get(key) else {
            if mode.deletions {
                patch.insert(key.clone(), Value::Null);
            }
            continue;
        };
        let known = field(ty, key);
        let child = ty.and_then(|ty| ty.child(key));
        match (before, after) {
            (Value::Object(_), Value::Object(after_map)) => {
                // As upstream's library has it: such a field is sent whether it differs or not.
                if known.is_some_and(|field| field.patch.replace) {
                    if mode.changes {
                        patch.insert(key.clone(), after_map.clone().into());
                    }
                    continue;
                }
                let mut inner = diff(child.as_ref(), before, after, mode);
                if !inner.is_empty() {
                    if known.is_some_and(|field| field.patch.retain_keys) && mode.changes {
                        let keys: Vec<&String> = after_map.keys().collect();
                        inner.insert("$retainKeys".into(), json!(keys));
                    }
                    patch.insert(key.clone(), inner.into());
                }
            }
            (Value::Array(before), Value::Array(after)) => match known.filter(|field| field.patch.merge) {
                Some(field) => lists(&mut patch, key, child.as_ref(), &field.merge_key, before, after, mode),
                None if mode.changes && before != after => {
                    patch.insert(key.clone(), after.clone().into());
                }
                None => {}
            },
            (before, after) => {
                if mode.changes && before != after {
                    patch.insert(key.clone(), after.clone());
                }
            }
        }
    }
    if mode.changes {
        for (key, after) in to.iter().filter(|(key, _)| !from.contains_key(*key)) {
            patch.insert(key.clone(), after.clone());
        }
    }
    patch
}

fn lists(
    patch: &mut Map<String, Value>,
    key: &str,
    ty: Option<&Type>,
    merge_key: &str,
    before: &[Value],
    after: &[Value],
    mode: Mode,
) {
    if merge_key.is_empty() {
        return plain_lists(patch, key, before, after, mode);
    }
    let of = |item: &Value| item[merge_key].clone();
    let find = |list: &'_ [Value], wanted: &Value| list.iter().position(|item| of(item) == *wanted);
    let mut items: Vec<Value> = Vec::new();
    for item in after {
        match find(before, &of(item)) {
            Some(at) => {
                let mut inner = diff(ty, &before[at], item, mode);
                if !inner.is_empty() {
                    inner.insert(merge_key.to_owned(), of(item));
                    items.push(inner.into());
                }
            }
            None if mode.changes => items.push(item.clone()),
            None => {}
        }
    }
    if mode.deletions {
        for item in before.iter().filter(|item| find(after, &of(item)).is_none()) {
            items.push(json!({"$patch": "delete", merge_key: of(item)}));
        }
    }
    let places: Vec<usize> = after.iter().filter_map(|item| find(before, &of(item))).collect();
    let ordered = places.is_sorted();
    if mode.order && (!items.is_empty() || !ordered) {
        let order: Vec<Value> = after.iter().map(|item| json!({merge_key: of(item)})).collect();
        patch.insert(format!("$setElementOrder/{key}"), order.into());
    }
    if !items.is_empty() {
        patch.insert(key.to_owned(), items.into());
    }
}

/// Lists of texts that are merged, such as finalizers.
fn plain_lists(patch: &mut Map<String, Value>, key: &str, before: &[Value], after: &[Value], mode: Mode) {
    let added: Vec<Value> = after.iter().filter(|item| mode.changes && !before.contains(item)).cloned().collect();
    let gone: Vec<Value> = before.iter().filter(|item| mode.deletions && !after.contains(item)).cloned().collect();
    if mode.order && !added.is_empty() {
        patch.insert(format!("$setElementOrder/{key}"), after.into());
    }
    if !added.is_empty() {
        patch.insert(key.to_owned(), added.into());
    }
    if !gone.is_empty() {
        patch.insert(format!("$deleteFromPrimitiveList/{key}"), gone.into());
    }
}

/// Both patches as one: items of the same key become one item.
fn join(ty: Option<&Type>, into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        let merge_key =
            field(ty, &key).filter(|f| f.patch.merge && !f.merge_key.is_empty()).map(|f| f.merge_key.clone());
        let child = ty.and_then(|ty| ty.child(&key));
        match (into.get_mut(&key), value, merge_key) {
            (Some(Value::Object(known)), Value::Object(more), _) => join(child.as_ref(), known, more),
            (Some(Value::Array(known)), Value::Array(more), Some(merge_key)) => {
                for item in more {
                    let place = known.iter().position(|other| other[&*merge_key] == item[&*merge_key]);
                    match (place.map(|at| &mut known[at]), item) {
                        (Some(Value::Object(other)), Value::Object(item)) => join(child.as_ref(), other, item),
                        (_, item) => known.push(item),
                    }
                }
            }
            (_, value, _) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_is_always_sent() {
        let gvk = ferry_meta::GroupVersionKind::new("policy", "v1", "PodDisruptionBudget");
        let ty = ferry_schema::builtin().kind(&gvk).unwrap();
        let budget = json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
        let patch = three_way(&ty, &budget, &budget, &budget);
        assert_eq!(patch, json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}}));
    }

    #[test]
    fn containers_are_merged_by_name() {
        let gvk = ferry_meta::GroupVersionKind::new("apps", "v1", "Deployment");
        let ty = ferry_schema::builtin().kind(&gvk).unwrap();
        let with = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let original = with(json!([{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "1"}]));
        let modified = with(json!([{"name": "a", "image": "2"}]));
        let current = with(json!([{"name": "a", "image": "1", "args": ["x"], "terminationMessagePath": "/t"},
            {"name": "b", "image": "1"}, {"name": "sidecar", "image": "s"}]));
        let patch = three_way(&ty, &original, &modified, &current);
        assert_eq!(
            patch["spec"]["template"]["spec"],
            json!({
                "$setElementOrder/containers": [{"name": "a"}],
                "containers": [{"name": "a", "image": "2", "args": null}, {"$patch": "delete", "name": "b"}],
            })
        );
        let patched = ferry_schema::patch::apply(
            ferry_schema::patch::PatchKind::Strategic,
            &ty,
            &current,
            patch.to_string().as_bytes(),
            ferry_schema::Validation::Ignore,
        );
        let containers = patched.unwrap().object["spec"]["template"]["spec"]["containers"].clone();
        let names: Vec<&str> = containers.as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a", "sidecar"]);
        assert_eq!(containers[0]["image"], "2");
        assert_eq!(three_way(&ty, &modified, &modified, &modified), json!({}));
    }
}

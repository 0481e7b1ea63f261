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
    let mut patch = diff(Some(ty), original, modified, Mode { deletions: true, changes: false, order: true });
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
                if known.is_some_and(|field| field.patch.retain_keys) {
                    retain(&mut inner, before, after_map);
                }
                if !inner.is_empty() {
                    patch.insert(key.clone(), inner.into());
                }
            }
            (Value::Array(before), Value::Array(after)) => match known.filter(|field| field.patch.merge) {
                Some(field) => lists(&mut patch, key, child.as_ref(), field, before, after, mode),
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

/// Where one field takes the place of another, the patch says which of them stay.
fn retain(patch: &mut Map<String, Value>, before: &Value, after: &Map<String, Value>) {
    let goes = |(key, value): (&String, &Value)| !value.is_null() && !after.contains_key(key);
    if !patch.is_empty() || before.as_object().into_iter().flatten().any(goes) {
        let mut keys: Vec<&String> = after.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key).collect();
        keys.sort();
        if !keys.is_empty() {
            patch.insert("$retainKeys".into(), json!(keys));
        }
    }
}

fn lists(
    patch: &mut Map<String, Value>,
    key: &str,
    ty: Option<&Type>,
    field: &Field,
    before: &[Value],
    after: &[Value],
    mode: Mode,
) {
    // What is not there yet is sent as a whole.
    if before.is_empty() {
        if mode.changes && !after.is_empty() {
            patch.insert(key.to_owned(), after.into());
        }
        return;
    }
    let merge_key = &*field.merge_key;
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
                if let Some(item) = item.as_object().filter(|_| field.patch.retain_keys) {
                    retain(&mut inner, &before[at], item);
                }
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
        let mut gone: Vec<Value> = before.iter().map(&of).filter(|name| find(after, name).is_none()).collect();
        gone.sort_by_key(|name| name.as_str().map_or_else(|| name.to_string(), str::to_owned));
        items.extend(gone.into_iter().map(|name| json!({"$patch": "delete", merge_key: name})));
    }
    let same = before.iter().map(&of).eq(after.iter().map(&of));
    let changed = mode.changes && (!items.is_empty() || !same);
    if mode.order && (changed || (mode.deletions && !items.is_empty())) {
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
    if mode.order && ((mode.changes && before != after) || !gone.is_empty()) {
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
    arrange(ty, into);
}

/// Items stand as their order says, or the server refuses them. What is deleted stands behind.
fn arrange(ty: Option<&Type>, patch: &mut Map<String, Value>) {
    let orders: Vec<(String, Value)> = patch
        .iter()
        .filter_map(|(key, order)| Some((key.strip_prefix("$setElementOrder/")?.to_owned(), order.clone())))
        .collect();
    for (key, order) in orders {
        let merge_key = field(ty, &key).map(|field| field.merge_key.clone()).unwrap_or_default();
        let (Some(order), Some(items)) = (order.as_array(), patch.get_mut(&key).and_then(Value::as_array_mut)) else {
            continue;
        };
        let of = |item: &Value| if merge_key.is_empty() { item.clone() } else { item[&*merge_key].clone() };
        items.sort_by_key(|item| {
            let stays = item["$patch"] != "delete";
            let place = order.iter().position(|one| of(one) == of(item)).filter(|_| stays);
            place.unwrap_or(order.len())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stand_in_their_order_when_some_of_them_lose_something() {
        let gvk = ferry_meta::GroupVersionKind::new("apps", "v1", "Deployment");
        let ty = ferry_schema::builtin().kind(&gvk).unwrap();
        let of = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let env = |names: &[&str]| -> Vec<Value> { names.iter().map(|n| json!({"name": n, "value": n})).collect() };
        let before = of(json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1", "env": env(&["X", "Y"])}]));
        let after = of(json!([{"name": "a", "image": "a:2"}, {"name": "b", "image": "b:1", "env": env(&["Z", "Y"])}]));
        let patch = three_way(&ty, &before, &after, &before);
        let containers = &patch["spec"]["template"]["spec"]["containers"];
        assert_eq!((&containers[0]["name"], &containers[1]["name"]), (&json!("a"), &json!("b")), "{patch}");
        let names: Vec<&Value> = containers[1]["env"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["Z", "X"], "what is deleted stands behind: {patch}");
        let text = patch.to_string();
        let kind = ferry_schema::patch::PatchKind::Strategic;
        let validation = ferry_schema::Validation::Ignore;
        let applied = ferry_schema::patch::apply(kind, &ty, &before, text.as_bytes(), validation).unwrap().object;
        let containers = &applied["spec"]["template"]["spec"]["containers"];
        assert_eq!((&containers[0]["image"], &containers[1]["image"]), (&json!("a:2"), &json!("b:1")));
        assert_eq!(containers[1]["env"], json!(env(&["Z", "Y"])));
    }

    #[test]
    fn one_source_of_a_volume_takes_the_place_of_another() {
        let gvk = ferry_meta::GroupVersionKind::new("", "v1", "Pod");
        let ty = ferry_schema::builtin().kind(&gvk).unwrap();
        let of = |volume: Value| json!({"spec": {"volumes": [volume]}});
        let wanted = of(json!({"name": "v", "secret": {"secretName": "s"}}));
        // Somebody else gave it another source.
        let live = of(json!({"name": "v", "emptyDir": {}}));
        let patch = three_way(&ty, &wanted, &wanted, &live);
        let expected = json!([{"$retainKeys": ["name", "secret"], "name": "v", "secret": {"secretName": "s"}}]);
        assert_eq!(patch["spec"]["volumes"], expected);
    }

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

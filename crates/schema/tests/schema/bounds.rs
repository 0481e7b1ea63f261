//! Values do not grow beyond what they may, whatever a client sends; and what takes more than its length grows no worse than that:
//! were one of these lists compared item by item with another, its test would not end.

use ferry_meta::GroupVersionKind;
use ferry_meta::bounds::DEEPEST;
use ferry_schema::managed::{self, Write};
use ferry_schema::patch::{self, PatchError, PatchKind, json_patch, merge_patch};
use ferry_schema::structural::{Schema, custom_type};
use ferry_schema::{DecodeError, Format, Validation, decode};
use serde_json::{Value, json};

use crate::kind;

/// As many items as a body has room for.
const MANY: usize = 30_000;

/// `add /a {}`, then `/a` into its own deepest leaf, again and again: each time twice as deep.
#[test]
fn nothing_grows_deeper_than_values_may() {
    let mut path = String::from("/a");
    let mut operations = vec![json!({"op": "add", "path": "/a", "value": {}})];
    for _ in 0..16 {
        operations.push(json!({"op": "copy", "from": "/a", "path": format!("{path}/a")}));
        path = format!("{path}{path}");
    }
    let refused = json_patch(json!({}), &Value::Array(operations));
    assert_eq!(refused, Err(PatchError::DoesNotApply("exceeded max depth".into())));
}

#[test]
fn depth_is_counted_to_the_last_level() {
    let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let document = nested(DEEPEST - 1);
    let path = "/a".repeat(DEEPEST - 1);
    for (op, more, fits) in [("add", "/a", true), ("add", "/a/a", false), ("replace", "/b", true)] {
        let operations = json!([{"op": op, "path": format!("{path}{more}"), "value": {}}]);
        assert_eq!(json_patch(document.clone(), &operations).is_ok(), fits, "{op} {more}");
    }
    for (op, value, fits) in [("add", nested(DEEPEST - 1), true), ("replace", nested(DEEPEST), false)] {
        let operations = json!([{"op": op, "path": "/x", "value": value}]);
        assert_eq!(json_patch(json!({}), &operations).is_ok(), fits, "{op}");
    }
    for op in ["copy", "move"] {
        let both = json!({"a": nested(60), "b": nested(60)});
        let down = |levels: usize| json!([{"op": op, "from": "/a", "path": format!("/b{}/x", "/a".repeat(levels))}]);
        assert!(json_patch(both.clone(), &down(38)).is_ok(), "{op}");
        assert!(json_patch(both, &down(39)).is_err(), "{op}");
    }
}

#[test]
fn copies_do_not_multiply() {
    // Each copy doubles the list.
    let mut operations = vec![json!({"op": "add", "path": "/l", "value": ["x".repeat(1000)]})];
    for _ in 0..40 {
        operations.push(json!({"op": "copy", "from": "/l", "path": "/l/-"}));
    }
    let refused = json_patch(json!({}), &Value::Array(operations));
    assert!(matches!(&refused, Err(PatchError::DoesNotApply(why)) if why.contains("accumulated")), "{refused:?}");
    // Small in JSON, large in memory.
    let document = json!({"l": vec![json!({"": 0}); 20_000]});
    let operations: Vec<Value> =
        (0..15).map(|at| json!({"op": "copy", "from": "/l", "path": format!("/{at}")})).collect();
    assert!(json_patch(document, &Value::Array(operations)).is_err());
}

#[test]
fn moving_through_long_lists_ends() {
    let document = json!({"l": vec![0; 200_000]});
    let operation = json!({"op": "move", "from": "/l/0", "path": "/l/0"});
    let refused = json_patch(document, &Value::Array(vec![operation; 10_000]));
    assert!(matches!(&refused, Err(PatchError::DoesNotApply(why)) if why.contains("too much")), "{refused:?}");
}

#[test]
fn objects_are_refused_before_they_are_made() {
    let pod = kind("", "v1", "Pod");
    let body = |list: &str, item: &str, count: usize| {
        format!("{{\"spec\": {{\"{list}\": [{}]}}}}", vec![item; count].join(","))
    };
    for (list, item, count, fits) in [
        ("containers", "{}", 1_000, true),
        // Three bytes each, and a kilobyte of what Go writes in it.
        ("containers", "{}", 900_000, false),
        ("containers", "{\"name\":\"a\"}", 100_000, false),
        ("unknown", "{\"\":0}", 350_000, false),
        ("tolerations", "{\"key\":\"a\"}", 20_000, true),
    ] {
        for format in [Format::Json, Format::Yaml] {
            let outcome = decode(&pod, body(list, item, count).as_bytes(), format, Validation::Ignore);
            let refused = matches!(outcome, Err(DecodeError::TooLarge(_)));
            assert_eq!((outcome.is_ok(), refused), (fits, !fits), "{count} {item} in {list} as {format:?}");
        }
    }
}

#[test]
fn complaints_are_told_in_part() {
    let pod = kind("", "v1", "Pod");
    let long = "x".repeat(500_000);
    let fields = |count: usize| (0..count).map(|n| format!("\"u{n}\":0")).collect::<Vec<_>>().join(",");
    for body in [
        format!("{{{}}}", fields(100_000)),
        format!("{{\"spec\": {{\"nodeSelector\": {{\"{long}\": {{{}}}}}}}}}", fields(10_000)),
        format!("{{\"{long}\": 1, \"spec\": {{\"{long}\": 2}}}}"),
    ] {
        if let Err(error) = decode(&pod, body.as_bytes(), Format::Json, Validation::Strict) {
            assert!(error.to_string().len() < 1 << 20, "{}", error.to_string().len());
        }
    }
}

fn pod(finalizers: &[String], containers: &[String]) -> Value {
    let containers: Vec<Value> =
        containers.iter().map(|name| json!({"name": name, "image": "i", "resources": {}})).collect();
    json!({"metadata": {"name": "p", "finalizers": finalizers}, "spec": {"containers": containers}})
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n/{number}")).collect()
}

#[test]
fn long_lists_are_merged() {
    let ty = kind("", "v1", "Pod");
    let (names, mut backwards) = (names(MANY), names(MANY));
    backwards.reverse();
    let live = pod(&names, &names);
    let keyed = |names: &[String]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
    for patch in [
        json!({"metadata": {"finalizers": backwards}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": backwards}}),
        json!({"metadata": {"$setElementOrder/finalizers": backwards, "finalizers": backwards}}),
        json!({"spec": {"containers": keyed(&backwards)}}),
        json!({"spec": {"$setElementOrder/containers": keyed(&backwards)}}),
        json!({"spec": {"containers": backwards.iter().map(|name| json!({"name": name, "$patch": "delete"})).collect::<Vec<_>>()}}),
        json!({"spec": {"$retainKeys": backwards}}),
    ] {
        let outcome = patch::apply(PatchKind::Strategic, &ty, &live, patch.to_string().as_bytes(), Validation::Ignore);
        assert!(outcome.is_ok(), "{}: {outcome:?}", &patch.to_string()[..60]);
    }
}

#[test]
fn long_lists_are_applied() {
    let ty = kind("", "v1", "Pod");
    let gvk = GroupVersionKind::new("", "v1", "Pod");
    let write = |manager| Write {
        gvk: &gvk,
        manager,
        subresource: "",
        reset: &["status"],
        now: jiff::Timestamp::UNIX_EPOCH,
        versions: None,
    };
    let (names, mut backwards) = (names(MANY / 2), names(MANY / 2));
    backwards.reverse();
    let mut live = pod(&names, &names);
    managed::update(&ty, &write("one"), None, &mut live);
    let mut config = pod(&backwards, &backwards);
    config["apiVersion"] = json!("v1");
    config["kind"] = json!("Pod");
    for container in config["spec"]["containers"].as_array_mut().expect("containers") {
        container["image"] = json!("j");
    }
    // Each of them is in conflict: they are counted, and the first are named.
    let refused = managed::apply(&ty, &write("two"), Some(&live), &config, false).expect_err("conflicts");
    let refused: ferry_meta::ApiError = refused.into();
    let message = &refused.0.message;
    assert!(message.starts_with(&format!("Apply failed with {} conflicts", MANY / 2)), "{message:.80}");
    assert!(message.ends_with("more") && message.len() < 300_000, "{}", message.len());
    let applied = managed::apply(&ty, &write("two"), Some(&live), &config, true).expect("an object");
    let fewer = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    assert!(managed::apply(&ty, &write("two"), Some(&applied), &fewer, true).is_ok());
}

#[test]
fn managers_of_a_client_are_lumped_together() {
    let ty = kind("", "v1", "ConfigMap");
    let gvk = GroupVersionKind::new("", "v1", "ConfigMap");
    let entries: Vec<Value> = (0..20_000)
        .map(|number| {
            json!({"manager": format!("m{number}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "time": "2024-01-01T00:00:00Z", "fieldsV1": {"f:data": {format!("f:k{number}"): {}}}})
        })
        .collect();
    let write = Write {
        gvk: &gvk,
        manager: "m",
        subresource: "",
        reset: &[],
        now: jiff::Timestamp::UNIX_EPOCH,
        versions: None,
    };
    let old = json!({"metadata": {"name": "c", "uid": "u", "managedFields": entries}, "data": {"a": "b"}});
    let mut new = old.clone();
    managed::keep_times(&old, &mut new);
    managed::update(&ty, &write, Some(&old), &mut new);
    assert!(new["metadata"]["managedFields"].as_array().is_some_and(|entries| entries.len() <= 12));
}

#[test]
fn custom_resources_have_long_lists_and_long_keys() {
    let schema = |list: Value| {
        let schema =
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"list": list}}}});
        Schema::parse(&schema)
    };
    let items: Vec<Value> = (0..MANY).map(|number| json!({"name": number.to_string()})).collect();
    let mut backwards = items.clone();
    backwards.reverse();
    let (old, new) = (json!({"spec": {"list": items}}), json!({"spec": {"list": backwards}}));
    let item = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let map = schema(
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item}),
    );
    assert!(map.validate(&new, Some(&old)).is_empty() && map.duplicates(&new).is_empty());
    let set = schema(json!({"type": "array", "x-kubernetes-list-type": "set", "uniqueItems": true, "items": item}));
    assert!(set.validate(&new, Some(&old)).is_empty() && set.duplicates(&new).is_empty());
    // Each twice, and one many times: a second time is told, no further one.
    let twice: Vec<Value> = (0..MANY).map(|number| json!({"name": (number / 2).to_string()})).collect();
    let same = vec![json!({"name": "a"}); MANY];
    for (list, told) in [(twice, MANY / 2), (same, 1)] {
        let duplicates = set.duplicates(&json!({"spec": {"list": list}}));
        assert_eq!(duplicates.len() + duplicates.more(), told);
    }
    let values: Vec<String> = (0..MANY).map(|number| number.to_string()).collect();
    let allowed = schema(
        json!({"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string", "enum": values}}}}),
    );
    assert!(allowed.validate(&new, None).is_empty());
    // Every field below a long key has that key in its path.
    let maps = json!({"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"type": "object"}}});
    let deep = schema(maps);
    let below: serde_json::Map<String, Value> =
        (0..MANY).map(|number| (number.to_string(), json!({"unknown": 1}))).collect();
    let mut object = json!({"spec": {"list": {"x".repeat(1 << 20): below}}});
    assert!(deep.prune(&mut object).iter().map(String::len).sum::<usize>() < 8 << 20);
    let ty = custom_type(&GroupVersionKind::new("e.com", "v1", "E"), deep);
    assert!(ferry_schema::decode_value(&ty, &object, Validation::Strict).is_ok());
}

#[test]
fn alternatives_are_tried_a_bounded_number_of_times() {
    let alternatives: Vec<Value> = (0..2_000).map(|number| json!({"required": [number.to_string()]})).collect();
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "object", "anyOf": alternatives}}}});
    let object = json!({"l": vec![json!({}); MANY]});
    let errors = Schema::parse(&schema).validate(&object, None);
    assert!(errors.iter().any(|error| error.line().contains("more values than can be compared")) || errors.more() > 0);
}

#[test]
fn merges_stay_within_what_both_sides_had() {
    let nested = |levels: usize| (0..levels).fold(json!({"x": 1}), |inner, _| json!({"a": inner}));
    let merged = merge_patch(nested(90), &nested(99)).expect("an object");
    assert!(ferry_meta::bounds::Extent::of(&merged).check().is_ok());
}

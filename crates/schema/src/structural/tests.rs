use ferry_meta::{FieldError, GroupVersionKind};
use serde_json::{Value, json};

use super::{Schema, custom_type};
use crate::decode::{Format, Validation, decode};
use crate::managed;

fn schema(properties: Value) -> Schema {
    Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}))
}

#[test]
fn unknown_fields_go_and_are_named() {
    let schema = schema(json!({
        "a": {"type": "string"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"known": {"type": "object", "properties": {"k": {"type": "string"}}}}},
        "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "any": {"type": "object", "additionalProperties": true},
    }));
    let mut object = json!({"kind": "K", "metadata": {"name": "x"}, "top": 1, "spec": {
        "a": "1", "zzz": 1, "free": {"other": {"deep": [1]}, "known": {"k": "v", "gone": 1}},
        "m": {"k": {"x": 1, "y": 2}}, "l": [{"x": 1, "y": 2}, {"y": 3}], "any": {"b": {"c": 1}}}});
    let unknown = schema.prune(&mut object);
    assert_eq!(unknown, ["spec.free.known.gone", "spec.l[0].y", "spec.l[1].y", "spec.m.k.y", "spec.zzz", "top"]);
    assert_eq!(
        object,
        json!({"kind": "K", "metadata": {"name": "x"}, "spec": {"a": "1", "any": {"b": {"c": 1}},
            "free": {"other": {"deep": [1]}, "known": {"k": "v"}}, "m": {"k": {"x": 1}}, "l": [{"x": 1}, {}]}})
    );
}

#[test]
fn defaults_are_filled_in_and_nulls_go() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "object",
    "default": {"plain": "from-default"},
    "properties": {
        "plain": {"type": "string"},
        "null": {"type": "string", "nullable": true, "default": "x"},
        "d": {"type": "string", "default": "dv"},
        "o": {"type": "object", "default": {}, "properties": {"in": {"type": "integer", "default": 7}}},
        "l": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}}
    }}}}));
    for (spec, want) in [
        (None, json!({"plain": "from-default", "null": "x", "d": "dv", "o": {"in": 7}})),
        (Some(json!({})), json!({"null": "x", "d": "dv", "o": {"in": 7}})),
        (Some(json!({"plain": null, "null": null, "d": null})), json!({"null": null, "d": "dv", "o": {"in": 7}})),
        (
            Some(json!({"o": {}, "l": [{}, {"p": "UDP"}]})),
            json!({"null": "x", "d": "dv", "o": {"in": 7}, "l": [{"p": "TCP"}, {"p": "UDP"}]}),
        ),
    ] {
        let mut object = spec.map_or_else(|| json!({}), |spec| json!({"spec": spec}));
        schema.fill_defaults(&mut object);
        assert_eq!(object["spec"], want);
        let once = object.clone();
        schema.fill_defaults(&mut object);
        assert_eq!(object, once);
    }
}

#[test]
fn values_are_refused_with_upstreams_words() {
    let schema = schema(json!({
        "en": {"type": "string", "enum": ["a", "b"]},
        "i32": {"type": "integer", "format": "int32"},
        "min": {"type": "integer", "minimum": 3, "maximum": 10},
        "num": {"type": "number", "multipleOf": 0.5},
        "len": {"type": "string", "minLength": 2, "maxLength": 4},
        "pat": {"type": "string", "pattern": "^x+$"},
        "short": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
        "free": {"type": "integer"},
        "odd": {"type": "string", "format": "odd"},
        "k8s": {"type": "string", "format": "k8s-short-name"},
        "date": {"type": "string", "format": "date-time"},
        "ios": {"x-kubernetes-int-or-string": true},
        "req": {"type": "object", "required": ["y"]},
        "one": {"type": "object", "oneOf": [{"required": ["p"]}, {"required": ["q"]}]},
        "nt": {"type": "string", "not": {"enum": ["no"]}},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "half": {"type": "number", "multipleOf": 2.5, "maximum": 3.5},
        "int": {"type": "integer", "minimum": -2.5, "maximum": 2.5},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
    }));
    let check = |spec: Value, want: &[&str]| {
        let object = json!({"spec": spec});
        let mut errors = schema.validate(&object, None);
        errors.extend(schema.duplicates(&object));
        assert_eq!(errors.iter().map(FieldError::line).collect::<Vec<_>>(), want, "{object}");
        assert!(schema.validate(&object, Some(&object)).is_empty());
    };
    check(
        json!({"en": "a", "min": 4.0, "num": 1.5, "date": "2001-01-01T00:00:00Z", "ios": "50%", "set": ["a", "b"]}),
        &[],
    );
    check(json!({"date": "2001-01-01T00:00:00.123+01:00"}), &[]);
    check(json!({"date": "9999-12-31T23:59:59Z"}), &[]);
    check(
        json!({"en": 5}),
        &[
            "spec.en: Invalid value: \"integer\": spec.en in body must be of type string: \"integer\"",
            "spec.en: Unsupported value: 5: supported values: \"a\", \"b\"",
        ],
    );
    check(
        json!({"i32": 3_000_000_000_i64}),
        &["<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.i32"],
    );
    // What a float alone has room for is no integer, and only the first mistake of a text's length and pattern is told.
    check(
        json!({"min": 9_223_372_036_854_775_808_u64}),
        &[
            "spec.min: Invalid value: \"number\": spec.min in body must be of type integer: \"number\"",
            "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.min",
            "spec.min: Invalid value: 9.223372036854776e+18: spec.min in body should be less than or equal to 10",
        ],
    );
    check(json!({"free": i64::MAX}), &[]);
    check(json!({"short": "ABCDE"}), &["spec.short: Too long: may not be more than 4 bytes"]);
    check(
        json!({"short": "A"}),
        &["spec.short: Invalid value: \"A\": spec.short in body should be at least 2 chars long"],
    );
    check(json!({"short": "AB"}), &["spec.short: Invalid value: \"AB\": spec.short in body should match '^[a-z]+$'"]);
    // A format is held against what is there, texts and lists are left to it, and unknown ones are none.
    check(
        json!({"date": 5}),
        &["spec.date: Invalid value: \"int64\": spec.date in body must be of type date-time: \"int64\""],
    );
    check(json!({"date": {}}), &["spec.date: Invalid value: \"\": spec.date in body must be of type date-time: \"\""]);
    check(json!({"date": []}), &[]);
    check(
        json!({"odd": 5}),
        &["spec.odd: Invalid value: \"integer\": spec.odd in body must be of type string: \"integer\""],
    );
    check(json!({"k8s": "a-b"}), &[]);
    check(
        json!({"k8s": "A"}),
        &["spec.k8s: Invalid value: \"A\": spec.k8s in body must be of type k8s-short-name: \"A\""],
    );
    check(json!({"min": 2}), &["spec.min: Invalid value: 2: spec.min in body should be greater than or equal to 3"]);
    check(json!({"num": 0.7}), &["spec.num: Invalid value: 0.7: spec.num in body should be a multiple of 0.5"]);
    // An integer is held to limits without their fractions; an integer's type has no fractions at all.
    check(
        json!({"num": 1}),
        &["spec.num: Invalid value: 0: factor MultipleOf declared for spec.num must be positive: 0"],
    );
    check(json!({"half": 2.5}), &[]);
    check(json!({"half": 4}), &["spec.half: Invalid value: 4: spec.half in body should be less than or equal to 3"]);
    check(
        json!({"half": 5}),
        &[
            "spec.half: Invalid value: 5: spec.half in body should be a multiple of 2",
            "spec.half: Invalid value: 5: spec.half in body should be less than or equal to 3",
        ],
    );
    check(
        json!({"int": 3}),
        &[
            "<nil>: Invalid value: \"\": Minimum boundary value must be of type integer (default format) in spec.int",
            "<nil>: Invalid value: \"\": Maximum boundary value must be of type integer (default format) in spec.int",
            "spec.int: Invalid value: 3: spec.int in body should be less than or equal to 2.5",
        ],
    );
    check(json!({"set": ["a", "a", "b", "a"]}), &["spec.set[1]: Duplicate value: \"a\""]);
    check(
        json!({"map": [{"k": "x"}, null, {"k": "x"}, {"k": "x"}]}),
        &[
            "spec.map[1]: Invalid value: \"null\": spec.map[1] in body must be of type object: \"null\"",
            "spec.map[2]: Duplicate value: {\"k\":\"x\"}",
        ],
    );
    check(
        json!({"map": [{"k": "x"}, false, {"k": "x"}]}),
        &[
            "spec.map[1]: Invalid value: \"boolean\": spec.map[1] in body must be of type object: \"boolean\"",
            "spec.map[1]: Invalid value: false: must be an object for an array of list-type map",
        ],
    );
    check(json!({"len": "abcde"}), &["spec.len: Too long: may not be more than 4 bytes"]);
    check(json!({"pat": "xyz"}), &["spec.pat: Invalid value: \"xyz\": spec.pat in body should match '^x+$'"]);
    check(
        json!({"date": "yesterday"}),
        &["spec.date: Invalid value: \"yesterday\": spec.date in body must be of type date-time: \"yesterday\""],
    );
    check(
        json!({"ios": 1.5}),
        &["spec.ios: Invalid value: \"number\": spec.ios in body must be of type integer,string: \"number\""],
    );
    check(json!({"req": {}}), &["spec.req.y: Required value"]);
    check(
        json!({"one": {}}),
        &[
            "<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found none valid",
            "spec.one.p: Required value",
        ],
    );
    check(json!({"nt": "no"}), &["<nil>: Invalid value: \"\": \"spec.nt\" must not validate the schema (not)"]);
    check(json!({"set": ["x", "y", "x"]}), &["spec.set[2]: Duplicate value: \"x\""]);
}

#[test]
fn unchanged_values_are_forgiven() {
    let schema = schema(json!({"a": {"type": "string", "maxLength": 3}, "b": {"type": "string"}}));
    let old = json!({"spec": {"a": "long-value"}});
    assert!(schema.validate(&json!({"spec": {"a": "long-value", "b": "new"}}), Some(&old)).is_empty());
    assert_eq!(schema.validate(&json!({"spec": {"a": "other-long"}}), Some(&old)).len(), 1);
}

#[test]
fn bodies_are_read_strictly_or_not() {
    let kind = GroupVersionKind::new("example.com", "v1", "Widget");
    let ty = custom_type(&kind, schema(json!({"a": {"type": "string"}})));
    let body = br#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x","nope":1},"top":1,"spec":{"a":"1","a":"2","zzz":1}}"#;
    let decoded = decode(&ty, body, Format::Json, Validation::Warn).expect("an object");
    assert_eq!(decoded.object["spec"], json!({"a": "2"}));
    let found = [
        "duplicate field \"spec.a\"",
        "unknown field \"metadata.nope\"",
        "unknown field \"spec.zzz\"",
        "unknown field \"top\"",
    ];
    assert_eq!(decoded.warnings, found);
    let error = decode(&ty, body, Format::Json, Validation::Strict).expect_err("refused");
    assert_eq!(error.to_string(), format!("strict decoding error: {}", found.join(", ")));
    let text = String::from_utf8(crate::encode_json(&ty, &decoded.object)).expect("text");
    assert_eq!(text, r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"x"},"spec":{"a":"2"}}"#);
}

#[test]
fn apply_merges_lists_by_their_keys() {
    let kind = GroupVersionKind::new("example.com", "v1", "Widget");
    let ty = custom_type(
        &kind,
        schema(json!({
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "p": {"type": "integer", "default": 80}, "v": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        })),
    );
    let write = managed::Write {
        gvk: &kind,
        manager: "m",
        subresource: "",
        reset: &[],
        now: jiff::Timestamp::UNIX_EPOCH,
        versions: None,
    };
    let mut live = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"},
        "spec": {"map": [{"k": "a", "p": 1}], "free": {"o": {"d": [1]}}}});
    managed::update(&ty, &write, None, &mut live);
    let owned = &live["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(
        owned,
        &json!({"f:spec": {".": {}, "f:free": {".": {}, "f:o": {".": {}, "f:d": {}}},
            "f:map": {".": {}, "k:{\"k\":\"a\",\"p\":1}": {".": {}, "f:k": {}, "f:p": {}}}}})
    );
    let config = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"},
        "spec": {"map": [{"k": "b", "p": 3, "v": "mine"}], "free": {"n": null}}});
    let write = managed::Write { manager: "other", ..write };
    let merged = managed::apply(&ty, &write, Some(&live), &config, false).expect("merged");
    assert_eq!(merged["spec"]["map"], json!([{"k": "a", "p": 1}, {"k": "b", "p": 3, "v": "mine"}]));
    assert_eq!(merged["spec"]["free"], json!({"n": null, "o": {"d": [1]}}));
    let bad = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"yyy": 1}});
    let error = managed::apply(&ty, &write, Some(&live), &bad, false).expect_err("refused");
    assert!(error.to_string().ends_with(".spec.yyy: field not declared in schema"), "{error}");
}

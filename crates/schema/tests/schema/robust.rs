//! Nothing a client sends makes the engine panic, and what it does twice it does the same.

use ferry_meta::GroupVersionKind;
use ferry_schema::managed::{self, Write};
use ferry_schema::patch::{self, PatchKind};
use ferry_schema::{Format, Type, Validation, decode, encode_json, proto};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::kind;

/// Words that mean something somewhere, so that random objects get past the first check.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "metadata",
            "name",
            "labels",
            "annotations",
            "finalizers",
            "managedFields",
            "ownerReferences",
            "spec",
            "status",
            "containers",
            "image",
            "env",
            "value",
            "ports",
            "containerPort",
            "protocol",
            "resources",
            "limits",
            "cpu",
            "volumes",
            "emptyDir",
            "configMap",
            "template",
            "selector",
            "matchLabels",
            "strategy",
            "rollingUpdate",
            "maxSurge",
            "replicas",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "delete",
            "replace",
            "merge",
            "conditions",
            "type",
            "uid",
            "creationTimestamp",
            "kind",
            "apiVersion",
            "fieldsV1",
            "f:spec",
            "v:1",
            "k:{}",
        ])
        .prop_map(str::to_owned),
        "[a-z]{0,3}",
        Just("2024-01-02T03:04:05Z".to_owned()),
        Just("100m".to_owned()),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (1i16..).prop_map(|n| json!(f64::from(n) / 4.0)),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((word(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn deployment_type() -> Type {
    kind("apps", "v1", "Deployment")
}

/// A deployment that has something of everything, with random parts.
fn object() -> impl Strategy<Value = Value> {
    let image = word();
    (image, prop::collection::vec("[a-d]", 0..4), prop::collection::btree_map("[a-c]", "[x-z]", 0..3)).prop_map(
        |(image, names, labels)| {
            let containers: Vec<Value> = names
                .iter()
                .map(|name| json!({"name": name, "image": image, "ports": [{"containerPort": 80}], "args": [name]}))
                .collect();
            json!({"metadata": {"name": "d", "labels": labels, "finalizers": names}, "spec": {"replicas": names.len(),
                "selector": {"matchLabels": labels}, "template": {"spec": {"containers": containers}}}})
        },
    )
}

fn normal(ty: &Type, value: &Value) -> Option<Value> {
    decode(ty, value.to_string().as_bytes(), Format::Json, Validation::Ignore).ok().map(|d| d.object)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let ty = deployment_type();
        let _ = decode(&ty, &bytes, Format::Json, Validation::Strict);
        let _ = decode(&ty, &bytes, Format::Yaml, Validation::Strict);
        let _ = proto::decode_raw(&ty, &bytes);
        let _ = proto::decode(&ty, &[proto::MAGIC.as_slice(), &bytes].concat());
        let _ = patch::apply(PatchKind::Json, &ty, &json!({}), &bytes, Validation::Warn);
    }

    #[test]
    fn text_never_panics(text in "[\\[\\]{}:,\"a-c \\n\\-&*!|>'#?%@0-9.~<\\\\/]{0,80}") {
        let ty = deployment_type();
        let _ = decode(&ty, text.as_bytes(), Format::Yaml, Validation::Warn);
        let _ = decode(&ty, text.as_bytes(), Format::Json, Validation::Warn);
        let _ = ferry_schema::quantity::canonical(&text);
        let _ = ferry_schema::go_time::time(&text);
    }

    #[test]
    fn what_was_decoded_stays_as_it_is(value in value()) {
        let ty = deployment_type();
        if let Some(once) = normal(&ty, &value) {
            let text = encode_json(&ty, &once);
            let again = decode(&ty, &text, Format::Json, Validation::Strict).expect("our own JSON");
            prop_assert_eq!(&again.object, &once);
            let bytes = proto::encode(&ty, &once);
            let back = proto::decode(&ty, &bytes).expect("our own protobuf");
            prop_assert_eq!(proto::encode(&ty, &back), bytes);
        }
    }

    #[test]
    fn yaml_comes_back(value in value()) {
        let text = ferry_schema::yaml::to_yaml(&value);
        let (back, _) = ferry_schema::yaml::parse_value(text.as_bytes()).expect("our own YAML");
        // Floats that are whole come back as integers.
        prop_assert_eq!(back.to_string().replace(".0", ""), value.to_string().replace(".0", ""));
    }

    #[test]
    fn patches_never_panic(object in object(), patch in value()) {
        let ty = deployment_type();
        let live = normal(&ty, &object).expect("an object");
        for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic] {
            let _ = patch::apply(kind, &ty, &live, patch.to_string().as_bytes(), Validation::Warn);
        }
    }

    #[test]
    fn applying_again_changes_nothing(object in object(), mut config in value(), other in object()) {
        let ty = deployment_type();
        let gvk = GroupVersionKind::new("apps", "v1", "Deployment");
        let write = |manager| Write { gvk: &gvk, manager, subresource: "", reset: &["status"], now: jiff::Timestamp::UNIX_EPOCH, versions: None };
        let mut live = normal(&ty, &object).expect("an object");
        managed::update(&ty, &write("updater"), None, &mut live);
        for config in [&mut config, &mut other.clone()] {
            if config.is_object() {
                config["apiVersion"] = "apps/v1".into();
                config["kind"] = "Deployment".into();
                if let Ok(once) = managed::apply(&ty, &write("applier"), Some(&live), config, true) {
                    let twice = managed::apply(&ty, &write("applier"), Some(&once), config, true).expect("what was applied before");
                    prop_assert_eq!(twice, once);
                }
            }
        }
    }
}

//! What several versions of a definition are told, and in which order.

use ferry_meta::{FieldErrors, UserInfo};
use serde_json::{Value, json};

use super::CustomResourceDefinition;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

fn version(name: &str, properties: Value) -> Value {
    json!({"name": name, "served": true, "storage": name == "v1",
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}})
}

fn told(versions: Value) -> Vec<String> {
    let strategy = CustomResourceDefinition(<Plain as Default>::default());
    let mut definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": versions},
    });
    strategy.default(&mut definition);
    let user = UserInfo::new("u", &[]);
    let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
    let errors: FieldErrors = strategy.validate_create(&context, &definition);
    errors.iter().map(|error| format!("{}: {}", error.path, error.detail)).collect()
}

/// A default is judged before the rest of its schema is, and for each version.
#[test]
fn defaults_of_every_version_come_before_its_other_mistakes() {
    let wrong = json!({"spec": {"type": "object", "properties": {
        "a": {"type": "string", "default": 1}, "b": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}});
    let mut second = version("v2", wrong);
    second["schema"]["openAPIV3Schema"]["nullable"] = json!(true);
    let found = told(json!([version("v1", json!({})), second]));
    let paths: Vec<&str> = found.iter().filter_map(|error| error.split(": ").next()).collect();
    let schema = "spec.versions[1].schema.openAPIV3Schema";
    let of_default = format!("{schema}.properties[spec].properties[a].default");
    let nullable = format!("{schema}.nullable");
    let place = |path: &str| paths.iter().position(|found| *found == path);
    assert!(place(&nullable) < place(&of_default) && place(&of_default).is_some(), "{found:?}");
    let later = place(&format!("{schema}.properties[spec].properties[b].uniqueItems"));
    assert!(place(&of_default) < later, "{found:?}");
}

/// What all versions have in common is looked at in one place, and is not seen from the other.
#[test]
fn selectable_fields_and_schemas_are_shared_or_not_together() {
    let field = json!([{"jsonPath": ".spec.a"}]);
    let schema = json!({"spec": {"type": "object", "properties": {"a": {"type": "string"}}}});
    let wider = json!({"spec": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}});
    let with = |mut version: Value, fields: &Value| {
        version["selectableFields"] = fields.clone();
        version
    };
    let alike = told(json!([with(version("v1", schema.clone()), &field), with(version("v2", schema.clone()), &field)]));
    assert_eq!(alike, Vec::<String>::new());
    let own = told(json!([with(version("v1", schema.clone()), &field), version("v2", wider.clone())]));
    assert_eq!(own, Vec::<String>::new());
    let fields_alike = told(json!([with(version("v1", schema.clone()), &field), with(version("v2", wider), &field)]));
    assert_eq!(fields_alike, ["spec.selectableFields: may only be set when validations.schema is included"]);
    let schemas_alike = told(json!([with(version("v1", schema.clone()), &field), version("v2", schema)]));
    assert_eq!(
        schemas_alike,
        ["spec.versions[0].selectableFields: may only be set when `version.schema.openAPIV3Schema` is not included"]
    );
}

#[test]
fn warnings_of_deprecated_versions_are_plain_text() {
    for (deprecated, text, wanted) in [
        (true, "use v2".to_owned(), ""),
        (false, "use v2".to_owned(), "can only be set for deprecated versions"),
        (false, String::new(), "can only be set for deprecated versions"),
        (true, String::new(), "must not be an empty string"),
        (true, "ü".repeat(129), "must be <= 256 characters long"),
        (
            true,
            "a\nb".to_owned(),
            "must only contain printable UTF-8 characters; non-printable character found at index 1",
        ),
    ] {
        let mut one = version("v1", json!({}));
        one["deprecated"] = deprecated.into();
        one["deprecationWarning"] = text.into();
        let wanted: Vec<String> = (!wanted.is_empty())
            .then(|| format!("spec.versions[0].deprecationWarning: {wanted}"))
            .into_iter()
            .collect();
        assert_eq!(told(json!([one])), wanted);
    }
}

//! From a definition to rows of the table, one per served version.

use std::cmp::Reverse;
use std::sync::Arc;

use ferry_meta::{GroupVersionKind, object};
use ferry_schema::Type;
use ferry_schema::structural::{Schema, custom_type};
use serde_json::Value;

use super::custom::{Custom, ScalePaths};
use super::json_path::JsonPath;
use super::rules::Rules;
use crate::cursor::Cursor;
use crate::plain::Plain;
use crate::resource::{Column, Resource, Subresource};

const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
/// Upstream's order of the verbs of custom resources.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Where the objects of a definition lie in the store.
pub fn storage_prefix(definition: &Value) -> String {
    let spec = Cursor::root(definition).get("spec");
    format!("{}/{}", spec.text("group"), spec.get("names").text("plural"))
}

/// The kind and the type in which objects are stored.
pub fn stored_type(definition: &Value) -> Option<(GroupVersionKind, Type)> {
    let spec = Cursor::root(definition).get("spec");
    let versions = spec.items("versions");
    let version = versions.iter().find(|version| version.is_true("storage"))?;
    let kind = GroupVersionKind::new(spec.text("group"), version.text("name"), spec.get("names").text("kind"));
    let ty = custom_type(&kind, Schema::parse(version.get("schema").raw("openAPIV3Schema")));
    Some((kind, ty))
}

/// The webhook that converts between the versions of a definition; None where only the version's name changes.
pub fn conversion(spec: &Cursor<'_>) -> Option<Value> {
    let conversion = spec.get("conversion");
    (conversion.text("strategy") == "Webhook").then(|| conversion.raw("webhook").clone())
}

/// The rows of a definition whose names were accepted, the preferred version first.
pub fn rows(definition: &Value) -> Vec<Arc<Resource>> {
    let spec = Cursor::root(definition).get("spec");
    let names = Cursor::root(definition).get("status").get("acceptedNames");
    let group = spec.text("group");
    let kind = |version: &str| GroupVersionKind::new(group, version, names.text("kind"));
    let versions = spec.items("versions");
    let Some(storage) = versions.iter().find(|version| version.is_true("storage")) else { return Vec::new() };
    let storage_gvk = kind(storage.text("name"));
    let types = versions.iter().map(|version| {
        let gvk = kind(version.text("name"));
        let ty = custom_type(&gvk, Schema::parse(version.get("schema").raw("openAPIV3Schema")));
        (gvk.api_version(), ty)
    });
    let types: Arc<[(String, Type)]> = types.collect();
    let in_store = storage_gvk.api_version();
    let Some((_, stored)) = types.iter().find(|(version, _)| *version == in_store).cloned() else { return Vec::new() };
    let mut served: Vec<&Cursor<'_>> = versions.iter().filter(|version| version.is_true("served")).collect();
    served.sort_by_cached_key(|version| Reverse(priority(version.text("name"))));
    let mut rows = Vec::with_capacity(served.len());
    for version in served {
        let gvk = kind(version.text("name"));
        let known = gvk.api_version();
        let Some((_, ty)) = types.iter().find(|(version, _)| *version == known).cloned() else { continue };
        let (columns, paths) = columns(version);
        let subresources = version.get("subresources");
        let has_status = subresources.has("status");
        let scale = subresources.has("scale").then(|| {
            let scale = subresources.get("scale");
            ScalePaths {
                spec: scale.text("specReplicasPath").into(),
                status: scale.text("statusReplicasPath").into(),
                selector: scale.text("labelSelectorPath").into(),
            }
        });
        let mut below = Vec::new();
        let verbs = || ["get", "patch", "update"].map(String::from).to_vec();
        if has_status {
            below.push(Subresource { name: "status".into(), kind: gvk.clone(), verbs: verbs() });
        }
        if scale.is_some() {
            let kind = GroupVersionKind::new("autoscaling", "v1", "Scale");
            below.push(Subresource { name: "scale".into(), kind, verbs: verbs() });
        }
        let strategy = Custom {
            plain: Plain { has_status, has_generation: true, conditional: true, ..Plain::default() },
            ty,
            stored: stored.clone(),
            versions: types.clone(),
            scale,
            columns: paths,
            selectable: version
                .items("selectableFields")
                .iter()
                .map(|field| field.text("jsonPath").trim_start_matches('.').to_owned())
                .collect(),
            deprecation: deprecation(version, &gvk, &versions),
            published: version.get("schema").raw("openAPIV3Schema").clone(),
            rules: Rules::compile(version.get("schema").raw("openAPIV3Schema")),
            conversion: conversion(&spec),
        };
        rows.push(Arc::new(Resource {
            storage_gvk: storage_gvk.clone(),
            plural: names.text("plural").into(),
            singular: names.text("singular").into(),
            list_kind: names.text("listKind").into(),
            namespaced: spec.text("scope") == "Namespaced",
            short_names: names.texts("shortNames").map(str::to_owned).collect(),
            categories: names.texts("categories").map(str::to_owned).collect(),
            verbs: VERBS.map(String::from).to_vec(),
            subresources: below,
            columns,
            storage_prefix: storage_prefix(definition),
            stored: true,
            strategy: Arc::new(strategy),
            gvk,
        }));
    }
    rows
}

/// A version that is not deprecated itself, and newer, is named in its place.
fn deprecation(version: &Cursor<'_>, gvk: &GroupVersionKind, versions: &[Cursor<'_>]) -> Option<String> {
    if !version.is_true("deprecated") {
        return None;
    }
    let text = version.text("deprecationWarning");
    if version.has("deprecationWarning") {
        return Some(text.to_owned());
    }
    let says = format!("{} {} is deprecated", gvk.api_version(), gvk.kind);
    let own = priority(&gvk.version);
    let others = versions.iter().filter(|other| other.is_true("served") && !other.is_true("deprecated"));
    let newest = others.map(|other| other.text("name")).filter(|name| priority(name) > own).max_by_key(|n| priority(n));
    Some(match newest {
        Some(name) => format!("{says}; use {}/{name} {}", gvk.group, gvk.kind),
        None => says,
    })
}

fn columns(version: &Cursor<'_>) -> (Vec<Column>, Vec<(String, JsonPath)>) {
    let mut columns = vec![Column {
        name: "Name".into(),
        kind: "string".into(),
        format: "name".into(),
        description: NAME_DESCRIPTION.into(),
        priority: 0,
    }];
    let mut paths = Vec::new();
    for column in version.items("additionalPrinterColumns") {
        let path = column.text("jsonPath");
        let description = match column.text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            text => text.to_owned(),
        };
        columns.push(Column {
            name: column.text("name").into(),
            kind: column.text("type").into(),
            format: column.text("format").into(),
            description,
            priority: i32::try_from(column.number("priority")).unwrap_or_default(),
        });
        paths.push((column.text("type").to_owned(), JsonPath::parse(path)));
    }
    if paths.is_empty() {
        columns.push(Column {
            name: "Age".into(),
            kind: "date".into(),
            format: String::new(),
            description: AGE_DESCRIPTION.into(),
            priority: 0,
        });
        paths.push(("date".into(), JsonPath::parse(".metadata.creationTimestamp")));
    }
    (columns, paths)
}

/// Stable versions come before betas and those before alphas, newer ones first; whatever else, by name, last.
pub fn priority(version: &str) -> (u8, u64, u64, Reverse<String>) {
    let parsed = (|| {
        let rest = version.strip_prefix('v')?;
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (major, rest) = rest.split_at(digits);
        let major: u64 = major.parse().ok()?;
        let (level, minor) = match rest {
            "" => (3, 0),
            _ if rest.starts_with("beta") => (2, rest.strip_prefix("beta")?.parse().ok()?),
            _ => (1, rest.strip_prefix("alpha")?.parse().ok()?),
        };
        Some((level, major, minor))
    })();
    let (level, major, minor) = parsed.unwrap_or_default();
    (level, major, minor, Reverse(version.to_owned()))
}

/// What a definition's names are refused for: another one of the group has them. The names that can be given, and why not the
/// others.
pub fn accept_names(definition: &Value, others: &[Value]) -> (Value, Option<(&'static str, String)>) {
    let spec = Cursor::root(definition).get("spec");
    let wanted = spec.get("names");
    let before = Cursor::root(definition).get("status").get("acceptedNames");
    let (mut resources, mut kinds): (Vec<String>, Vec<String>) = Default::default();
    for other in others.iter().filter(|other| object::name(other) != object::name(definition)) {
        let at = Cursor::root(other);
        if at.get("spec").text("group") != spec.text("group") {
            continue;
        }
        let names = at.get("status").get("acceptedNames");
        for key in ["plural", "singular"] {
            resources.push(names.text(key).into());
        }
        resources.extend(names.texts("shortNames").map(str::to_owned));
        for key in ["kind", "listKind"] {
            kinds.push(names.text(key).into());
        }
    }
    let mut accepted = before.value.as_object().cloned().unwrap_or_default();
    let in_use = |name: &str| format!("{} is already in use", ferry_meta::field::quote(name));
    // Each is looked at, and the last that is taken is told.
    let mut refused = None;
    for (key, taken, reason) in [
        ("plural", &resources, "PluralConflict"),
        ("singular", &resources, "SingularConflict"),
        ("shortNames", &resources, "ShortNamesConflict"),
        ("kind", &kinds, "KindConflict"),
        ("listKind", &kinds, "ListKindConflict"),
    ] {
        let is_taken = |name: &str| taken.iter().any(|have| have == name);
        if key == "shortNames" {
            let short: Vec<&str> = wanted.texts(key).collect();
            let new = short.iter().filter(|name| !before.texts(key).any(|have| have == **name));
            let clash: Vec<String> = new.filter(|name| is_taken(name)).map(|name| in_use(name)).collect();
            match &*clash {
                [] => replace(&mut accepted, key, &short),
                [one] => refused = Some((reason, one.clone())),
                many => refused = Some((reason, format!("[{}]", many.join(", ")))),
            }
            continue;
        }
        let text = wanted.text(key);
        if text != before.text(key) && is_taken(text) {
            refused = Some((reason, in_use(text)));
        } else if text.is_empty() {
            accepted.remove(key);
        } else {
            accepted.insert(key.into(), text.into());
        }
    }
    replace(&mut accepted, "categories", &wanted.texts("categories").collect::<Vec<_>>());
    for key in ["plural", "kind"] {
        accepted.entry(key).or_insert_with(|| "".into());
    }
    (Value::Object(accepted), refused)
}

fn replace(names: &mut serde_json::Map<String, Value>, key: &str, list: &[&str]) {
    if list.is_empty() {
        names.remove(key);
    } else {
        names.insert(key.into(), serde_json::json!(list));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(name: &str, kind: &str) -> Value {
        json!({"metadata": {"name": format!("{name}.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": name, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"), "shortNames": ["x"]},
                "versions": [
                    {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
                    {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas"}},
                        "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n"}]},
                    {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    }

    #[test]
    fn versions_become_rows() {
        let mut widgets = definition("widgets", "Widget");
        widgets["status"]["acceptedNames"] = accept_names(&widgets, &[]).0;
        let rows = rows(&widgets);
        let versions: Vec<&str> = rows.iter().map(|row| row.gvk.version.as_str()).collect();
        assert_eq!(versions, ["v1", "v1beta1"]);
        assert_eq!(rows[0].key("ns", "a"), "/registry/example.com/widgets/ns/a");
        assert_eq!(rows[1].storage_gvk.version, "v1");
        assert_eq!(rows[0].subresources.iter().map(|s| &*s.name).collect::<Vec<_>>(), ["status", "scale"]);
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(
            rows[0].strategy.cells(&json!({"metadata": {"name": "a"}, "spec": {"n": 3}}), now),
            [json!("a"), json!(3)]
        );
    }

    use jiff::Timestamp;

    #[test]
    fn names_are_given_once() {
        let mut widgets = definition("widgets", "Widget");
        let (names, refused) = accept_names(&widgets, &[]);
        assert_eq!(refused, None);
        widgets["status"]["acceptedNames"] = names;
        let gadgets = definition("gadgets", "Widget");
        let (names, refused) = accept_names(&gadgets, std::slice::from_ref(&widgets));
        // Its singular and kind are taken as well; the last is told.
        assert_eq!(refused, Some(("ListKindConflict", "\"WidgetList\" is already in use".to_owned())));
        assert_eq!(names["kind"], "");
        assert_eq!(accept_names(&widgets, std::slice::from_ref(&widgets)).1, None);
    }

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut versions = vec!["v1alpha1", "foo1", "v10", "v2beta1", "v1", "v11beta2", "v2"];
        versions.sort_by_key(|version| Reverse(priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v11beta2", "v2beta1", "v1alpha1", "foo1"]);
    }
}

//! The built-in rows: read from `resources.tsv` and `columns.tsv`, joined with the strategies that are code.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_meta::{GroupVersion, GroupVersionKind};

use crate::plain::{NameRule, Plain, WriteHook};
use crate::resource::{Column, Resource, ResourceTable, Subresource};
use crate::strategies;

const RESOURCES: &str = include_str!("resources.tsv");
/// What `metrics.k8s.io` has; rows of their own, since upstream's server does not serve it.
const RESOURCE_METRICS: &str = include_str!("resource-metrics.tsv");
const COLUMNS: &str = include_str!("columns.tsv");
const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
/// The flags of kinds with a part in the write path.
const WRITE_HOOKS: [(&str, WriteHook); 7] = [
    ("namespace", WriteHook::Namespace),
    ("expires", WriteHook::Expiry),
    ("service-addresses", WriteHook::ServiceAddresses),
    ("device-rights", WriteHook::DeviceRights),
    ("signing-rights", WriteHook::SigningRights),
    ("policy-rights", WriteHook::PolicyRights),
    ("lease-renewal", WriteHook::LeaseRenewal),
];
const ALL_VERBS: &str = "create,delete,deletecollection,get,list,patch,update,watch";

impl ResourceTable {
    /// Every built-in resource of API level v1.37.
    pub fn builtin() -> Self {
        Self::read(RESOURCES)
    }

    /// The resources of `metrics.k8s.io`, for a server that answers them itself.
    pub fn resource_metrics() -> Self {
        Self::read(RESOURCE_METRICS)
    }

    fn read(rows: &'static str) -> Self {
        let mut columns = columns();
        Self::new(rows.lines().skip(1).filter_map(|line| row(line, &mut columns)).map(Arc::new).collect())
    }
}

/// Columns and their cells' expressions by `group/version/plural`.
fn columns() -> HashMap<&'static str, Vec<(Column, String)>> {
    let mut columns: HashMap<&str, Vec<(Column, String)>> = HashMap::new();
    for line in COLUMNS.lines().skip(1) {
        let [resource, name, kind, format, priority, value, description] = line.split('\t').collect::<Vec<_>>()[..]
        else {
            continue;
        };
        let column = Column {
            name: name.into(),
            kind: kind.into(),
            format: format.into(),
            description: describe(name, description),
            priority: priority.parse().unwrap_or_default(),
        };
        columns.entry(resource).or_default().push((column, value.into()));
    }
    columns
}

/// What a column of these names tells in every table, and else the text of the file.
fn describe(column: &str, text: &str) -> String {
    match column {
        "Name" => NAME.to_owned(),
        "Age" | "Created At" => CREATED.to_owned(),
        _ => text.replace("\\n", "\n"),
    }
}

fn row(line: &str, columns: &mut HashMap<&'static str, Vec<(Column, String)>>) -> Option<Resource> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [
        group,
        version,
        kind,
        plural,
        singular,
        scope,
        short_names,
        categories,
        verbs,
        subresources,
        prefix,
        storage_version,
        flags,
    ] = fields[..]
    else {
        return None;
    };
    let gvk = GroupVersionKind::new(group, version, kind);
    let subresources: Vec<Subresource> =
        subresources.split(';').filter(|s| !s.is_empty()).filter_map(|text| subresource(text, &gvk)).collect();
    let resource_key = format!("{}/{plural}", gvk.group_version());
    let (columns, cells): (Vec<Column>, Vec<String>) =
        columns.remove(resource_key.as_str()).unwrap_or_else(default_columns).into_iter().unzip();
    let flag = |name: &str| flags.split(',').any(|f| f == name);
    let plain = Plain {
        has_status: subresources.iter().any(|s| s.name == "status"),
        has_generation: flag("generation"),
        create_on_update: flag("create-on-update"),
        conditional: flag("conditional"),
        status_only: flag("status-only"),
        returns_object: flag("returns-object"),
        orphans: flag("orphans"),
        write_hook: WRITE_HOOKS.iter().find(|(name, _)| flag(name)).map(|(_, hook)| *hook).unwrap_or_default(),
        name_rule: if flag("path-name") { NameRule::PathSegment } else { NameRule::Subdomain },
        cells,
    };
    let storage = GroupVersion::parse(storage_version.trim_start_matches('/'))
        .filter(|gv| !gv.version.is_empty())
        .unwrap_or_else(|| gvk.group_version());
    Some(Resource {
        storage_gvk: storage.with_kind(kind),
        plural: plural.into(),
        singular: singular.into(),
        list_kind: format!("{kind}List"),
        namespaced: scope == "Namespaced",
        short_names: list(short_names),
        categories: list(categories),
        verbs: list(if verbs == "all" { ALL_VERBS } else { verbs }),
        subresources,
        columns,
        storage_prefix: prefix.into(),
        stored: !flag("answered"),
        strategy: strategies::of(&gvk, plain),
        gvk,
    })
}

/// `name:verbs:Kind` with `@group/version` where the kind is not of the parent's.
fn subresource(text: &str, parent: &GroupVersionKind) -> Option<Subresource> {
    let mut parts = text.splitn(3, ':');
    let (name, verbs, kind) = (parts.next()?, parts.next()?, parts.next()?);
    let kind = match kind.split_once('@') {
        Some((kind, version)) => GroupVersion::parse(version)?.with_kind(kind),
        None => parent.group_version().with_kind(kind),
    };
    Some(Subresource { name: name.into(), kind, verbs: list(verbs) })
}

fn default_columns() -> Vec<(Column, String)> {
    let column = |name: &str, kind: &str, format: &str| Column {
        name: name.into(),
        kind: kind.into(),
        format: format.into(),
        ..Column::default()
    };
    vec![
        (column("Name", "string", "name"), ".metadata.name".into()),
        (column("Created At", "date", ""), ".metadata.creationTimestamp".into()),
    ]
}

fn list(text: &str) -> Vec<String> {
    text.split(',').filter(|t| !t.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use ferry_testkit::data::facts;
    use serde_json::Value;

    use super::*;

    /// The discovery entry a row stands for.
    fn entry(row: &Resource) -> Value {
        let kind = |gvk: &GroupVersionKind| {
            let own = gvk.group == row.gvk.group && gvk.version == row.gvk.version;
            let (group, version) = if own { ("", "") } else { (gvk.group.as_str(), gvk.version.as_str()) };
            serde_json::json!({"group": group, "version": version, "kind": gvk.kind})
        };
        let mut entry = serde_json::json!({
            "resource": row.plural, "responseKind": kind(&row.gvk), "singularResource": row.singular,
            "scope": if row.namespaced { "Namespaced" } else { "Cluster" }, "verbs": row.verbs,
        });
        if !row.short_names.is_empty() {
            entry["shortNames"] = serde_json::json!(row.short_names);
        }
        if !row.categories.is_empty() {
            entry["categories"] = serde_json::json!(row.categories);
        }
        if !row.subresources.is_empty() {
            let list = row.subresources.iter();
            entry["subresources"] = list
                .map(|s| serde_json::json!({"subresource": s.name, "responseKind": kind(&s.kind), "verbs": s.verbs}))
                .collect();
        }
        entry
    }

    #[test]
    fn the_table_is_what_discovery_says() {
        let table = ResourceTable::builtin();
        let mut rows = table.rows().iter();
        for group in ["discovery-api.json", "discovery-apis.json"]
            .map(facts)
            .iter()
            .flat_map(|d| d["items"].as_array().cloned().unwrap_or_default())
        {
            for version in group["versions"].as_array().into_iter().flatten() {
                for resource in version["resources"].as_array().into_iter().flatten() {
                    let row = rows.next().expect("a row for every resource");
                    assert_eq!(row.gvk.group, group["metadata"]["name"].as_str().unwrap_or_default());
                    assert_eq!(Some(row.gvk.version.as_str()), version["version"].as_str());
                    assert_eq!(&entry(row), resource, "{:?}", row.gvk);
                }
            }
        }
        assert!(rows.next().is_none(), "a row that discovery does not know");
    }

    #[test]
    fn columns_are_what_the_facts_say() {
        let table = ResourceTable::builtin();
        let facts = facts("table-columns.json");
        let facts = facts.as_object().expect("kinds and their columns");
        assert_eq!(facts.len(), 65);
        for (resource, columns) in facts {
            let row = table.rows().iter().find(|r| format!("{}/{}", r.gvk.group_version(), r.plural) == *resource);
            let row = row.unwrap_or_else(|| panic!("no row for {resource}"));
            let ours: Vec<Value> = row
                .columns
                .iter()
                .map(
                    |c| serde_json::json!({"name": c.name, "type": c.kind, "format": c.format, "priority": c.priority}),
                )
                .collect();
            assert_eq!(&Value::Array(ours), columns, "{resource}");
        }
    }

    #[test]
    fn every_row_gives_one_cell_for_each_column() {
        let now = ferry_meta::time::parse("2026-01-01T00:00:00Z").expect("a time");
        for row in ResourceTable::builtin().rows().iter().filter(|r| r.stored) {
            let cells = row.strategy.cells(&serde_json::json!({"metadata": {"name": "a"}}), now);
            // Upstream forgot a column of this one.
            let extra = usize::from(row.plural == "ipaddresses");
            assert_eq!(cells.len(), row.columns.len() + extra, "{}", row.plural);
        }
    }

    #[test]
    fn rows_are_found_by_plural_and_kind() {
        let table = ResourceTable::builtin();
        let deployments = table.find("apps", "v1", "deployments").expect("deployments");
        assert_eq!(deployments.key("default", "web"), "/registry/deployments/default/web");
        assert_eq!(table.find("", "v1", "nodes").expect("nodes").key("", "n1"), "/registry/minions/n1");
        assert!(table.find_kind(&GroupVersionKind::new("apps", "v1", "Deployment")).is_some());
        assert_eq!(table.find("apps", "v2", "deployments").map(|r| r.plural.clone()), None);
        assert_eq!(table.groups()[0], ("", vec!["v1"]));
        let hpa = table.find("autoscaling", "v1", "horizontalpodautoscalers").expect("hpa v1");
        assert_eq!(hpa.storage_gvk.version, "v2");
    }
}

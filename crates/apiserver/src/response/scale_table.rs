//! A Scale as it was asked for: itself, a Table, or its metadata alone.

use bytes::Bytes;
use ferry_meta::{ApiError, GroupVersionKind, object, time};
use ferry_registry::{Column, Resource, ResourceTable};
use serde_json::{Value, json};

use crate::request::context::RequestContext;
use crate::request::negotiate::Transform;
use crate::response::answer::Answer;
use crate::response::render::{self, IncludeObject};
use crate::server::Core;
use crate::storage::codec;

/// A Scale, in the shape that was negotiated: its columns are its own, not those of the workload.
pub(crate) fn scale(core: &Core, context: &RequestContext, row: &Resource, scale: &Value) -> Result<Answer, ApiError> {
    let kind = GroupVersionKind::new("autoscaling", "v1", "Scale");
    let Transform::Table(version) = &context.negotiated.transform else {
        return render::object(context, row, 200, &kind, codec::encode(&kind, scale).into());
    };
    let include = IncludeObject::read(&context.query)?;
    let item: Bytes = codec::encode(&kind, scale).into();
    let meta = format!("{{\"resourceVersion\":\"{}\"}}", render::version_of(&item));
    let columns = columns(&core.table(), row);
    let number = |pointer: &str| scale.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let age = ferry_registry::cells::age(scale, time::now());
    let cells = json!([object::name(scale), number("/spec/replicas"), number("/status/replicas"), age]);
    let body = format!(
        "{}{}",
        render::table_head(version, &meta, Some(&columns)),
        format_args!(",\"rows\":[{{\"cells\":{cells},\"object\":{}}}]}}", render::shown(version, &item, include)?)
    );
    Ok(Answer::Json { code: 200, kind: GroupVersionKind::new("meta.k8s.io", &**version, "Table"), json: body.into() })
}

/// The columns of a Scale; of custom resources another server writes them, with its own words.
fn columns(table: &ResourceTable, row: &Resource) -> [Column; 4] {
    let column = |name: &str, kind: &str, format: &str, description: &str| Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: format.to_owned(),
        description: description.to_owned(),
        ..Column::default()
    };
    // What names and ages are is said of every kind alike.
    let deployment = table.find("apps", "v1", "deployments");
    let said = |name: &str| {
        let column = deployment.and_then(|row| row.columns.iter().find(|column| column.name == name));
        column.map(|column| column.description.clone()).unwrap_or_default()
    };
    let (desired, available, name, age) = if codec::is_custom(row) {
        ("Number of desired replicas", "Number of actual replicas", "name", "date")
    } else {
        (
            "replicas is the desired number of instances for the scaled object.",
            "replicas is the actual number of observed instances of the scaled object.",
            "",
            "string",
        )
    };
    [
        column("Name", "string", name, &said("Name")),
        column("Desired", "integer", "", desired),
        column("Available", "integer", "", available),
        column("Age", age, "", &said("Age")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_a_scale() {
        let table = ResourceTable::builtin();
        let row = table.find("apps", "v1", "deployments").expect("a row");
        let columns = columns(&table, row);
        let names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
        assert_eq!(names, ["Name", "Desired", "Available", "Age"]);
        assert!(columns.iter().all(|column| !column.description.is_empty() && column.format.is_empty()));
    }
}

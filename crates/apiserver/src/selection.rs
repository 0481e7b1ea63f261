//! Which objects of a resource a list or watch is about.

use ferry_meta::ApiError;
use ferry_meta::selector::{FieldSelector, LabelSelector};
use ferry_registry::Resource;

use crate::cache::CachedObject;
use crate::options::ListOptions;

/// Fields are named as in the stored version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    /// Checks the fields against what the kind offers. `name` is that of a watch on a single object.
    pub(crate) fn new(row: &Resource, options: &ListOptions, name: &str) -> Result<Self, ApiError> {
        let mut fields = options.field_selector.clone();
        for term in &mut fields.terms {
            let field = row.field_label(&term.field).map_err(ApiError::bad_request)?;
            term.field = stored_field(row, field);
        }
        if !name.is_empty() {
            if fields.is_everything() {
                fields = FieldSelector::parse(&format!("metadata.name={name}")).map_err(ApiError::bad_request)?;
            } else if fields.required("metadata.name") != Some(name) {
                return Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name"));
            }
        }
        Ok(Self { labels: options.label_selector.clone(), fields })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    pub(crate) fn matches(&self, object: &CachedObject) -> bool {
        object.matches(&self.labels, &self.fields)
    }
}

/// Events are stored in the core group's version, whose fields have other names.
fn stored_field(row: &Resource, field: &str) -> String {
    if row.gvk.group != "events.k8s.io" {
        return field.to_owned();
    }
    match field.strip_prefix("regarding.") {
        Some(rest) => format!("involvedObject.{rest}"),
        None if field == "reportingController" => "reportingComponent".to_owned(),
        None => field.to_owned(),
    }
}

//! Which objects of a resource a list or watch is about.

use std::borrow::Cow;

use ferry_meta::selector::{FieldSelector, LabelSelector};
use ferry_meta::{ApiError, object};
use ferry_registry::Resource;
use serde_json::Value;

use crate::options::ListOptions;

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
            term.field = row.field_label(&term.field).map_err(ApiError::bad_request)?.to_owned();
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

    /// `object` is in the row's version.
    pub(crate) fn matches(&self, row: &Resource, object: &Value) -> bool {
        self.labels.matches(object::labels(object))
            && self.fields.matches(|field| match field {
                "metadata.name" => Cow::Borrowed(object::name(object)),
                "metadata.namespace" => Cow::Borrowed(object::namespace(object)),
                _ => Cow::Owned(row.field(object, field)),
            })
    }
}

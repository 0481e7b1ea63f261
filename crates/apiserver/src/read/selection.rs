//! Which objects of a resource a list or watch is about.

use std::sync::Arc;

use ferry_meta::selector::{FieldSelector, LabelSelector};
use ferry_meta::{ApiError, object};
use ferry_registry::Resource;
use serde_json::Value;

use crate::cache::{CachedObject, FrameKind, WatchFrame};
use crate::custom_resources::conversion;
use crate::read;
use crate::request::options::ListOptions;
use crate::server::Core;
use crate::storage::codec;

/// Fields are named as in the stored version; those of custom resources as in the request's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    /// What the cache knows of an object need not hold in the version asked for: each is looked at in that one.
    pub by_version: bool,
}

impl Selection {
    /// Checks the fields against what the kind offers. `name` is that of a watch on a single object.
    pub(crate) fn new(row: &Resource, options: &ListOptions, name: &str) -> Result<Self, ApiError> {
        let mut terms = options.field_selector.terms().to_vec();
        for term in &mut terms {
            let field = row.field_label(&term.field).map_err(ApiError::bad_request)?;
            term.field = stored_field(row, field);
        }
        let mut fields = FieldSelector::new(terms);
        if !name.is_empty() {
            if fields.is_everything() {
                fields = FieldSelector::parse(&format!("metadata.name={name}")).map_err(ApiError::bad_request)?;
            } else if fields.required("metadata.name") != Some(name) {
                return Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name"));
            }
        }
        let labels = options.label_selector.clone();
        let converted = row.strategy.conversion().is_some();
        // A webhook may change labels, and any version may select by fields that others do not have.
        let by_version = codec::is_custom(row)
            && ((converted && !labels.is_everything())
                || ((converted || row.gvk != row.storage_gvk)
                    && !fields.terms().iter().all(|term| is_in_key(&term.field))));
        Ok(Self { labels, fields, by_version })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    pub(crate) fn matches(&self, object: &CachedObject) -> bool {
        object.matches(&self.labels, &self.fields)
    }

    /// The part that the cache can judge without knowing the version asked for.
    pub(crate) fn of_keys(&self) -> Self {
        let terms = self.fields.terms().iter().filter(|term| is_in_key(&term.field)).cloned().collect();
        Self { fields: FieldSelector::new(terms), ..Self::default() }
    }

    /// Whether an object is selected as it is in the row's version; it knows that form already.
    fn matches_in_version(&self, row: &Resource, object: &CachedObject) -> Result<bool, ApiError> {
        if row.gvk == row.storage_gvk && conversion::is_in_version(row, object) {
            return Ok(self.matches(object));
        }
        let json = read::json_of(row, object)?;
        let seen: Value = serde_json::from_slice(&json).map_err(ApiError::internal)?;
        let label = |key: &str| object::labels(&seen).get(key).and_then(Value::as_str);
        let field = |field: &str| match is_in_key(field) {
            true => object.field(field).to_owned().into(),
            false => row.strategy.field(&seen, field).into(),
        };
        Ok(self.labels.matches_with(label) && self.fields.matches(field))
    }

    /// Those of a few objects that are selected in the row's version.
    pub(crate) async fn filter(
        &self,
        core: &Core,
        row: &Resource,
        objects: Vec<Arc<CachedObject>>,
    ) -> Result<Vec<Arc<CachedObject>>, ApiError> {
        conversion::prepare(core, row, objects.iter()).await.map_err(|error| error.of_list(row))?;
        let mut selected = Vec::new();
        for object in objects {
            if self.matches_in_version(row, &object)? {
                selected.push(object);
            }
        }
        Ok(selected)
    }

    /// An event of a watch on all objects as this selection sees it in the row's version; None when it does not.
    pub(crate) async fn judge(
        &self,
        core: &Core,
        row: &Resource,
        frame: WatchFrame,
    ) -> Result<Option<WatchFrame>, ApiError> {
        let Some(object) = frame.object.as_ref().filter(|_| frame.kind != FrameKind::Bookmark) else {
            return Ok(Some(frame));
        };
        let now = Some(object).filter(|_| frame.kind != FrameKind::Deleted);
        let before = frame.previous();
        let prepared = conversion::prepare(core, row, now.into_iter().chain(before)).await;
        prepared.map_err(|error| error.plain())?;
        let holds = |object: Option<&Arc<CachedObject>>| object.map(|o| self.matches_in_version(row, o)).transpose();
        let (before, now) = (holds(before)?.unwrap_or(false), holds(now)?.unwrap_or(false));
        Ok(frame.seen_as(before, now))
    }
}

/// Who an object is holds in every version.
fn is_in_key(field: &str) -> bool {
    ["metadata.name", "metadata.namespace"].contains(&field)
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

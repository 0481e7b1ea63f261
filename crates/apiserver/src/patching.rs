//! Patches: the four kinds, read once and applied to whatever the live object is at the time.

use ferry_meta::ApiError;
use ferry_registry::Resource;
use serde_json::Value;

use crate::context::RequestContext;
use crate::options::FieldValidation;
use crate::verbs::patch::PatchKind;

pub(crate) enum Patch {
    Merge(Value),
    Apply(Value),
}

impl Patch {
    pub(crate) fn read(
        _context: &RequestContext,
        _row: &Resource,
        _kind: PatchKind,
        body: &[u8],
        _fields: FieldValidation,
    ) -> Result<Self, ApiError> {
        let value = ferry_schema::decode::any(body).map_err(ApiError::bad_request)?;
        Ok(Self::Merge(value))
    }

    pub(crate) fn apply(
        &self,
        _context: &RequestContext,
        _row: &Resource,
        live: &Value,
        _fields: FieldValidation,
    ) -> Result<Value, ApiError> {
        let (Self::Merge(patch) | Self::Apply(patch)) = self;
        let mut object = live.clone();
        merge(&mut object, patch);
        Ok(object)
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Default::default());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), value);
        }
    }
}

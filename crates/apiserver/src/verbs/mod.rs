//! One handler per verb, for every kind.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deletecollection;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod update;
pub(crate) mod watch;

use ferry_meta::{ApiError, object};
use serde_json::Value;

use crate::response::answer::Answer;
use crate::response::render;
use crate::write::{Write, Written};

/// The object as it was written.
fn answer(write: &Write<'_>, written: &Written) -> Result<Answer, ApiError> {
    let code = if written.created { 201 } else { 200 };
    render::object(write.context, write.row, code, &write.row.gvk, written.json(write.row)?)
}

/// The name in the body must be the one in the path.
pub(crate) fn match_name(object: &Value, name: &str) -> Result<(), ApiError> {
    match object::name(object) {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        have if have != name => Err(ApiError::bad_request(format!(
            "the name of the object ({have}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

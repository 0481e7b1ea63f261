//! Patches: JSON patch, merge patch and strategic merge patch, with upstream's semantics, codes and words.

mod convert;
mod index;
mod json;
mod merge;
mod order;
mod reading;
mod shown;
mod strategic;

use ferry_meta::error::StatusDetails;
use ferry_meta::{ApiError, FieldError, GroupKind, Path, Reason};
use serde_json::Value;

use crate::catalogue::Type;
use crate::decode::{self, DecodeError, Decoded, TypeMeta, Validation};

pub(crate) use convert::{first_error, go_print, truncate};
pub use json::{JsonPatcher, json_patch};
pub use merge::merge_patch;
pub use reading::Reading;
pub use strategic::strategic_merge;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
}

impl PatchKind {
    /// By media type, without its parameters. Apply is another matter.
    pub fn of_media_type(media_type: &str) -> Option<Self> {
        match media_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            _ => None,
        }
    }
}

/// Why a patch was refused; [`ApiError`] is made of it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed: 400.
    #[error("{0}")]
    BadRequest(String),
    /// Too many operations: 413.
    #[error("{0}")]
    TooLarge(String),
    /// The patch does not apply to this object: 422 without particulars.
    #[error("{0}")]
    DoesNotApply(String),
    /// The result is no object of its kind: 422 that shows the patch (or the result) and why.
    #[error("{why}")]
    Invalid { shown: String, why: String },
    /// What upstream answers with a bare 500.
    #[error("{0}")]
    Internal(String),
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::BadRequest(message) => Self::bad_request(message),
            PatchError::TooLarge(message) => Self::too_large(message),
            PatchError::DoesNotApply(_) => {
                Self::new(422, Reason::Invalid, "the server rejected our request due to an error in our request")
                    .with_details(StatusDetails::default())
            }
            PatchError::Invalid { shown, why } => {
                let error = FieldError::invalid(&Path::new("patch"), shown, why);
                let nameless = GroupKind { group: String::new(), kind: String::new() };
                Self::invalid(&nameless, "", &error.into())
            }
            PatchError::Internal(message) => Self::new(500, Reason::Unknown, message),
        }
    }
}

/// Applies a patch to an object and checks that the result is of its type, whatever it says it is.
pub fn apply(
    kind: PatchKind,
    ty: &Type,
    current: &Value,
    body: &[u8],
    validation: Validation,
) -> Result<Decoded, PatchError> {
    apply_read(kind, ty, current, body, validation, &|_| Reading::Own)
}

/// The same where the patch may change what the object says it is: then `read` tells what it is read as. A strategic merge
/// works on the object's own type always.
pub fn apply_read(
    kind: PatchKind,
    ty: &Type,
    current: &Value,
    body: &[u8],
    validation: Validation,
    read: &dyn Fn(&TypeMeta) -> Reading,
) -> Result<Decoded, PatchError> {
    let (mut patch, duplicates) =
        decode::free_form(body, validation != Validation::Ignore).map_err(|error| match error {
            decode::FreeFormError::Syntax(_) => PatchError::BadRequest("invalid JSON patch".to_owned()),
            decode::FreeFormError::Depth(error) => PatchError::BadRequest(format!("error decoding patch: {error}")),
            decode::FreeFormError::TooLarge(excess) => PatchError::TooLarge(excess.to_string()),
        })?;
    match kind {
        PatchKind::Json => {
            let mut strict = json::check_operations(&patch, validation)?;
            strict.extend(duplicates.iter().map(|d| format!("json patch {d}")));
            let patched = json_patch(current.clone(), &patch)?;
            if patched.is_null() {
                return Err(PatchError::DoesNotApply("nothing is left of the object".to_owned()));
            }
            let shown = || shown::of_json(ty, current, &patched, body);
            let reading = read_as(current, &patched, read, &shown)?;
            finish(reading, ty, &patched, validation, strict, &shown)
        }
        PatchKind::Merge => {
            let patched = merge_patch(current.clone(), &patch)?;
            let shown = || shown::of_merge(ty, current, &patched, body);
            let reading = read_as(current, &patched, read, &shown)?;
            finish(reading, ty, &patched, validation, duplicates, &shown)
        }
        PatchKind::Strategic => {
            if !patch.is_object() && !patch.is_null() {
                return Err(PatchError::BadRequest(merge::not_a_map(&patch)));
            }
            let mut patched = strategic::merge_in_place(ty, current.clone(), &mut patch)?;
            if let Some(why) = first_error(ty, &patched) {
                return Err(PatchError::Invalid { shown: go_print(&patch), why });
            }
            if ty.schema().is_none() {
                truncate(ty, &mut patched);
            }
            finish(Reading::Own, ty, &patched, validation, duplicates, &|| go_print(&patch))
        }
    }
}

fn read_as(
    current: &Value,
    patched: &Value,
    read: &dyn Fn(&TypeMeta) -> Reading,
    shown: &dyn Fn() -> String,
) -> Result<Reading, PatchError> {
    reading::of(current, patched, read).map_err(|why| PatchError::Invalid { shown: shown(), why })
}

/// Checks the result, and joins what the patch text and the result have of unknown and duplicate fields.
fn finish(
    reading: Reading,
    ty: &Type,
    patched: &Value,
    validation: Validation,
    mut strict: Vec<String>,
    shown: &dyn Fn() -> String,
) -> Result<Decoded, PatchError> {
    let lenient = if validation == Validation::Strict { Validation::Warn } else { validation };
    let decoded = reading::decode(reading, ty, patched, lenient, shown)?;
    strict.extend(decoded.warnings);
    if validation == Validation::Strict && !strict.is_empty() {
        return Err(PatchError::Invalid { shown: shown(), why: DecodeError::Strict(strict).to_string() });
    }
    Ok(Decoded { object: decoded.object, warnings: strict })
}

//! What the result of a patch is read as: a patch may change what an object says it is.

use serde_json::{Map, Value};

use super::PatchError;
use crate::catalogue::Type;
use crate::decode::{self, DecodeError, Decoded, TypeMeta, Validation};

/// What a patched object is read as, by what it says it is.
pub enum Reading {
    /// An object of the type that was patched.
    Own,
    /// An object of another type, which the caller turns into the own one.
    Other(Type),
    /// An object of another type that nothing turns. It is read first: what is wrong with it is told before this reason.
    Foreign(Type, String),
    /// It says no version: nothing but its kind is understood.
    Blank,
    /// As it is: nothing is known of it. With `bare` none of its fields but the metadata has a schema.
    Free { bare: bool },
    /// It cannot be what it says.
    Refused(String),
    /// It does not say its `Kind`, or its `apiVersion`.
    Missing(&'static str),
}

/// Asks what the result is, where the patch changed what it says of itself.
pub(super) fn of(current: &Value, patched: &Value, read: &dyn Fn(&TypeMeta) -> Reading) -> Result<Reading, String> {
    let kept = |key: &str| patched.get(key).is_some_and(|said| Some(said) == current.get(key));
    if kept("kind") && kept("apiVersion") {
        return Ok(Reading::Own);
    }
    let json = serde_json::to_vec(patched).map_err(|error| error.to_string())?;
    let said = decode::type_meta(&json, decode::Format::Json).map_err(|error| error.to_string())?;
    Ok(read(&said))
}

/// The result as what it is read as. `shown` is its text in refusals.
pub(super) fn decode(
    reading: Reading,
    ty: &Type,
    patched: &Value,
    validation: Validation,
    shown: &dyn Fn() -> String,
) -> Result<Decoded, PatchError> {
    let refuse = |why: String| PatchError::Invalid { shown: shown(), why };
    let decode = |ty: &Type| {
        decode::decode_value(ty, patched, validation).map_err(|error| match error {
            DecodeError::TooLarge(excess) => PatchError::TooLarge(excess.to_string()),
            other => refuse(other.to_string()),
        })
    };
    match reading {
        Reading::Own => decode(ty),
        Reading::Other(other) => decode(&other),
        Reading::Foreign(other, why) => decode(&other).and_then(|_| Err(refuse(why))),
        Reading::Blank => {
            let warnings = unknown(patched, &["kind", "apiVersion"], validation);
            Ok(Decoded { object: Value::Object(Map::new()), warnings })
        }
        Reading::Free { bare } => {
            let known = ["kind", "apiVersion", "metadata"];
            let warnings = if bare { unknown(patched, &known, validation) } else { Vec::new() };
            Ok(Decoded { object: patched.clone(), warnings })
        }
        Reading::Refused(why) => Err(refuse(why)),
        Reading::Missing(what) => Err(refuse(format!("Object '{what}' is missing in '{}'", shown()))),
    }
}

fn unknown(patched: &Value, known: &[&str], validation: Validation) -> Vec<String> {
    let fields = patched.as_object().into_iter().flat_map(Map::keys);
    let unknown = fields.filter(|key| validation != Validation::Ignore && !known.contains(&key.as_str()));
    unknown.map(|key| format!("unknown field {key:?}")).collect()
}

//! Decoding: JSON or YAML in; a checked, pruned and normalised object out.

pub(crate) mod base64;
mod free_form;
mod scan;
mod typed;

use std::borrow::Cow;

use ferry_meta::ApiError;
use ferry_meta::bounds::{Excess, Extent};
use serde_json::Value;

use crate::catalogue::Type;
use crate::yaml;

pub(crate) use typed::float;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// `fieldValidation`: what unknown and duplicate fields do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    Ignore,
    Warn,
    Strict,
}

impl Validation {
    /// The value of the query parameter; the empty one is the default.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Ignore" => Some(Self::Ignore),
            "" | "Warn" => Some(Self::Warn),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    pub object: Value,
    /// Texts for `Warning` headers, without code and quotes.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// No JSON or YAML, or no object: the kind could not even be read.
    #[error("{0}")]
    Unrecognized(String),
    /// A value of the wrong type, in Go's words.
    #[error("{0}")]
    Type(String),
    /// Unknown or duplicate fields under strict validation.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
    /// The object would take too much memory.
    #[error("{0}")]
    TooLarge(Excess),
}

impl DecodeError {
    /// The message of the 400 that upstream answers with. `kind` and `version` are what the body says it is (or, where it
    /// says nothing, what the request expects), `expected` is the kind of the resource.
    pub fn message(&self, kind: &str, version: &str, expected: &str, body: &[u8]) -> String {
        match self {
            Self::Unrecognized(why) => {
                format!("the object provided is unrecognized (must be of type {expected}): {why} ({})", summary(body))
            }
            other => format!("{kind} in version {version:?} cannot be handled as a {expected}: {other}"),
        }
    }

    /// The answer to who sent the body.
    pub fn refusal(&self, kind: &str, version: &str, expected: &str, body: &[u8]) -> ApiError {
        match self {
            Self::TooLarge(excess) => ApiError::too_large(excess),
            _ => ApiError::bad_request(self.message(kind, version, expected, body)),
        }
    }
}

/// The first bytes of a body, as upstream shows them.
pub fn summary(body: &[u8]) -> String {
    use std::fmt::Write;
    const SHOWN: usize = 30;
    let head = body.get(..SHOWN).unwrap_or(body);
    let more = if body.len() > SHOWN { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let mut hex = String::new();
            for byte in head {
                let _ = write!(hex, "{byte:02x}");
            }
            hex + more
        }
    }
}

/// What a body says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeMeta {
    pub api_version: String,
    pub kind: String,
}

/// A body that is well-formed, and what it says it is.
pub struct Opened<'b> {
    pub said: TypeMeta,
    json: Cow<'b, [u8]>,
    duplicates: Option<yaml::Duplicates>,
}

/// Checks the form of a body and reads `apiVersion` and `kind`.
pub fn open(body: &[u8], format: Format) -> Result<Opened<'_>, DecodeError> {
    let (json, duplicates) = to_json(body, format)?;
    Ok(Opened { said: find_kind(&json)?, json, duplicates })
}

impl Opened<'_> {
    /// Whether the body says null for a field.
    pub fn has_null(&self, field: &str) -> bool {
        let fields: serde_json::Result<std::collections::BTreeMap<String, &serde_json::value::RawValue>> =
            serde_json::from_slice(&self.json);
        fields.is_ok_and(|fields| fields.get(field).is_some_and(|value| value.get() == "null"))
    }

    /// The body as an object of this type.
    pub fn decode(self, ty: &Type, validation: Validation) -> Result<Decoded, DecodeError> {
        if ty.schema().is_some() {
            return read_custom(ty, &self.json, validation, self.duplicates);
        }
        read(ty, &self.json, validation, self.duplicates)
    }
}

/// Reads `apiVersion` and `kind` alone.
pub fn type_meta(body: &[u8], format: Format) -> Result<TypeMeta, DecodeError> {
    open(body, format).map(|opened| opened.said)
}

/// Decodes a body into an object of this type.
pub fn decode(ty: &Type, body: &[u8], format: Format, validation: Validation) -> Result<Decoded, DecodeError> {
    open(body, format)?.decode(ty, validation)
}

/// Checks, prunes and normalises an object that is JSON already, such as the result of a patch.
pub fn decode_value(ty: &Type, object: &Value, validation: Validation) -> Result<Decoded, DecodeError> {
    if let Some(schema) = ty.schema() {
        Extent::of(object).check().map_err(DecodeError::TooLarge)?;
        return crate::structural::decode_custom(schema, object.clone(), Vec::new(), validation);
    }
    let json = serde_json::to_vec(object).map_err(|e| DecodeError::Unrecognized(e.to_string()))?;
    read(ty, &json, validation, None)
}

fn read_custom(
    ty: &Type,
    json: &[u8],
    validation: Validation,
    duplicates: Option<yaml::Duplicates>,
) -> Result<Decoded, DecodeError> {
    let Some(schema) = ty.schema() else { return read(ty, json, validation, duplicates) };
    let (object, mut found) = free_form(json, true).map_err(|error| match error {
        FreeFormError::TooLarge(excess) => DecodeError::TooLarge(excess),
        other => DecodeError::Type(other.to_string()),
    })?;
    match validation {
        Validation::Strict => found.extend(duplicates.map(|d| d.error())),
        _ => found.extend(duplicates.into_iter().flat_map(|d| d.lines)),
    }
    crate::structural::decode_custom(schema, object, found, validation)
}

fn read(
    ty: &Type,
    json: &[u8],
    validation: Validation,
    duplicates: Option<yaml::Duplicates>,
) -> Result<Decoded, DecodeError> {
    let mut reader = typed::Reader::new(json, ty.catalogue(), validation != Validation::Ignore);
    let object = reader.root(ty.id());
    if reader.is_too_large() {
        return Err(DecodeError::TooLarge(Excess::Weight));
    }
    if let Some(error) = reader.error {
        return Err(DecodeError::Type(error));
    }
    let mut found = Vec::new();
    match validation {
        Validation::Ignore => {}
        Validation::Strict => found.extend(duplicates.map(|d| d.error())),
        Validation::Warn => found.extend(duplicates.into_iter().flat_map(|d| d.lines)),
    }
    found.append(&mut reader.strict_errors);
    if validation == Validation::Strict && !found.is_empty() {
        return Err(DecodeError::Strict(found));
    }
    Ok(Decoded { object, warnings: found })
}

/// Well-formed JSON, and the duplicate keys of a YAML text (those of a JSON text are found while it is read).
fn to_json(body: &[u8], format: Format) -> Result<(Cow<'_, [u8]>, Option<yaml::Duplicates>), DecodeError> {
    if format == Format::Yaml && !looks_like_json(body) {
        let document = yaml::parse(body).map_err(|error| match error {
            yaml::Error::Said(why) => DecodeError::Unrecognized(why),
            yaml::Error::TooLarge(excess) => DecodeError::TooLarge(excess),
        })?;
        let duplicates = if document.duplicates.lines.is_empty() { None } else { Some(document.duplicates) };
        let json = serde_json::to_vec(&document.value).map_err(|e| DecodeError::Unrecognized(e.to_string()))?;
        return Ok((json.into(), duplicates));
    }
    let extent = scan::validate(body)
        .map_err(|e| DecodeError::Unrecognized(format!("couldn't get version/kind; json parse error: {e}")))?;
    check_weight(extent).map_err(DecodeError::TooLarge)?;
    // YAML is looked at in the order of its keys.
    if format == Format::Yaml
        && let Some(sorted) =
            serde_json::from_slice::<Value>(body).ok().and_then(|value| serde_json::to_vec(&value).ok())
    {
        return Ok((sorted.into(), None));
    }
    Ok((body.into(), None))
}

/// A YAML body that is JSON needs no YAML reader, unless a key is there twice or half a character is: then YAML words the
/// complaint.
fn looks_like_json(body: &[u8]) -> bool {
    body.first() == Some(&b'{') && scan::validate(body).is_ok() && !has_surrogates(body) && !has_duplicates(body)
}

/// Escapes of halves of characters, which JSON knows and YAML does not.
fn has_surrogates(body: &[u8]) -> bool {
    body.windows(4).any(|part| {
        part[..2] == *b"\\u"
            && matches!(part[2], b'd' | b'D')
            && matches!(part[3], b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F')
    })
}

fn has_duplicates(body: &[u8]) -> bool {
    // A stack of the keys seen in each open object.
    let mut open: Vec<Option<std::collections::HashSet<String>>> = Vec::new();
    let mut at = 0;
    let mut key_next = false;
    while let Some(byte) = body.get(at).copied() {
        match byte {
            b'{' => {
                open.push(Some(std::collections::HashSet::new()));
                key_next = true;
                at += 1;
            }
            b'[' => {
                open.push(None);
                key_next = false;
                at += 1;
            }
            b'}' | b']' => {
                open.pop();
                key_next = false;
                at += 1;
            }
            b',' => {
                key_next = matches!(open.last(), Some(Some(_)));
                at += 1;
            }
            b'"' => {
                let (text, end) = scan::read_string(body, at);
                if let (true, Some(Some(keys))) = (key_next, open.last_mut())
                    && !keys.insert(text)
                {
                    return true;
                }
                key_next = false;
                at = end;
            }
            _ => at += 1,
        }
    }
    false
}

fn find_kind(json: &[u8]) -> Result<TypeMeta, DecodeError> {
    const TARGET: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let unrecognized =
        |why: String| DecodeError::Unrecognized(format!("couldn't get version/kind; json parse error: {why}"));
    let mut at = scan::skip_space(json, 0);
    let cannot = |what: &str| unrecognized(format!("json: cannot unmarshal {what} into Go value of type {TARGET}"));
    match json.get(at).copied() {
        Some(b'{') => {}
        Some(b'n') => return Ok(TypeMeta::default()),
        Some(b'[') => return Err(cannot("array")),
        Some(b'"') => return Err(cannot("string")),
        Some(b't' | b'f') => return Err(cannot("bool")),
        _ => return Err(cannot("number")),
    }
    let mut meta = TypeMeta::default();
    at = scan::skip_space(json, at + 1);
    while json.get(at) == Some(&b'"') {
        let (key, end) = scan::read_string(json, at);
        at = scan::skip_space(json, scan::skip_space(json, end) + 1);
        // Go's own reader, unlike the one for objects, does not mind the case of these two names.
        let target = if key.eq_ignore_ascii_case("apiVersion") {
            Some(&mut meta.api_version)
        } else if key.eq_ignore_ascii_case("kind") {
            Some(&mut meta.kind)
        } else {
            None
        };
        if let Some(target) = target {
            let found = match json.get(at).copied() {
                Some(b'"') => {
                    *target = scan::read_string(json, at).0;
                    None
                }
                Some(b'n') => None,
                Some(b'{') => Some("object"),
                Some(b'[') => Some("array"),
                Some(b't' | b'f') => Some("bool"),
                _ => Some("number"),
            };
            if let Some(found) = found {
                let name = if key.eq_ignore_ascii_case("kind") { "kind" } else { "apiVersion" };
                return Err(unrecognized(format!(
                    "json: cannot unmarshal {found} into Go struct field .{name} of type string"
                )));
            }
        }
        at = scan::skip_space(json, scan::skip_value(json, at));
        if json.get(at) == Some(&b',') {
            at = scan::skip_space(json, at + 1);
        }
    }
    Ok(meta)
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FreeFormError {
    /// No JSON; in Go's words.
    #[error("{0}")]
    Syntax(String),
    #[error("{0}")]
    Depth(String),
    #[error("{0}")]
    TooLarge(Excess),
}

/// Of depth the reader complains itself, at its place.
fn check_weight(extent: Extent) -> Result<(), Excess> {
    Extent { depth: 0, ..extent }.check()
}

/// Reads a body of no particular type, such as a patch, and (where asked) the complaints about its duplicate fields.
pub fn free_form(body: &[u8], strict: bool) -> Result<(Value, Vec<String>), FreeFormError> {
    let extent = scan::validate(body).map_err(FreeFormError::Syntax)?;
    check_weight(extent).map_err(FreeFormError::TooLarge)?;
    let mut reader = typed::Reader::new(body, crate::builtin(), strict);
    let value = reader.free_form();
    if reader.is_too_large() {
        return Err(FreeFormError::TooLarge(Excess::Weight));
    }
    match reader.error {
        Some(error) => Err(FreeFormError::Depth(error)),
        None => Ok((value, reader.strict_errors)),
    }
}

/// Reads what somebody answered whom the server asked, such as a webhook.
pub fn answer(body: &[u8]) -> Result<Value, FreeFormError> {
    let extent = scan::validate(body).map_err(FreeFormError::Syntax)?;
    extent.check().map_err(FreeFormError::TooLarge)?;
    serde_json::from_slice(body).map_err(|error| FreeFormError::Syntax(error.to_string()))
}

/// Reads a body of no particular type; the error is Go's.
pub fn any(body: &[u8]) -> Result<Value, FreeFormError> {
    free_form(body, false).map(|(value, _)| value)
}

//! Continue tokens: where the next page of a list starts, and at which revision.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{NO_PAD, URL_SAFE_NO_PAD};
use ferry_meta::ApiError;
use ferry_store::Revision;
use serde_json::{Value, json};

/// Bits that are left over at the end are not looked at.
const LENIENT: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// A token read back. `revision` is None for a list that goes on with whatever is there now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Continuation {
    pub revision: Option<Revision>,
    /// The last key of the page before.
    pub after: String,
}

/// `last` is the last key of this page, below `prefix`.
pub(crate) fn encode(prefix: &str, last: &str, revision: Option<Revision>) -> String {
    let start = format!("{}\0", last.strip_prefix(prefix).unwrap_or(last));
    let version = revision.and_then(|r| i64::try_from(r).ok()).unwrap_or(-1);
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": version, "start": start}).to_string())
}

pub(crate) fn decode(prefix: &str, token: &str) -> Result<Continuation, ApiError> {
    let bad = |why: String| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let data = LENIENT.decode(token).map_err(|_| bad(base64_error(token)))?;
    let parsed = ferry_schema::decode::any(&data).map_err(|why| bad(why.to_string()))?;
    for (field, wanted, fits) in [
        ("v", "string", Value::is_string as fn(&Value) -> bool),
        ("rv", "int64", Value::is_i64),
        ("start", "string", Value::is_string),
    ] {
        if let Some(value) = parsed.get(field).filter(|value| !value.is_null() && !fits(value)) {
            let got = match value {
                Value::String(_) => "string".to_owned(),
                Value::Bool(_) => "bool".to_owned(),
                Value::Number(_) if wanted == "int64" => format!("number {value}"),
                Value::Number(_) => "number".to_owned(),
                Value::Array(_) => "array".to_owned(),
                _ => "object".to_owned(),
            };
            let why =
                format!("json: cannot unmarshal {got} into Go struct field continueToken.{field} of type {wanted}");
            return Err(bad(why));
        }
    }
    let version = parsed.get("v").and_then(Value::as_str).unwrap_or_default();
    if version != "meta.k8s.io/v1" {
        return Err(bad(format!("server does not recognize this encoded version {version}")));
    }
    let revision = parsed.get("rv").and_then(Value::as_i64).unwrap_or_default();
    if revision == 0 {
        return Err(bad(format!("incorrect encoded start resourceVersion (version {version})")));
    }
    let start = parsed.get("start").and_then(Value::as_str).unwrap_or_default();
    if start.is_empty() {
        return Err(bad(format!("encoded start key empty (version {version})")));
    }
    // A key that climbs out of its prefix would read other resources.
    let climbs =
        start.split('/').any(|part| matches!(part, "." | "..")) || start.contains("//") || start.ends_with('/');
    if climbs {
        return Err(bad(start.to_owned()));
    }
    let start = start.strip_prefix('/').unwrap_or(start);
    let after = format!("{prefix}{}", start.strip_suffix('\0').unwrap_or(start));
    Ok(Continuation { revision: u64::try_from(revision).ok(), after })
}

/// Go names the byte where the alphabet ends.
fn base64_error(token: &str) -> String {
    let good = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    // A single letter at the end is half a byte: the error is where it starts.
    let at = token.as_bytes().iter().position(|b| !good(b)).unwrap_or(token.len().saturating_sub(1));
    format!("illegal base64 data at input byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_bad_ones_are_named() {
        let token = encode("/registry/pods/a/", "/registry/pods/a/x", Some(7));
        let back = decode("/registry/pods/a/", &token).expect("a token");
        assert_eq!(back, Continuation { revision: Some(7), after: "/registry/pods/a/x".into() });
        for (token, want) in [
            ("garbage!", "illegal base64 data at input byte 7"),
            ("x", "illegal base64 data at input byte 0"),
            ("zz", "invalid character 'Ï' looking for beginning of value"),
            ("bm90anNvbg", "invalid character 'o' in literal null (expecting 'u')"),
            ("AAAA", "invalid character '\\x00' looking for beginning of value"),
            ("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIuLi8uLi94In0", "../../x"),
            ("eyJydiI6IjUifQ", "json: cannot unmarshal string into Go struct field continueToken.rv of type int64"),
        ] {
            let error = decode("/p/", token).expect_err("no token");
            assert_eq!(error.0.message, format!("invalid continue token: continue key is not valid: {want}"));
        }
    }
}

//! Secrets: their types and the keys each asks for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::{FieldError, FieldErrors, names, object};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::config_map::{MAX_SIZE, decoded_length, frozen};
use crate::cells;
use crate::cursor::{Cursor, Report, default_to};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct Secret(pub Plain);

const ACCOUNT: &str = "kubernetes.io/service-account.name";

impl Strategy for Secret {
    fn plain(&self) -> &Plain {
        &self.0
    }

    /// `stringData` is written into `data` and never read back.
    fn default(&self, object: &mut Value) {
        let Some(map) = object.as_object_mut() else { return };
        default_to(map, "type", "Opaque");
        if let Some(Value::Object(texts)) = map.remove("stringData") {
            if texts.is_empty() {
                return;
            }
            let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
            if !data.is_object() {
                *data = Value::Object(Map::new());
            }
            for (key, text) in texts {
                let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
                data[key] = encoded.into();
            }
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let at = Cursor::root(object);
        let mut size = 0;
        for (key, value) in at.entries("data") {
            errors.reasons(value.path.clone(), key, names::config_key(key));
            size += decoded_length(value.as_text());
        }
        let data = at.get("data");
        if size > MAX_SIZE {
            errors.push(FieldError::too_long(&data.path, MAX_SIZE));
        }
        let mut required = |key: &str| errors.required(data.path.key(key), "");
        match at.text("type") {
            "kubernetes.io/service-account-token" if at.get("metadata").get("annotations").text(ACCOUNT).is_empty() => {
                errors.required(at.at("metadata").child("annotations").key(ACCOUNT), "");
            }
            "kubernetes.io/dockercfg" => docker_config(&mut errors, &data, ".dockercfg"),
            "kubernetes.io/dockerconfigjson" => docker_config(&mut errors, &data, ".dockerconfigjson"),
            "kubernetes.io/basic-auth" if !data.has("username") && !data.has("password") => {
                required("username");
                required("password");
            }
            "kubernetes.io/ssh-auth" if data.text("ssh-privatekey").is_empty() => required("ssh-privatekey"),
            "kubernetes.io/tls" => {
                for key in ["tls.crt", "tls.key"].into_iter().filter(|key| !data.has(key)) {
                    required(key);
                }
            }
            _ => {}
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        errors.immutable(new.at("type"), new.raw("type"), old.raw("type"));
        frozen(&mut errors, &new, &old, &["data"]);
        errors.extend(self.validate_create(context, object));
        errors
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let at = Cursor::root(object);
        if at.text("type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        let certificate = STANDARD.decode(at.get("data").text("tls.crt")).unwrap_or_default();
        if String::from_utf8_lossy(&certificate).contains("-----BEGIN ") {
            return Vec::new();
        }
        vec!["tls: failed to find any PEM data in certificate input".to_owned()]
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec!["type"]
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let at = Cursor::root(object);
        vec![
            object::name(object).into(),
            at.text("type").into(),
            at.map("data").len().into(),
            cells::age(object, now).into(),
        ]
    }
}

fn docker_config(errors: &mut FieldErrors, data: &Cursor<'_>, key: &str) {
    let path = data.path.key(key);
    if !data.has(key) {
        return errors.required(path, "");
    }
    let bytes = STANDARD.decode(data.text(key)).unwrap_or_default();
    if let Some(reason) = why_not_an_object(&bytes) {
        errors.invalid(path, "<secret contents redacted>", reason);
    }
}

/// Why bytes are no JSON object, in the words of Go's decoder for the common cases.
fn why_not_an_object(bytes: &[u8]) -> Option<String> {
    // Whether it can be read is all that is asked: nothing is made of it.
    match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
        Ok(_) => {
            let kind = match bytes.trim_ascii_start().first() {
                Some(b'{' | b'n') => return None,
                Some(b'[') => "array",
                Some(b'"') => "string",
                Some(b't' | b'f') => "bool",
                _ => "number",
            };
            Some(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
        }
        Err(error) if error.is_eof() => Some("unexpected end of JSON input".to_owned()),
        Err(error) => {
            let line: usize =
                bytes.split(|b| *b == b'\n').take(error.line().saturating_sub(1)).map(|l| l.len() + 1).sum();
            let at = (line + error.column()).saturating_sub(1);
            let found = bytes.get(at).map_or(' ', |b| char::from(*b));
            let before = bytes[..at.min(bytes.len())].iter().rev().find(|b| !b.is_ascii_whitespace());
            let place = match before {
                Some(b'{') => "looking for beginning of object key string",
                Some(b',' | b':' | b'[') | None => "looking for beginning of value",
                _ => "after object key:value pair",
            };
            Some(format!("invalid character '{found}' {place}"))
        }
    }
}

//! JSON ↔ protobuf for built-in kinds, driven by the catalogue.
//!
//! On the wire an object is `k8s\0` and a `runtime.Unknown` that names its kind and holds its message. Go's rules decide what
//! is written: a plain scalar always, a pointer when it is set, a struct held by value always.

mod read;
mod wire;
mod write;

use ferry_meta::bounds::Excess;
use serde_json::{Map, Value};

use crate::catalogue::{Type, builtin};
use crate::decode::{self, TypeMeta};
use wire::{Reader, Writer};

/// What every protobuf object begins with.
pub const MAGIC: &[u8; 4] = b"k8s\0";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    #[error("{0}")]
    Malformed(&'static str),
    #[error("{0}")]
    Type(String),
    #[error("{0}")]
    TooLarge(Excess),
}

/// An object in its envelope, as answers and storage have it.
pub fn encode(ty: &Type, object: &Value) -> Vec<u8> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    envelope(text("apiVersion"), text("kind"), &encode_raw(ty, object))
}

/// Puts a message into its envelope.
pub fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut meta = Writer::default();
    meta.string(1, api_version);
    meta.string(2, kind);
    let mut out = Writer { out: Vec::with_capacity(raw.len() + meta.out.len() + 24) };
    out.out.extend_from_slice(MAGIC);
    out.bytes(1, &meta.out);
    out.bytes(2, raw);
    out.string(3, "");
    out.string(4, "");
    out.out
}

/// The bare message, as items of a list have it.
pub fn encode_raw(ty: &Type, object: &Value) -> Vec<u8> {
    let empty = Map::new();
    let mut writer = write::Encoder { catalogue: ty.catalogue(), writer: Writer { out: Vec::with_capacity(512) } };
    writer.structure(ty.id(), object.as_object().unwrap_or(&empty));
    writer.writer.out
}

/// A list of messages that were encoded before.
pub fn encode_list<'a>(
    api_version: &str,
    list_kind: &str,
    metadata: &Value,
    items: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut raw = Writer::default();
    if let Some(list_meta) = builtin().named("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta") {
        raw.bytes(1, &encode_raw(&list_meta, metadata));
    }
    for item in items {
        raw.bytes(2, item);
    }
    envelope(api_version, list_kind, &raw.out)
}

/// A frame of a watch: its length in four bytes, then a `WatchEvent` whose object is in its own envelope.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Writer::default();
    raw.bytes(1, object);
    let mut message = Writer { out: vec![0; 4] };
    message.string(1, event);
    message.bytes(2, &raw.out);
    let length = u32::try_from(message.out.len() - 4).unwrap_or(u32::MAX);
    message.out[..4].copy_from_slice(&length.to_be_bytes());
    message.out
}

/// What an envelope holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub type_meta: TypeMeta,
    pub raw: &'a [u8],
    pub content_type: String,
}

/// Opens an envelope.
pub fn open(body: &[u8]) -> Result<Envelope<'_>, ProtoError> {
    let rest = body.strip_prefix(MAGIC.as_slice()).ok_or(ProtoError::Prefix)?;
    let mut envelope = Envelope { type_meta: TypeMeta::default(), raw: &[], content_type: String::new() };
    let mut reader = Reader::new(rest);
    while let Some((number, value)) = reader.field()? {
        match number {
            1 => {
                let mut meta = Reader::new(value.bytes()?);
                while let Some((number, value)) = meta.field()? {
                    match number {
                        1 => envelope.type_meta.api_version = value.text()?,
                        2 => envelope.type_meta.kind = value.text()?,
                        _ => {}
                    }
                }
            }
            2 => envelope.raw = value.bytes()?,
            4 => envelope.content_type = value.text()?,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Decodes a body that is in its envelope into the form a Go round trip would give.
pub fn decode(ty: &Type, body: &[u8]) -> Result<Value, ProtoError> {
    let envelope = open(body)?;
    if envelope.content_type == "application/json" {
        let decoded = decode::decode(ty, envelope.raw, decode::Format::Json, decode::Validation::Ignore);
        return decoded.map(|d| d.object).map_err(|error| match error {
            decode::DecodeError::TooLarge(excess) => ProtoError::TooLarge(excess),
            other => ProtoError::Type(other.to_string()),
        });
    }
    let mut object = decode_raw(ty, envelope.raw)?;
    if let Value::Object(map) = &mut object
        && ty.def().is_kind
    {
        let TypeMeta { api_version, kind } = envelope.type_meta;
        for (key, value) in [("apiVersion", api_version), ("kind", kind)] {
            if !value.is_empty() && ty.def().field(key).is_some() {
                map.insert(key.to_owned(), Value::String(value));
            }
        }
    }
    Ok(object)
}

/// Decodes a bare message.
pub fn decode_raw(ty: &Type, raw: &[u8]) -> Result<Value, ProtoError> {
    read::Decoder::new(ty.catalogue(), raw.len()).structure(ty.id(), raw, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_protobuf_is_refused() {
        let pod = builtin().named("io.k8s.api.core.v1.Pod").expect("the type");
        assert_eq!(decode(&pod, b"{}"), Err(ProtoError::Prefix));
        assert!(decode(&pod, b"k8s\0\x0a\xff").is_err());
        assert!(decode_raw(&pod, &[0x0a, 0x05, 1]).is_err());
        assert!(decode_raw(&pod, &[0xff; 40]).is_err());
    }

    /// A message of no bytes is a container: two bytes on the wire, a kilobyte in memory.
    #[test]
    fn many_small_messages_are_refused_before_they_are_made() {
        let pod = builtin().named("io.k8s.api.core.v1.Pod").expect("the type");
        let containers = |count: usize| {
            let mut spec = Writer::default();
            (0..count).for_each(|_| spec.bytes(2, b""));
            let mut pod = Writer::default();
            pod.bytes(2, &spec.out);
            pod.out
        };
        let few = decode_raw(&pod, &containers(100)).expect("a pod");
        assert_eq!(few["spec"]["containers"].as_array().map(Vec::len), Some(100));
        assert_eq!(decode_raw(&pod, &containers(1_000_000)), Err(ProtoError::TooLarge(Excess::Weight)));
    }

    /// A message is two levels of JSON where it stands in a map.
    #[test]
    fn depth_is_that_of_the_json() {
        let schema = builtin().named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
        let schema = schema.expect("the type");
        let nested = |levels: usize| {
            (0..levels).fold(
                serde_json::json!({"type": "object"}),
                |inner, _| serde_json::json!({"type": "object", "properties": {"a": inner}}),
            )
        };
        for (levels, fits) in [(10, true), (49, true), (50, false), (90, false)] {
            let bytes = encode_raw(&schema, &nested(levels));
            assert_eq!(decode_raw(&schema, &bytes).is_ok(), fits, "{levels}");
        }
    }

    #[test]
    fn frames_carry_their_length() {
        let frame = watch_frame("ADDED", b"k8s\0x");
        assert_eq!(u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize, frame.len() - 4);
        assert_eq!(&frame[4..11], b"\x0a\x05ADDED");
    }
}

//! CBOR as upstream speaks it: texts are byte strings, `[]byte` fields are byte strings marked to be shown as base64, and
//! every document begins with CBOR's own mark.
//!
//! Reading is bounded: depth, lengths that the data does not have, and numbers that JSON cannot hold are refused.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::bounds::{ENTRY, Excess, HEAVIEST, ITEM, MAP};
use serde_json::{Map, Number, Value};

use crate::catalogue::{Catalogue, Shape, Type};

/// Tag 55799: what follows is CBOR.
const MARK: [u8; 3] = [0xd9, 0xd9, 0xf7];
/// Tag 22: bytes that are base64 in JSON.
const BASE64: u64 = 22;
/// Upstream's bound for CBOR, which is below that of all values.
const DEEPEST: usize = 64;
const _: () = assert!(DEEPEST < ferry_meta::bounds::DEEPEST);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CborError {
    #[error("cbor: unexpected end of data")]
    End,
    #[error("cbor: {0} bytes of extraneous data")]
    Extra(usize),
    #[error("cbor: exceeded max nested level {DEEPEST}")]
    Deep,
    #[error("cbor: found duplicate map key {0:?}")]
    Duplicate(String),
    #[error("cbor: {0}")]
    Unsupported(&'static str),
    #[error("cbor: {0}")]
    TooLarge(Excess),
}

/// The CBOR of an object. The type tells which texts are base64 of bytes; a custom resource has none.
pub fn encode(ty: Option<&Type>, value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(&MARK);
    write(ty, value, &mut out);
    out
}

/// One event of a watch: `type` and the object, as an item of a sequence.
pub fn encode_event(kind: &str, ty: Option<&Type>, object: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(&MARK);
    head(&mut out, 5, 2);
    text(&mut out, "type");
    text(&mut out, kind);
    text(&mut out, "object");
    write(ty, object, &mut out);
    out
}

fn write(ty: Option<&Type>, value: &Value, out: &mut Vec<u8>) {
    match ty {
        Some(ty) => item(Some((ty.catalogue(), &Shape::Struct(ty.id()))), value, out),
        None => item(None, value, out),
    }
}

fn head(out: &mut Vec<u8>, major: u8, value: u64) {
    let major = major << 5;
    match value {
        0..24 => out.push(major | value as u8),
        24..0x100 => out.extend_from_slice(&[major | 24, value as u8]),
        0x100..0x1_0000 => {
            out.push(major | 25);
            out.extend_from_slice(&(value as u16).to_be_bytes());
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(major | 26);
            out.extend_from_slice(&(value as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    head(out, 2, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// The type of a place, where it is known.
type Place<'c> = Option<(&'c Catalogue, &'c Shape)>;

fn item(place: Place<'_>, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(on) => out.push(if *on { 0xf5 } else { 0xf4 }),
        Value::Number(number) => number_out(number, out),
        Value::String(content) => match place {
            Some((_, Shape::Bytes)) => match STANDARD.decode(content) {
                Ok(bytes) => {
                    head(out, 6, BASE64);
                    head(out, 2, bytes.len() as u64);
                    out.extend_from_slice(&bytes);
                }
                Err(_) => text(out, content),
            },
            _ => text(out, content),
        },
        Value::Array(items) => {
            head(out, 4, items.len() as u64);
            let inner = match place {
                Some((catalogue, Shape::List(inner))) => Some((catalogue, &inner.shape)),
                _ => None,
            };
            items.iter().for_each(|value| item(inner, value, out));
        }
        Value::Object(map) => {
            head(out, 5, map.len() as u64);
            for (key, value) in map {
                text(out, key);
                let inner = match place {
                    Some((catalogue, Shape::Map(inner))) => Some((catalogue, &inner.shape)),
                    Some((catalogue, Shape::Struct(id))) => {
                        catalogue.get(*id).field(key).map(|field| (catalogue, &field.item.shape))
                    }
                    _ => None,
                };
                item(inner, value, out);
            }
        }
    }
}

fn number_out(number: &Number, out: &mut Vec<u8>) {
    if let Some(value) = number.as_u64() {
        head(out, 0, value);
    } else if let Some(value) = number.as_i64() {
        head(out, 1, !value as u64);
    } else {
        out.push(0xfb);
        out.extend_from_slice(&number.as_f64().unwrap_or_default().to_be_bytes());
    }
}

/// The value of one CBOR document.
pub fn decode(bytes: &[u8]) -> Result<Value, CborError> {
    let mut reader = Reader { rest: bytes, weight: bytes.len() };
    let value = reader.item(0)?;
    if reader.rest.is_empty() { Ok(value) } else { Err(CborError::Extra(reader.rest.len())) }
}

struct Reader<'a> {
    rest: &'a [u8],
    /// What was made so far.
    weight: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], CborError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(CborError::End)?;
        self.rest = rest;
        Ok(taken)
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), CborError> {
        self.weight += bytes;
        if self.weight > HEAVIEST { Err(CborError::TooLarge(Excess::Weight)) } else { Ok(()) }
    }

    fn head(&mut self) -> Result<(u8, u8, u64), CborError> {
        let first = *self.take(1)?.first().ok_or(CborError::End)?;
        let (major, short) = (first >> 5, first & 0x1f);
        let value = match short {
            0..24 => u64::from(short),
            24..28 => self.take(1 << (short - 24))?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
            31 => return Err(CborError::Unsupported("indefinite-length items are not allowed")),
            _ => return Err(CborError::Unsupported("invalid additional information")),
        };
        Ok((major, short, value))
    }

    /// A count of items, each of which takes a byte at least: no more are made room for than can follow.
    fn count(&self, count: u64) -> Result<usize, CborError> {
        usize::try_from(count).ok().filter(|count| *count <= self.rest.len()).ok_or(CborError::End)
    }

    fn string(&mut self, length: u64) -> Result<String, CborError> {
        let length = self.count(length)?;
        let bytes = self.take(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| CborError::Unsupported("invalid UTF-8 string"))
    }

    fn item(&mut self, depth: usize) -> Result<Value, CborError> {
        if depth > DEEPEST {
            return Err(CborError::Deep);
        }
        let (major, short, value) = self.head()?;
        match major {
            0 => i64::try_from(value).map(Value::from).map_err(|_| CborError::Unsupported("integer out of range")),
            1 => i64::try_from(value)
                .map(|value| Value::from(!value))
                .map_err(|_| CborError::Unsupported("integer out of range")),
            2 | 3 => self.string(value).map(Value::String),
            4 => {
                let count = self.count(value)?;
                let mut items = Vec::with_capacity(count.min(1024));
                for _ in 0..count {
                    self.weigh(ITEM)?;
                    items.push(self.item(depth + 1)?);
                }
                Ok(Value::Array(items))
            }
            5 => {
                let mut map = Map::new();
                for _ in 0..self.count(value)? {
                    let Value::String(key) = self.item(depth + 1)? else {
                        return Err(CborError::Unsupported("map keys must be strings"));
                    };
                    let value = self.item(depth + 1)?;
                    if map.contains_key(&key) {
                        return Err(CborError::Duplicate(key));
                    }
                    self.weigh(if map.is_empty() { MAP + ENTRY } else { ENTRY })?;
                    map.insert(key, value);
                }
                Ok(Value::Object(map))
            }
            6 if value == BASE64 => match self.head()? {
                (2, _, length) => {
                    let length = self.count(length)?;
                    Ok(Value::String(STANDARD.encode(self.take(length)?)))
                }
                _ => Err(CborError::Unsupported("expected bytes behind tag 22")),
            },
            6 => self.item(depth + 1),
            _ => simple(short, value),
        }
    }
}

fn simple(short: u8, value: u64) -> Result<Value, CborError> {
    let float = match (short, value) {
        (20, _) => return Ok(Value::Bool(false)),
        (21, _) => return Ok(Value::Bool(true)),
        (22 | 23, _) => return Ok(Value::Null),
        (25, bits) => half(bits as u16),
        (26, bits) => f64::from(f32::from_bits(bits as u32)),
        (27, bits) => f64::from_bits(bits),
        _ => return Err(CborError::Unsupported("unknown simple value")),
    };
    Number::from_f64(float).map(Value::Number).ok_or(CborError::Unsupported("floats must be finite"))
}

/// A float of sixteen bits.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_come_back() {
        for value in [
            json!(null),
            json!({"a": [1, -1, 24, 300, 70000, 5_000_000_000_i64, -9_000_000_000_i64, 1.5, true, "ü", {}]}),
            json!([[[]]]),
        ] {
            assert_eq!(decode(&encode(None, &value)).as_ref(), Ok(&value));
        }
        assert_eq!(decode(&[0x63, b'a', b'b', b'c']), Ok(json!("abc")));
        assert_eq!(decode(&[0xf9, 0x3c, 0x00]), Ok(json!(1.0)));
    }

    #[test]
    fn bytes_are_bytes() {
        let ty = crate::builtin().kind(&ferry_meta::GroupVersionKind::new("", "v1", "Secret")).expect("a type");
        let secret = json!({"kind": "Secret", "data": {"k": "aGk="}, "stringData": {"k": "aGk="}});
        let bytes = encode(Some(&ty), &secret);
        assert!(bytes.windows(4).any(|window| window == [0xd6, 0x42, b'h', b'i']), "{bytes:?}");
        assert_eq!(decode(&bytes), Ok(secret));
    }

    #[test]
    fn nonsense_is_refused() {
        let deep: Vec<u8> = std::iter::repeat_n(0x81, 10_000).chain([0x01]).collect();
        // Maps with one entry, three bytes each.
        let mut many = vec![0x9a, 0x00, 0x03, 0x00, 0x00];
        (0..0x30000).for_each(|_| many.extend([0xa1, 0x40, 0x00]));
        for (bytes, want) in [
            (&b""[..], CborError::End),
            (&[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], CborError::End),
            (&[0x5a, 0x7f, 0xff, 0xff, 0xff], CborError::End),
            (&[0x01, 0x02], CborError::Extra(1)),
            (&[0xa2, 0x41, b'a', 0x01, 0x41, b'a', 0x02], CborError::Duplicate("a".into())),
            (&[0x41, 0xff], CborError::Unsupported("invalid UTF-8 string")),
            (&[0x9f], CborError::Unsupported("indefinite-length items are not allowed")),
            (&deep, CborError::Deep),
            (&many, CborError::TooLarge(Excess::Weight)),
        ] {
            assert_eq!(decode(bytes), Err(want));
        }
    }
}

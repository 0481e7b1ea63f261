//! The same objects as JSON and as protobuf, written by upstream.

use ferry_schema::{Format, Validation, decode, encode_json};
use ferry_testkit::data::{Pair, pairs};
use serde_json::Value;

pub(crate) fn type_of(json: &[u8], name: &str) -> ferry_schema::Type {
    let value: Value = serde_json::from_slice(json).expect("JSON");
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind =
        if text("kind").is_empty() { name.rsplit('.').next().unwrap_or_default().to_owned() } else { text("kind") };
    let version = if text("apiVersion").is_empty() { "v1".to_owned() } else { text("apiVersion") };
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    crate::kind(group, version, &kind)
}

#[test]
fn json_comes_back_byte_for_byte() {
    let mut failures = Vec::new();
    for Pair { name, json, .. } in pairs() {
        let ty = type_of(&json, &name);
        let decoded = match decode(&ty, &json, Format::Json, Validation::Strict) {
            Ok(decoded) => decoded,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        let ours = String::from_utf8(ferry_schema::encode_json_pretty(&ty, &decoded.object)).expect("UTF-8");
        let theirs = String::from_utf8(json).expect("UTF-8");
        if let Some((a, b)) = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b) {
            failures.push(format!("{name}: ours {a:?}, theirs {b:?}"));
        } else if ours.trim() != theirs.trim() {
            failures.push(format!("{name}: lengths {} and {}", ours.len(), theirs.len()));
        }
        let again = encode_json(&ty, &decoded.object);
        assert_eq!(ferry_schema::encode::indent(&again), ours.as_bytes(), "{name}");
    }
    assert_eq!(failures, Vec::<String>::new(), "{} failures", failures.len());
}

#[test]
fn protobuf_decodes_to_the_json() {
    let mut failures = Vec::new();
    for Pair { name, json, protobuf } in pairs() {
        let ty = type_of(&json, &name);
        let expected = decode(&ty, &json, Format::Json, Validation::Strict).expect("JSON").object;
        match ferry_schema::proto::decode(&ty, &protobuf) {
            Ok(ours) if ours == expected => {}
            Ok(ours) => {
                let (ours, expected) = (
                    serde_json::to_string_pretty(&ours).expect("JSON"),
                    serde_json::to_string_pretty(&expected).expect("JSON"),
                );
                let at = ours.lines().zip(expected.lines()).find(|(a, b)| a != b);
                failures.push(format!("{name}: {at:?}"));
            }
            Err(error) => failures.push(format!("{name}: {error}")),
        }
    }
    assert_eq!(failures, Vec::<String>::new(), "{} failures", failures.len());
}

#[test]
fn json_encodes_to_the_protobuf() {
    let mut failures = Vec::new();
    for Pair { name, json, protobuf } in pairs() {
        let ty = type_of(&json, &name);
        let object = decode(&ty, &json, Format::Json, Validation::Strict).expect("JSON").object;
        let ours = ferry_schema::proto::encode(&ty, &object);
        if ours != protobuf {
            let at = ours.iter().zip(&protobuf).position(|(a, b)| a != b).unwrap_or(ours.len().min(protobuf.len()));
            let around = |bytes: &[u8]| {
                String::from_utf8_lossy(
                    bytes.get(at.saturating_sub(20)..(at + 30).min(bytes.len())).unwrap_or_default(),
                )
                .escape_debug()
                .to_string()
            };
            failures.push(format!(
                "{name} at {at} of {}/{}: {} | {}",
                ours.len(),
                protobuf.len(),
                around(&ours),
                around(&protobuf)
            ));
        }
    }
    assert_eq!(failures, Vec::<String>::new(), "{} failures", failures.len());
}

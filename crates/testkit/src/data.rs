//! The recorded data in `testdata/`; its README says where they come from. A file that is missing is a failure: they are part of
//! the repository.

use std::io::{Error, Read, Result};
use std::path::{Path, PathBuf};

use base64::Engine;
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

/// How many there are. They are counted, so that a file that was cut short is noticed.
const EXCHANGES: usize = 321;
const PAIRS: usize = 155;

/// Requests to kube-apiserver v1.37, each with the answer it gave.
#[derive(Deserialize)]
pub struct Exchange {
    pub name: String,
    /// As they are written: values lose the order of their fields.
    pub steps: Vec<Box<RawValue>>,
}

impl Exchange {
    pub fn values(&self) -> Vec<Value> {
        self.steps.iter().map(|step| json("exchanges.jsonl.gz", step.get())).collect()
    }
}

/// One object as upstream writes it in JSON and in protobuf.
pub struct Pair {
    pub name: String,
    pub json: Vec<u8>,
    pub protobuf: Vec<u8>,
}

/// A pair as it is written down, the protobuf in base64.
#[derive(Deserialize)]
struct PairLine {
    name: String,
    json: String,
    protobuf: String,
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// A file of `testdata/`, unpacked where its name ends in `.gz`.
pub fn read(name: &str) -> Result<String> {
    let path = path(name);
    let explain = |error: Error| Error::new(error.kind(), format!("{}: {error}", path.display()));
    let bytes = std::fs::read(&path).map_err(explain)?;
    let mut text = String::new();
    match name.ends_with(".gz") {
        true => GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).map_err(explain)?,
        false => bytes.as_slice().read_to_string(&mut text).map_err(explain)?,
    };
    Ok(text)
}

fn text(name: &str) -> String {
    read(name).unwrap_or_else(|error| panic!("{error}; it is part of the repository"))
}

fn json<T: DeserializeOwned>(name: &str, text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("testdata/{name} cannot be read: {error}"))
}

/// A JSON file of `testdata/facts/`.
pub fn facts(name: &str) -> Value {
    let name = format!("facts/{name}");
    json(&name, &text(&name))
}

fn lines<T: DeserializeOwned>(name: &str, count: usize) -> Vec<T> {
    let all: Vec<T> = text(name).lines().map(|line| json(name, line)).collect();
    assert_eq!(all.len(), count, "testdata/{name} is not whole");
    all
}

/// All recorded exchanges, by name.
pub fn exchanges() -> Vec<Exchange> {
    lines("exchanges.jsonl.gz", EXCHANGES)
}

/// All pairs, by name.
pub fn pairs() -> Vec<Pair> {
    let pair = |line: PairLine| {
        let protobuf = base64::engine::general_purpose::STANDARD.decode(line.protobuf);
        let protobuf = protobuf.unwrap_or_else(|error| panic!("{} in pairs.jsonl.gz: {error}", line.name));
        Pair { name: line.name, json: line.json.into_bytes(), protobuf }
    };
    lines("pairs.jsonl.gz", PAIRS).into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_are_whole() {
        let steps: usize = exchanges().iter().map(|exchange| exchange.steps.len()).sum();
        assert_eq!(steps, 3374);
        assert!(pairs().iter().all(|pair| pair.protobuf.starts_with(b"k8s\0") && pair.json.starts_with(b"{")));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read("facts/none.json").expect_err("there is no such file").to_string();
        assert!(error.contains("testdata/facts/none.json"), "{error}");
    }
}

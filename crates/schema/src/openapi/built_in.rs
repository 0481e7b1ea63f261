//! What the built-in kinds and their fields are for, in the words of `k8s-openapi`.

use std::io::Read;

use serde_json::{Map, Value};

/// Written by `cargo run -p xtask -- catalogue`: what `k8s-openapi` makes them with is 7 MB of code, and not in the program.
const DESCRIPTIONS: &[u8] = include_bytes!("../../data/descriptions.json.gz");

/// The descriptions of the types reachable from a built-in kind and of their properties, in the form of JSON schemas, by OpenAPI
/// name (`io.k8s.api.core.v1.PodSpec`); `io.k8s.apimachinery.pkg.version.Info`, which the catalogue does not have, with all else.
///
/// Takes some ten milliseconds and megabytes: callers keep what they derive from it, not this.
pub fn schemas() -> Map<String, Value> {
    let mut text = Vec::new();
    let read = flate2::read::GzDecoder::new(DESCRIPTIONS).read_to_end(&mut text);
    read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

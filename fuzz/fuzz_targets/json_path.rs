//! The paths of printer columns and scales, which definitions bring along.
#![no_main]

use ferry_registry::apiextensions::custom::ScalePaths;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|data: &[u8]| {
    let Ok(path) = std::str::from_utf8(data) else { return };
    let object = json!({"spec": {"replicas": 1, "list": [{"a": 1}, {"a": 2, "b": [3]}]}, "status": {"x.y": "z"}});
    let _ = ScalePaths::value(path, &object);
    let _ = ScalePaths::fields(path);
});

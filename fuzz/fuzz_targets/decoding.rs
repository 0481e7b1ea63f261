//! JSON and YAML bodies, in every strictness.
#![no_main]

use ferry_meta::GroupVersionKind;
use ferry_schema::{Format, Validation, decode, encode_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(ty) = ferry_schema::builtin().kind(&GroupVersionKind::new("apps", "v1", "Deployment")) else { return };
    for validation in [Validation::Ignore, Validation::Warn, Validation::Strict] {
        let _ = decode(&ty, data, Format::Yaml, validation);
        if let Ok(decoded) = decode(&ty, data, Format::Json, validation) {
            let text = encode_json(&ty, &decoded.object);
            let again = decode(&ty, &text, Format::Json, Validation::Strict).expect("our own JSON");
            assert_eq!(again.object, decoded.object);
        }
    }
});

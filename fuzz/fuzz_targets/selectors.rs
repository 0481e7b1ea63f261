//! Label and field selectors as they stand in queries.
#![no_main]

use ferry_meta::selector::{FieldSelector, LabelSelector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = LabelSelector::parse(text);
    let _ = FieldSelector::parse(text);
});

//! YAML made of anchors, aliases and brackets: refused, or no larger and deeper than a value may be, and than its text allows.
#![no_main]

use ferry_meta::bounds::{DEEPEST, Extent, HEAVIEST};
use libfuzzer_sys::fuzz_target;

const PIECES: [&str; 32] = [
    "&a ", "&b ", "&c ", "*a", "*b", "*c", "*a ", "[", "]", "{", "}", ", ", ": ", "? ", "- ", "\n", "\n  ", "\n    ", "a", "b",
    "c: ", "<<: ", "\"x\\u0041\"", "'y'", "!!str ", "!!int ", "0x1f", "~", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "|\n  t\n", "# c\n", "---\n",
];

fuzz_target!(|data: &[u8]| {
    // The first byte tells whether the text is made of pieces or is the data itself.
    let text: Vec<u8> = match data.split_first() {
        Some((0..192, rest)) => rest.iter().flat_map(|byte| PIECES[usize::from(byte % 32)].bytes()).collect(),
        Some((_, rest)) => rest.to_vec(),
        None => return,
    };
    if let Ok((value, duplicates)) = ferry_schema::yaml::parse_value(&text) {
        let extent = Extent::of(&value);
        assert!(extent.depth <= DEEPEST && extent.weight <= HEAVIEST, "{extent:?}");
        assert!(value.to_string().len() <= 16 * text.len() + 16 * (1 << 20));
        assert!(duplicates.len() <= 100);
    }
});

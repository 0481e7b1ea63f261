//! Sequences of JSON patch operations and merges, each on what the one before left: refused, or a value within bounds.
#![no_main]

use ferry_meta::GroupVersionKind;
use ferry_meta::bounds::{DEEPEST, Extent, HEAVIEST};
use ferry_schema::Validation;
use ferry_schema::patch::{self, PatchKind, json_patch, merge_patch};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const STEPS: [&str; 12] =
    ["a", "b", "0", "1", "-", "-1", "metadata", "labels", "finalizers", "spec", "containers", "name"];
const OPERATIONS: [&str; 6] = ["add", "copy", "move", "replace", "remove", "test"];

/// Bytes, one after the other; zeros behind their end.
struct Choices<'d>(std::slice::Iter<'d, u8>);

impl Choices<'_> {
    fn next(&mut self) -> usize {
        self.0.next().copied().unwrap_or_default().into()
    }

    fn path(&mut self) -> String {
        (0..self.next() % 8).map(|_| format!("/{}", STEPS[self.next() % STEPS.len()])).collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.next() % 8 {
            0 => json!({}),
            1 => json!([]),
            2 => json!(self.next()),
            3 => json!("x".repeat(self.next())),
            4 if depth < 6 => json!({STEPS[self.next() % STEPS.len()]: self.value(depth + 1)}),
            5 if depth < 6 => Value::Array((0..self.next() % 8).map(|_| self.value(depth + 1)).collect()),
            6 => Value::Array(vec![json!(0); self.next() * 16]),
            _ => Value::Null,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(ty) = ferry_schema::builtin().kind(&GroupVersionKind::new("", "v1", "Pod")) else { return };
    let mut choices = Choices(data.iter());
    let mut document = json!({"a": {"b": [0, {"a": {}}]}, "metadata": {"labels": {"a": "b"}, "finalizers": ["x/y"]},
        "spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b"}]}});
    while choices.0.len() > 0 {
        let changed = match choices.next() % 8 {
            0 => merge_patch(document.clone(), &choices.value(0)),
            1 => {
                let patch = choices.value(0).to_string();
                let applied = patch::apply(PatchKind::Strategic, &ty, &document, patch.as_bytes(), Validation::Ignore);
                applied.map(|decoded| decoded.object)
            }
            _ => {
                let operations: Vec<Value> = (0..choices.next() % 20)
                    .map(|_| {
                        json!({"op": OPERATIONS[choices.next() % OPERATIONS.len()], "from": choices.path(),
                            "path": choices.path(), "value": choices.value(0)})
                    })
                    .collect();
                json_patch(document.clone(), &Value::Array(operations))
            }
        };
        if let Ok(changed) = changed {
            let extent = Extent::of(&changed);
            assert!(extent.depth <= DEEPEST && extent.weight <= 3 * HEAVIEST, "{extent:?}");
            document = changed;
        }
    }
});

//! Patches of each kind against a pod: refused or applied, never a panic.
#![no_main]

use ferry_meta::GroupVersionKind;
use ferry_schema::Validation;
use ferry_schema::patch::{self, PatchKind};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|data: &[u8]| {
    let Some(ty) = ferry_schema::builtin().kind(&GroupVersionKind::new("", "v1", "Pod")) else { return };
    let live = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x/y", "x/z"]},
        "spec": {
            "containers": [
                {"name": "a", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}], "env": [{"name": "A", "value": "1"}]},
                {"name": "b", "image": "j", "args": ["1", "2"]},
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
        },
    });
    for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic] {
        let _ = patch::apply(kind, &ty, &live, data, Validation::Warn);
    }
});

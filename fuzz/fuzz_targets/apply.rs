//! Server-side apply: applying the same again changes nothing.
#![no_main]

use ferry_meta::GroupVersionKind;
use ferry_schema::managed::{self, Write};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|data: &[u8]| {
    let gvk = GroupVersionKind::new("", "v1", "Service");
    let Some(ty) = ferry_schema::builtin().kind(&gvk) else { return };
    let Ok((Value::Object(mut config), _)) = ferry_schema::yaml::parse_value(data) else { return };
    config.insert("apiVersion".into(), "v1".into());
    config.insert("kind".into(), "Service".into());
    let config = Value::Object(config);
    let write = |manager| Write {
        gvk: &gvk,
        manager,
        subresource: "",
        reset: &["status"],
        now: jiff::Timestamp::UNIX_EPOCH,
        versions: None,
    };
    let mut live = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {
        "ports": [{"port": 80, "protocol": "TCP", "name": "http"}], "selector": {"a": "b"}}});
    managed::update(&ty, &write("updater"), None, &mut live);
    if let Ok(once) = managed::apply(&ty, &write("applier"), Some(&live), &config, true) {
        let twice =
            managed::apply(&ty, &write("applier"), Some(&once), &config, true).expect("what was applied before");
        assert_eq!(twice, once);
    }
});

//! Protobuf and CBOR that anyone may send: read without a panic, and what was read is written back the same.
#![no_main]

use ferry_meta::GroupVersionKind;
use ferry_schema::{cbor, proto};
use libfuzzer_sys::fuzz_target;

const KINDS: [(&str, &str, &str); 6] = [
    ("", "v1", "Pod"),
    ("apps", "v1", "Deployment"),
    ("", "v1", "Secret"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    ("coordination.k8s.io", "v1", "Lease"),
];

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let (group, version, kind) = KINDS[usize::from(*choice) % KINDS.len()];
    let Some(ty) = ferry_schema::builtin().kind(&GroupVersionKind::new(group, version, kind)) else { return };
    let _ = proto::decode(&ty, bytes);
    if let Ok(object) = proto::decode_raw(&ty, bytes) {
        let once = proto::encode(&ty, &object);
        let again = proto::decode(&ty, &once).expect("our own protobuf");
        assert_eq!(proto::encode(&ty, &again), once);
    }
    if let Ok(value) = cbor::decode(bytes) {
        assert_eq!(cbor::decode(&cbor::encode(None, &value)).as_ref(), Ok(&value));
    }
});

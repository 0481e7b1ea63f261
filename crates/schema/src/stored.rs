//! The form an object has after it was in upstream's store.

use serde_json::Value;

use crate::catalogue::Type;
use crate::encode::{Level, Writer};

/// The JSON of an object of a built-in kind as it is stored: without its resourceVersion, which the commit makes. Upstream
/// stores protobuf, which cannot tell an empty list or map from none: where Go always writes such a field, it reads `null`
/// afterwards.
pub fn encode_stored(ty: &Type, object: &Value, out: &mut Vec<u8>) {
    let mut writer = Writer::new(std::mem::take(out));
    writer.stored = Some(Level::Root);
    writer.root(ty, object);
    *out = writer.out;
}

#[cfg(test)]
mod tests {
    use ferry_meta::GroupVersionKind;
    use serde_json::json;

    use super::*;

    fn check(group: &str, kind: &str, object: &Value, text: &str) {
        let kind = GroupVersionKind::new(group, "v1", kind);
        let ty = crate::builtin().kind(&kind).expect("a type");
        let mut out = Vec::new();
        encode_stored(&ty, object, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), text);
    }

    #[test]
    fn empty_lists_do_not_survive_the_store() {
        let role = json!({"metadata": {"name": "a", "labels": {}, "resourceVersion": "7"}, "rules": []});
        check("rbac.authorization.k8s.io", "Role", &role, r#"{"metadata":{"name":"a"},"rules":null}"#);
        let role = json!({"metadata": {"name": "a"}, "rules": [{"verbs": []}]});
        check("rbac.authorization.k8s.io", "Role", &role, r#"{"metadata":{"name":"a"},"rules":[{"verbs":null}]}"#);
    }

    #[test]
    fn only_the_objects_own_version_is_left_out() {
        let event = json!({"metadata": {"name": "a", "resourceVersion": "7"},
            "involvedObject": {"resourceVersion": "5"}, "source": {}, "firstTimestamp": null, "lastTimestamp": null});
        let text = r#"{"metadata":{"name":"a"},"involvedObject":{"resourceVersion":"5"},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":""}"#;
        check("", "Event", &event, text);
    }
}

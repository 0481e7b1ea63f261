//! VolumeAttachments.

use ferry_meta::{FieldError, FieldErrors, Path, names};
use serde_json::Value;

use crate::core::persistent_volume;
use crate::core::pod::{csi_driver_name, default_remote_volume, resource_list};
use crate::cursor::{Cursor, IMMUTABLE, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct VolumeAttachment(pub Plain);

/// What a driver may tell of an attached volume, in bytes.
const MOST_METADATA: usize = 256 * 1024;
const LONGEST_MESSAGE: usize = 1024;

impl Strategy for VolumeAttachment {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = object.pointer_mut("/spec/source/inlineVolumeSpec").and_then(Value::as_object_mut) else {
            return;
        };
        resource_list(spec, "capacity");
        default_remote_volume(spec);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        let source = spec.get("source");
        match (source.has("inlineVolumeSpec"), source.raw("persistentVolumeName").as_str()) {
            (false, None) => {
                let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.required(source.path.clone(), detail);
            }
            (false, Some("")) => {
                errors.required(source.at("persistentVolumeName"), "must specify non empty persistentVolumeName");
            }
            (true, Some(_)) => {
                let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.forbidden(source.path.clone(), detail);
            }
            (true, None) => persistent_volume::validate_spec(&mut errors, &source.get("inlineVolumeSpec"), true),
            (false, Some(_)) => {}
        }
        let node = spec.text("nodeName");
        errors.reasons(spec.at("nodeName"), node, names::dns1123_subdomain(node));
        if let Some(volume) = source.raw("persistentVolumeName").as_str() {
            let path = Path::new("spec.source.persistentVolumeName");
            errors.reasons(path, volume, names::dns1123_subdomain(volume));
        }
        // The attacher's shape is found by a later pass.
        crate::devices::driver_name(&mut errors, spec.at("attacher"), spec.text("attacher"));
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if context.subresource.is_empty() {
            errors = self.validate_create(context, object);
            // … which an update does not reach: it is checked first, and by hand.
            let spec = Cursor::root(object).get("spec");
            errors.retain(|error| error.path != spec.at("attacher"));
            let mut first = FieldErrors::new();
            csi_driver_name(&mut first, spec.at("attacher"), spec.text("attacher"));
            first.extend(errors);
            errors = first;
            if object.get("spec") != old.get("spec") {
                errors.invalid(Path::new("spec"), Value::Null, IMMUTABLE);
            }
        }
        let told = Cursor::root(object).get("status").get("attachmentMetadata");
        let length = |value: &Value| value.as_str().map_or(0, str::len);
        let size: usize =
            told.value.as_object().into_iter().flatten().map(|(key, value)| key.len() + length(value)).sum();
        if size > MOST_METADATA {
            errors.push(FieldError::too_long(&told.path, MOST_METADATA));
        }
        for failure in ["attachError", "detachError"].map(|key| Cursor::root(object).get("status").get(key)) {
            if failure.text("message").len() > LONGEST_MESSAGE {
                errors.push(FieldError::too_long(&failure.at("message"), LONGEST_MESSAGE));
            }
            if let Some(code) = failure.int("errorCode").filter(|code| *code < 0) {
                errors.invalid(failure.at("errorCode"), code, names::in_range(0, i32::MAX.into()));
            }
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;
    use serde_json::json;

    use super::*;

    fn attachment(inline: Value) -> Value {
        json!({"spec": {"attacher": "a.example.com", "nodeName": "n", "source": {"inlineVolumeSpec": inline}}})
    }

    fn inline() -> Value {
        json!({"accessModes": ["ReadWriteOnce"], "csi": {"driver": "d.example.com", "volumeHandle": "h"}})
    }

    fn context<'a>(user: &'a UserInfo, subresource: &'a str) -> Context<'a> {
        Context { user, subresource, dry_run: false, patch: false, reader: None }
    }

    fn found(errors: &FieldErrors) -> Vec<String> {
        errors.iter().map(|error| format!("{}: {}", error.path, error.detail)).collect()
    }

    /// A volume that stands in the attachment itself is checked like one of its own, but has nothing to do with claims.
    #[test]
    fn inline_volumes_are_checked() {
        let user = UserInfo::new("u", &[]);
        let strategy = VolumeAttachment(<Plain as Default>::default());
        let path = "spec.source.inlineVolumeSpec";
        let foreign = "may not be specified in the context of inline volumes";
        for (key, value, wanted) in [
            ("mountOptions", json!(["ro"]), vec![]),
            ("claimRef", json!({"name": "c"}), vec![format!("{path}.claimRef: {foreign}")]),
            ("capacity", json!({"storage": "1"}), vec![format!("{path}.capacity: {foreign}")]),
            ("capacity", json!({}), vec![]),
            ("nodeAffinity", json!({}), vec![format!("{path}.nodeAffinity: {foreign}")]),
            ("storageClassName", json!("Not a name"), vec![format!("{path}.storageClassName: {foreign}")]),
            ("accessModes", json!([]), vec![format!("{path}.accessModes: ")]),
            ("persistentVolumeReclaimPolicy", json!("Retain"), vec![]),
            (
                "persistentVolumeReclaimPolicy",
                json!("Delete"),
                vec![format!(
                    "{path}.persistentVolumeReclaimPolicy: may only be Retain in the context of inline volumes"
                )],
            ),
            (
                "volumeMode",
                json!("Block"),
                vec![format!(
                    "{path}.volumeMode: may not specify volumeMode other than Filesystem in the context of inline volumes"
                )],
            ),
            ("volumeAttributesClassName", json!(""), vec![]),
            ("csi", json!({"driver": "d.example.com"}), vec![format!("{path}.csi.volumeHandle: ")]),
        ] {
            let mut spec = inline();
            spec[key] = value;
            let errors = strategy.validate_create(&context(&user, ""), &attachment(spec));
            assert_eq!(found(&errors), wanted, "{key}");
        }
        let errors =
            strategy.validate_create(&context(&user, ""), &attachment(json!({"accessModes": ["ReadOnlyMany"]})));
        assert_eq!(
            found(&errors),
            [
                format!("{path}.csi: has to be specified in the context of inline volumes"),
                format!("{path}: must specify a volume type"),
            ]
        );
    }

    /// A PUT of the same manifest is no change, though it leaves out what was defaulted.
    #[test]
    fn defaults_of_an_inline_volume_are_no_change() {
        let user = UserInfo::new("u", &[]);
        let strategy = VolumeAttachment(<Plain as Default>::default());
        let mut spec = inline();
        spec["hostPath"] = json!({"path": "/a"});
        let sent = attachment(spec);
        let mut stored = sent.clone();
        strategy.default(&mut stored);
        assert_eq!(stored["spec"]["source"]["inlineVolumeSpec"]["hostPath"]["type"], json!(""));
        let mut again = sent;
        strategy.default(&mut again);
        let errors = strategy.validate_update(&context(&user, ""), &again, &stored);
        assert!(!found(&errors).iter().any(|error| error.contains("immutable")), "{:?}", found(&errors));
    }

    #[test]
    fn an_update_judges_the_attacher_first() {
        let user = UserInfo::new("u", &[]);
        let strategy = VolumeAttachment(<Plain as Default>::default());
        let old = attachment(inline());
        let mut new = old.clone();
        new["spec"]["attacher"] = "a".repeat(64).into();
        new["spec"]["nodeName"] = "N".into();
        let errors = strategy.validate_update(&context(&user, ""), &new, &old);
        let paths: Vec<String> = errors.iter().map(|error| error.path.to_string()).collect();
        assert_eq!(paths, ["spec.attacher", "spec.nodeName", "spec"]);
        assert_eq!(errors.iter().next().map(|error| &*error.detail), Some("may not be more than 63 bytes"));
    }

    #[test]
    fn what_drivers_tell_is_bounded() {
        let user = UserInfo::new("u", &[]);
        let strategy = VolumeAttachment(<Plain as Default>::default());
        let mut object = attachment(inline());
        object["status"] =
            json!({"attachmentMetadata": {"k": "v".repeat(256 * 1024)}, "attachError": {"message": "m".repeat(1025)}});
        for subresource in ["", "status"] {
            let errors = strategy.validate_update(&context(&user, subresource), &object, &object);
            assert_eq!(
                found(&errors),
                [
                    "status.attachmentMetadata: may not be more than 262144 bytes",
                    "status.attachError.message: may not be more than 1024 bytes",
                ],
                "{subresource:?}"
            );
        }
    }
}

//! The rules of volume sources that stand for storage elsewhere, as pods and PersistentVolumes name them.

use ferry_meta::{FieldErrors, names};

use crate::cursor::{Cursor, Report};

const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
const MANAGED: &str = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";

/// `shared` is set for the source of a PersistentVolume, whose secrets may be in any namespace.
pub fn validate(errors: &mut FieldErrors, key: &str, source: &Cursor<'_>, shared: bool) {
    match key {
        "iscsi" => iscsi(errors, source, shared),
        "flocker" => flocker(errors, source),
        "quobyte" => quobyte(errors, source),
        "azureDisk" => azure_disk(errors, source),
        "glusterfs" if shared => {
            if let Some(namespace) = source.raw("endpointsNamespace").as_str() {
                let path = source.at("endpointsNamespace");
                if namespace.is_empty() {
                    let detail = "if the endpointnamespace is set, it must be a valid namespace name";
                    errors.invalid(path, "", detail);
                } else {
                    errors.reasons(path, namespace, names::dns1123_label(namespace));
                }
            }
        }
        "cinder" => secret(errors, source, shared),
        "storageos" => {
            let (name, namespace) = (source.text("volumeName"), source.text("volumeNamespace"));
            for (field, text) in [("volumeName", name), ("volumeNamespace", namespace)] {
                if !text.is_empty() {
                    errors.reasons(source.at(field), text, names::dns1123_label(text));
                }
            }
            secret(errors, source, shared);
        }
        _ => {}
    }
}

/// A secret that is named must have a name, and where it may be anywhere a namespace.
fn secret(errors: &mut FieldErrors, source: &Cursor<'_>, shared: bool) {
    let secret = source.get("secretRef");
    let fields: &[&str] = if shared { &["name", "namespace"] } else { &["name"] };
    for field in fields.iter().filter(|field| secret.exists() && secret.text(field).is_empty()) {
        errors.required(secret.at(field), "");
    }
}

fn iscsi(errors: &mut FieldErrors, source: &Cursor<'_>, shared: bool) {
    const FORMS: &str = "must be valid format starting with iqn, eui, or naa";
    let name = source.text("iqn");
    if !name.is_empty() && !is_qualified(name) {
        let detail = if known_form(name) || shared { "must be valid format" } else { FORMS };
        errors.invalid(source.at("iqn"), name, detail);
    }
    let lun = source.number("lun");
    if !(0..=255).contains(&lun) {
        errors.invalid(source.at("lun"), lun, names::in_range(0, 255));
    }
    let secret = source.get("secretRef");
    if (source.is_true("chapAuthDiscovery") || source.is_true("chapAuthSession")) && !secret.exists() {
        errors.required(secret.path.clone(), "");
    }
    if shared && secret.exists() && secret.text("name").is_empty() {
        errors.required(secret.at("name"), "");
    }
    if let Some(name) = source.raw("initiatorName").as_str().filter(|name| !is_qualified(name)) {
        let detail = if known_form(name) || shared { "must be valid format" } else { FORMS };
        errors.invalid(source.at("initiatorname"), name, detail);
    }
}

fn known_form(name: &str) -> bool {
    ["iqn", "eui", "naa"].iter().any(|form| name.starts_with(form))
}

/// `iqn.YYYY-MM.domain:name`, or an identifier of a fixed length.
fn is_qualified(name: &str) -> bool {
    let fixed = |rest: &str, length: usize| {
        let mut rest = rest.chars();
        rest.next().is_some() && {
            let rest = rest.as_str();
            rest.len() == length && rest.chars().all(char::is_alphanumeric)
        }
    };
    match (name.get(..3), name.get(3..)) {
        (Some("eui"), Some(rest)) => fixed(rest, 16),
        (Some("naa"), Some(rest)) => fixed(rest, 32),
        (Some("iqn"), Some(rest)) => {
            let Some((date, rest)) = rest.strip_prefix('.').and_then(|rest| rest.split_once('.')) else { return false };
            let Some((domain, target)) = rest.split_once(':') else { return false };
            let digits = |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
            date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2))
                && !domain.is_empty()
                && domain.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
                && !target.is_empty()
                && !target.chars().any(|c| ",;*&$|".contains(c) || c.is_whitespace())
        }
        _ => false,
    }
}

fn flocker(errors: &mut FieldErrors, source: &Cursor<'_>) {
    let (name, id) = (source.text("datasetName"), source.text("datasetUUID"));
    if name.is_empty() && id.is_empty() {
        errors.required(source.path.clone(), "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !id.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.invalid(source.path.clone(), "resource", detail);
    }
    if name.contains('/') {
        errors.invalid(source.at("datasetName"), name, "must not contain '/'");
    }
}

fn quobyte(errors: &mut FieldErrors, source: &Cursor<'_>) {
    let registry = source.text("registry");
    if registry.is_empty() {
        errors.required(source.at("registry"), PAIRS);
    } else if source.text("tenant").len() > 64 {
        errors.required(source.at("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        let is_pair = |pair: &str| match pair.rsplit_once(':') {
            Some((host, _)) => !host.contains(':') || (host.starts_with('[') && host.ends_with(']')),
            None => false,
        };
        for _ in registry.split(',').filter(|pair| !is_pair(pair)) {
            errors.invalid(source.at("registry"), registry, PAIRS);
        }
    }
    if source.text("volume").is_empty() {
        errors.required(source.at("volume"), "");
    }
}

fn azure_disk(errors: &mut FieldErrors, source: &Cursor<'_>) {
    for (field, supported) in
        [("cachingMode", ["None", "ReadOnly", "ReadWrite"]), ("kind", ["Dedicated", "Managed", "Shared"])]
    {
        if let Some(text) = source.raw(field).as_str().filter(|text| !supported.contains(text)) {
            errors.unsupported(source.at(field), text, &supported);
        }
    }
    let uri = source.text("diskURI");
    let Some(kind) = source.raw("kind").as_str() else { return };
    let (start, form) = if kind == "Managed" { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    if !uri.starts_with(start) {
        errors.unsupported(source.at("diskURI"), uri, &[form]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn sources_are_checked_as_upstream_words_it() {
        let cases: [(&str, bool, Value, &[&str]); 8] = [
            ("iscsi", false, json!({"iqn": "iqn.2001-04.com.example:disk", "lun": 0}), &[]),
            (
                "iscsi",
                false,
                json!({"iqn": "x"}),
                &["iqn: Invalid value: \"x\": must be valid format starting with iqn, eui, or naa"],
            ),
            (
                "iscsi",
                false,
                json!({"iqn": "iqn.x", "chapAuthSession": true}),
                &["iqn: Invalid value: \"iqn.x\": must be valid format", "secretRef: Required value"],
            ),
            (
                "flocker",
                false,
                json!({"datasetName": "a/b"}),
                &["datasetName: Invalid value: \"a/b\": must not contain '/'"],
            ),
            (
                "quobyte",
                false,
                json!({"registry": "a:1,b", "volume": "v"}),
                &["registry: Invalid value: \"a:1,b\": must be a host:port pair or multiple pairs separated by commas"],
            ),
            ("azureDisk", false, json!({"kind": "Shared", "diskURI": "https://x"}), &[]),
            (
                "cinder",
                true,
                json!({"secretRef": {}}),
                &["secretRef.name: Required value", "secretRef.namespace: Required value"],
            ),
            ("storageos", false, json!({"volumeName": "v", "secretRef": {}}), &["secretRef.name: Required value"]),
        ];
        for (key, shared, source, want) in cases {
            let mut errors = FieldErrors::new();
            validate(&mut errors, key, &Cursor::root(&source), shared);
            let lines: Vec<String> = errors.iter().map(ferry_meta::FieldError::line).collect();
            assert_eq!(lines, want, "{key} {source}");
        }
    }
}

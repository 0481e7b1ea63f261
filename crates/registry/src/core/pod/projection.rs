//! The rules of projected volumes: several sources in one folder.

use std::collections::HashSet;

use ferry_meta::{FieldErrors, names};

use super::volume::{downward_file, key_to_path};
use crate::check;
use crate::cursor::{Cursor, Report};

pub fn sources(errors: &mut FieldErrors, projected: &Cursor<'_>) {
    let mut paths = Paths { seen: HashSet::new(), projected };
    for source in projected.items("sources") {
        let mut count = 0;
        for (key, rule) in RULES {
            let part = source.get(key);
            if part.exists() {
                count += 1;
                rule(errors, &part, &mut paths);
            }
        }
        if count > 1 {
            errors.forbidden(source.path.clone(), "may not specify more than 1 volume type per source");
        }
    }
}

type Rule = fn(&mut FieldErrors, &Cursor<'_>, &mut Paths<'_>);
const RULES: [(&str, Rule); 6] = [
    ("secret", keyed),
    ("configMap", keyed),
    ("downwardAPI", downward),
    ("serviceAccountToken", token),
    ("clusterTrustBundle", trust_bundle),
    ("podCertificate", certificate),
];

/// The files made so far: no two sources may write the same one.
struct Paths<'a> {
    seen: HashSet<String>,
    projected: &'a Cursor<'a>,
}

impl Paths<'_> {
    fn add(&mut self, errors: &mut FieldErrors, path: &str, shown: &str) {
        if !self.seen.insert(path.to_owned()) {
            errors.invalid(self.projected.path.clone(), shown, "conflicting duplicate paths");
        }
    }
}

fn keyed(errors: &mut FieldErrors, part: &Cursor<'_>, paths: &mut Paths<'_>) {
    if part.text("name").is_empty() {
        errors.required(part.at("name"), "");
    }
    for item in part.items("items") {
        key_to_path(errors, &item);
        if !item.text("path").is_empty() {
            paths.add(errors, item.text("path"), part.text("name"));
        }
    }
}

fn downward(errors: &mut FieldErrors, part: &Cursor<'_>, paths: &mut Paths<'_>) {
    for file in part.array("items") {
        let file = Cursor::new(file, part.path.clone());
        downward_file(errors, &file);
        if !file.text("path").is_empty() {
            paths.add(errors, file.text("path"), file.text("path"));
        }
    }
}

fn token(errors: &mut FieldErrors, part: &Cursor<'_>, paths: &mut Paths<'_>) {
    let path = || part.at("expirationSeconds");
    match part.int("expirationSeconds") {
        None => errors.required(path(), ""),
        Some(seconds) if seconds < 600 => {
            errors.invalid(path(), seconds, "may not specify a duration less than 10 minutes");
        }
        Some(seconds) if seconds > 1 << 32 => {
            errors.invalid(path(), seconds, "may not specify a duration larger than 2^32 seconds");
        }
        Some(_) => {}
    }
    // Upstream names the projected volume here, not the source.
    let file = paths.projected.at("path");
    match part.text("path") {
        "" => errors.required(file, ""),
        text => check::unreserved_path(errors, file, text),
    }
}

fn trust_bundle(errors: &mut FieldErrors, part: &Cursor<'_>, paths: &mut Paths<'_>) {
    match (part.raw("name").as_str(), part.raw("signerName").as_str()) {
        (Some(_), Some(_)) => {
            errors.invalid(part.path.clone(), part.value.clone(), "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            if name.is_empty() {
                errors.required(part.at("name"), "must be a valid object name");
            }
            let rest = name.rsplit_once(':').map_or(name, |(_, rest)| rest);
            for reason in names::dns1123_subdomain(rest).into_iter().filter(|_| !name.is_empty()) {
                let detail = format!("not a valid clustertrustbundlename: {reason}");
                errors.invalid(part.at("name"), name, detail);
            }
            if part.has("labelSelector") {
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid(part.at("labelSelector"), part.raw("labelSelector").clone(), detail);
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                errors.required(part.at("signerName"), "must be a valid signer name");
            }
            signer_name(errors, part, "signerName");
            check::label_selector(errors, &part.get("labelSelector"));
        }
        (None, None) => errors.required(part.path.clone(), "either name or signerName must be specified"),
    }
    let path = part.text("path");
    if path.is_empty() {
        errors.required(part.at("path"), "");
    }
    check::unreserved_path(errors, part.at("path"), path);
    paths.add(errors, path, path);
}

fn certificate(errors: &mut FieldErrors, part: &Cursor<'_>, paths: &mut Paths<'_>) {
    const KEYS: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    signer_name(errors, part, "signerName");
    for key in part.map("userAnnotations").keys() {
        crate::certificates::pod_request::user_annotation(errors, &part.at("userAnnotations"), key);
    }
    if !KEYS.contains(&part.text("keyType")) {
        errors.unsupported(part.at("keyType"), part.text("keyType"), &KEYS);
    }
    if let Some(seconds) = part.int("maxExpirationSeconds") {
        let limit = if part.text("signerName").starts_with("kubernetes.io/") { 86_400 } else { 7_862_400 };
        if seconds < 3600 {
            let detail = "if provided, maxExpirationSeconds must be >= 3600";
            errors.invalid(part.at("maxExpirationSeconds"), seconds, detail);
        }
        if seconds > limit {
            let detail = format!("if provided, maxExpirationSeconds must be <= {limit}");
            errors.invalid(part.at("maxExpirationSeconds"), seconds, detail);
        }
    }
    let mut count = 0;
    for key in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = part.text(key);
        if !path.is_empty() {
            count += 1;
            check::unreserved_path(errors, part.at(key), path);
            paths.add(errors, path, path);
        }
    }
    if count == 0 {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(part.path.clone(), detail);
    }
}

/// `domain/path`: the name of who signs certificates.
pub fn signer_name(errors: &mut FieldErrors, parent: &Cursor<'_>, key: &str) {
    let name = parent.text(key);
    let path = || parent.at(key);
    if name.is_empty() {
        return errors.required(path(), "");
    }
    let segments: Vec<&str> = name.split('/').collect();
    let [domain, rest] = segments[..] else {
        return errors.invalid(
            path(),
            name,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
    };
    if domain.len() > 253 {
        errors.push(ferry_meta::FieldError::too_long(&path(), 253));
    }
    labels(errors, &path(), domain, names::dns1123_label);
    if !domain.contains('.') {
        errors.invalid(path(), domain, "should be a domain with at least two segments separated by dots");
    }
    labels(errors, &path(), rest, names::dns1123_subdomain);
}

/// The first bad label of a dotted text tells enough.
fn labels(errors: &mut FieldErrors, path: &ferry_meta::Path, text: &str, check: fn(&str) -> Vec<String>) {
    for label in text.split('.') {
        let reasons = check(label);
        if !reasons.is_empty() {
            for reason in reasons {
                errors.invalid(path.clone(), text, format!("validating label \"{label}\": {reason}"));
            }
            return;
        }
    }
}

//! PodCertificateRequests: made by kubelets for their pods, answered once by a signer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::{FieldError, FieldErrors, names};
use serde_json::Value;

use crate::check;
use crate::core::pod::signer_name;
use crate::cursor::{Cursor, Report, default_to, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, subdomain_name};

pub struct PodCertificateRequest(pub Plain);

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const LARGEST: usize = 10 * 1024;
const SETTLED: [&str; 3] = ["Issued", "Denied", "Failed"];

impl Strategy for PodCertificateRequest {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        default_to(object_at(object, &["spec"]), "maxExpirationSeconds", DAY);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate(&mut errors, &Cursor::root(object).get("spec"));
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        if context.subresource == "status" {
            return status(&Cursor::root(object).get("status"), &Cursor::root(old).get("status"));
        }
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        if Some(spec.value) != old.get("spec") {
            let error = FieldError::invalid(&spec.path, spec.value.clone(), crate::cursor::IMMUTABLE);
            errors.push(error.shown_as(crate::internal::show("PodCertificateRequestSpec", spec.value)));
        }
        errors
    }

    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        if subresource.is_empty() { vec!["status"] } else { vec!["metadata", "spec"] }
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec!["spec.signerName", "spec.podName", "spec.nodeName"]
    }
}

fn validate(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    signer_name(errors, spec, "signerName");
    for key in spec.map("unverifiedUserAnnotations").keys() {
        user_annotation(errors, &spec.at("unverifiedUserAnnotations"), key);
    }
    for (name, uid) in [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")] {
        errors.reasons(spec.at(name), spec.text(name), subdomain_name(spec.text(name), false));
        let given = spec.text(uid);
        if given.is_empty() {
            errors.invalid(spec.at(uid), given, "must not be empty");
        }
        if given.len() > 128 {
            errors.push(FieldError::too_long(&spec.at(uid), 128));
        }
    }
    let Some(seconds) = spec.int("maxExpirationSeconds") else {
        return errors.required(spec.at("maxExpirationSeconds"), "must be set");
    };
    let own = spec
        .text("signerName")
        .split('/')
        .next()
        .is_some_and(|d| d == "kubernetes.io" || d.ends_with(".kubernetes.io"));
    let most = if own { DAY } else { 91 * DAY };
    if !(HOUR..=most).contains(&seconds) {
        errors.invalid(spec.at("maxExpirationSeconds"), seconds, format!("must be in the range [{HOUR}, {most}]"));
    }
    let given = |key: &str| !spec.text(key).is_empty();
    match (given("stubPKCS10Request"), given("pkixPublicKey"), given("proofOfPossession")) {
        (true, false, false) => stub(errors, spec),
        (false, true, true) => {
            for key in ["pkixPublicKey", "proofOfPossession"] {
                if decoded(spec.text(key)).len() > LARGEST {
                    return errors.push(FieldError::too_long(&spec.at(key), LARGEST));
                }
            }
        }
        _ => {
            let detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            errors.push(FieldError::invalid(&spec.path, Value::Null, detail).shown_as(""));
        }
    }
}

/// A key that a pod's author made up: of a domain, judged in small letters.
pub fn user_annotation(errors: &mut FieldErrors, path: &ferry_meta::Path, key: &str) {
    let lower = key.to_lowercase();
    let reasons = names::label_key(&lower);
    if reasons.is_empty() && !key.contains('/') {
        errors.invalid(path.clone(), &*lower, "must be a domain-prefixed key (such as \"acme.io/foo\")");
    }
    errors.reasons(path.clone(), &lower, reasons);
}

fn decoded(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap_or_default()
}

fn stub(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let path = spec.at("stubPKCS10Request");
    let bytes = decoded(spec.text("stubPKCS10Request"));
    if bytes.len() > LARGEST {
        return errors.push(FieldError::too_long(&path, LARGEST));
    }
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(&path, Value::Null, detail).shown_as(""));
    match ferry_x509::Request::from_der(bytes) {
        Ok(request) if request.is_signed_by_its_key() => {}
        Ok(_) => refuse("invalid signature"),
        Err(_) => refuse("must be a valid PKCS#10 CSR"),
    }
}

fn settled(status: &Cursor<'_>) -> Option<&'static str> {
    let conditions = status.items("conditions");
    SETTLED.into_iter().find(|kind| conditions.iter().any(|c| c.text("type") == *kind && c.text("status") == "True"))
}

fn status(new: &Cursor<'_>, old: &Cursor<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut known = 0;
    for (index, condition) in new.items("conditions").into_iter().enumerate() {
        let kind = condition.text("type");
        if !SETTLED.contains(&kind) {
            // Upstream puts the index where a field would stand.
            let path = new.at("conditions").child(&format!("[{index}]")).child("type");
            errors.unsupported(path, kind, &SETTLED);
            continue;
        }
        known += 1;
        if known > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid(condition.at("type"), kind, detail);
        }
        if condition.text("status") != "True" {
            errors.unsupported(condition.at("status"), condition.text("status"), &["True"]);
        }
    }
    check::conditions(&mut errors, new, "conditions");
    if !errors.is_empty() {
        return errors;
    }
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(&new.path, Value::Null, detail).shown_as(""));
    let others = |status: &Cursor<'_>| {
        let mut map = status.value.as_object().cloned().unwrap_or_default();
        map.remove("conditions");
        map
    };
    if settled(old).is_some() {
        if new.value != old.value {
            refuse("immutable after PodCertificateRequest is issued, denied, or failed");
        }
        return errors;
    }
    match settled(new) {
        Some("Issued") => issued(&mut errors, new),
        Some(_) if !others(new).is_empty() => {
            refuse("non-condition status fields must be empty when denying or failing the PodCertificateRequest");
        }
        Some(_) => {}
        None if new.value != old.value => {
            refuse("status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"");
        }
        None => {}
    }
    errors
}

fn issued(errors: &mut FieldErrors, status: &Cursor<'_>) {
    const LONGEST: usize = 100 * 1024;
    let (path, chain) = (status.at("certificateChain"), status.text("certificateChain"));
    if chain.len() > LONGEST {
        return errors.push(FieldError::too_long(&path, LONGEST));
    }
    let mut blocks = x509_parser::pem::Pem::iter_from_buffer(chain.as_bytes()).map_while(Result::ok);
    let why = match blocks.next() {
        None => Some("issued certificate chain must contain at least one certificate"),
        Some(leaf) if leaf.label != "CERTIFICATE" => {
            Some("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
        }
        Some(leaf) if leaf.parse_x509().is_err() => Some("leaf certificate does not parse as valid X.509"),
        Some(_) => None,
    };
    if let Some(why) = why {
        return errors.invalid(path, chain, why);
    }
    for key in ["notBefore", "notAfter"] {
        if !status.has(key) {
            errors.required(status.at(key), "must be present and consistent with the issued certificate");
        }
    }
    if !status.has("beginRefreshAt") {
        let detail = "must be present and in the range [notbefore+10min, notafter-10min]";
        errors.required(status.at("beginRefreshAt"), detail);
    }
}

//! PodCertificateRequests: made by kubelets for their pods, answered once by a signer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::{FieldError, FieldErrors, Path, names, time};
use ferry_x509::{KeyKind, PublicKey};
use serde_json::Value;

use super::issued;
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
            return status(&Cursor::root(object), &Cursor::root(old));
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
        (false, true, true) => proven(errors, spec),
        _ => {
            let detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            errors.push(FieldError::invalid(&spec.path, Value::Null, detail).shown_as(""));
        }
    }
}

/// A key that a pod's author made up: of a domain, judged in small letters.
pub fn user_annotation(errors: &mut FieldErrors, path: &Path, key: &str) {
    if key.is_empty() {
        return errors.required(path.clone(), "");
    }
    let lower = key.to_lowercase();
    let reasons = names::label_key(&lower);
    if reasons.is_empty() && !key.contains('/') {
        errors.invalid(path.clone(), &*lower, "must be a domain-prefixed key (such as \"acme.io/foo\")");
    }
    errors.reasons(path.clone(), &lower, reasons);
}

pub(super) fn decoded(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap_or_default()
}

fn stub(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let path = spec.at("stubPKCS10Request");
    let bytes = decoded(spec.text("stubPKCS10Request"));
    if bytes.len() > LARGEST {
        return errors.push(FieldError::too_long(&path, LARGEST));
    }
    let mut refuse = |detail: &str| errors.push(unshown(&path, detail));
    let read = ferry_x509::Request::from_der(bytes).and_then(|request| Ok((request.key()?.kind, request)));
    let Ok((kind, request)) = read else { return refuse("must be a valid PKCS#10 CSR") };
    match kind {
        KeyKind::Other => refuse("unknown public key type; supported types are Ed25519, ECDSA, and RSA"),
        kind if !strong(errors, &path, kind, "elliptic public keys must use curve P256, P384, or P521") => {}
        _ if !request.is_signed_by_its_key() => errors.push(unshown(&path, "invalid signature")),
        _ => {}
    }
}

/// Whether a key is one that may be certified.
fn strong(errors: &mut FieldErrors, path: &Path, kind: KeyKind, curves: &str) -> bool {
    match kind {
        KeyKind::Elliptic("P-224") => errors.invalid(path.clone(), "curve P-224", curves),
        KeyKind::Rsa(bits) if bits != 3072 && bits != 4096 => {
            let detail = "RSA keys must have modulus size 3072 or 4096";
            errors.invalid(path.clone(), format!("{bits}-bit modulus"), detail);
        }
        _ => return true,
    }
    false
}

/// The older way to ask: a key, and the pod's uid signed with its other half.
fn proven(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    for key in ["pkixPublicKey", "proofOfPossession"] {
        if decoded(spec.text(key)).len() > LARGEST {
            return errors.push(FieldError::too_long(&spec.at(key), LARGEST));
        }
    }
    let (path, shown) = (spec.at("pkixPublicKey"), spec.text("pkixPublicKey"));
    let Ok(key) = PublicKey::from_der(&decoded(shown)) else {
        return errors.invalid(path, shown, "must be a valid PKIX-serialized public key");
    };
    if key.kind == KeyKind::Other {
        let detail = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
        return errors.invalid(path, shown, detail);
    }
    let sound = strong(errors, &path, key.kind, "elliptic public keys must use curve P256 or P384");
    if sound && !key.verifies(spec.text("podUID").as_bytes(), &decoded(spec.text("proofOfPossession"))) {
        errors.push(unshown(&spec.at("proofOfPossession"), "could not verify proof-of-possession signature"));
    }
}

/// An error that shows no value.
fn unshown(path: &Path, detail: &str) -> FieldError {
    FieldError::invalid(path, Value::Null, detail).shown_as("")
}

fn settled(status: &Cursor<'_>) -> Option<&'static str> {
    let conditions = status.items("conditions");
    SETTLED.into_iter().find(|kind| conditions.iter().any(|c| c.text("type") == *kind && c.text("status") == "True"))
}

fn status(request: &Cursor<'_>, was: &Cursor<'_>) -> FieldErrors {
    let (new, old) = (request.get("status"), was.get("status"));
    let mut errors = FieldErrors::new();
    let mut known = 0;
    for (index, condition) in new.items("conditions").into_iter().enumerate() {
        let kind = condition.text("type");
        // Upstream puts the index where a field would stand.
        let path = |key: &str| new.at("conditions").child(&format!("[{index}]")).child(key);
        if !SETTLED.contains(&kind) {
            errors.unsupported(path("type"), kind, &SETTLED);
            continue;
        }
        known += 1;
        if known > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid(path("type"), kind, detail);
        }
        if condition.text("status") != "True" {
            errors.unsupported(path("status"), condition.text("status"), &["True"]);
        }
    }
    check::conditions(&mut errors, &new, "conditions");
    if !errors.is_empty() {
        return errors;
    }
    let mut refuse = |detail: &str| errors.push(unshown(&new.path, detail));
    let others = |status: &Cursor<'_>| {
        let mut map = status.value.as_object().cloned().unwrap_or_default();
        map.remove("conditions");
        map
    };
    if settled(&old).is_some() {
        if new.value != old.value {
            refuse("immutable after PodCertificateRequest is issued, denied, or failed");
        }
        return errors;
    }
    match settled(&new) {
        Some("Issued") => issued::check(&mut errors, &new, &was.get("spec"), time::now()),
        Some(_) if !others(&new).is_empty() => {
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

#[cfg(test)]
mod tests {
    use rcgen::{
        CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P521_SHA512, PKCS_ED25519, PublicKeyData,
    };
    use serde_json::json;

    use super::*;

    fn found(spec: Value) -> Vec<String> {
        let mut spec = spec;
        for (key, value) in [("signerName", json!("example.com/a")), ("maxExpirationSeconds", json!(3600))] {
            spec[key] = value;
        }
        for key in ["pod", "serviceAccount", "node"] {
            spec[format!("{key}Name")] = "n".into();
            spec[format!("{key}UID")] = "u".into();
        }
        let mut errors = FieldErrors::new();
        validate(&mut errors, &Cursor::new(&spec, Path::new("spec")));
        errors.iter().map(|error| format!("{}: {}", error.path, error.detail)).collect()
    }

    #[test]
    fn who_asks_holds_the_key() {
        for algorithm in [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P521_SHA512] {
            let pair = KeyPair::generate_for(algorithm).expect("a key");
            let request = CertificateParams::default().serialize_request(&pair).expect("a request");
            let mut der = request.der().to_vec();
            assert_eq!(found(json!({"stubPKCS10Request": STANDARD.encode(&der)})), [] as [String; 0]);
            *der.last_mut().expect("bytes") ^= 1;
            assert_eq!(
                found(json!({"stubPKCS10Request": STANDARD.encode(&der)})),
                ["spec.stubPKCS10Request: invalid signature"]
            );
        }
        assert_eq!(
            found(json!({"stubPKCS10Request": STANDARD.encode("none")})),
            ["spec.stubPKCS10Request: must be a valid PKCS#10 CSR"]
        );
        let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let key = STANDARD.encode(pair.subject_public_key_info());
        let proof =
            |message: &str| STANDARD.encode(rcgen::SigningKey::sign(&pair, message.as_bytes()).expect("a signature"));
        assert_eq!(found(json!({"pkixPublicKey": key, "proofOfPossession": proof("u")})), [] as [String; 0]);
        assert_eq!(
            found(json!({"pkixPublicKey": key, "proofOfPossession": proof("another")})),
            ["spec.proofOfPossession: could not verify proof-of-possession signature"]
        );
        assert_eq!(
            found(json!({"pkixPublicKey": STANDARD.encode("none"), "proofOfPossession": proof("u")})),
            ["spec.pkixPublicKey: must be a valid PKIX-serialized public key"]
        );
    }

    #[test]
    fn annotations_of_users_have_keys_of_a_domain() {
        for (key, wanted) in [
            ("acme.io/foo", ""),
            ("ACME.io/Foo", ""),
            ("", "Required value"),
            ("foo", "Invalid value: \"foo\": must be a domain-prefixed key (such as \"acme.io/foo\")"),
        ] {
            let mut errors = FieldErrors::new();
            user_annotation(&mut errors, &Path::new("a"), key);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "), wanted, "{key:?}");
        }
    }

    #[test]
    fn weak_keys_are_not_certified() {
        let mut errors = FieldErrors::new();
        let path = Path::new("p");
        for kind in [KeyKind::Ed25519, KeyKind::Elliptic("P-521"), KeyKind::Rsa(3072), KeyKind::Rsa(4096)] {
            assert!(strong(&mut errors, &path, kind, "curves"));
        }
        for kind in [KeyKind::Elliptic("P-224"), KeyKind::Rsa(2048), KeyKind::Rsa(8192)] {
            assert!(!strong(&mut errors, &path, kind, "curves"));
        }
        assert_eq!(errors.len(), 3);
    }
}

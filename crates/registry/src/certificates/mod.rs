//! The group certificates.k8s.io.

mod issued;
pub mod pod_request;
pub mod trust_bundle;

use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::field::quote;
use ferry_meta::{FieldErrors, object};
use ferry_x509::Certificate;
use jiff::Timestamp;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::cells;
use crate::core::pod::signer_name;
use crate::cursor::{Cursor, Report, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct CertificateSigningRequest(pub Plain);

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Why bytes are no certificate request that this signer could judge.
fn why_no_request(encoded: &str, signer: &str) -> Option<String> {
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    let judged = ferry_x509::Request::from_pem(&bytes).and_then(|request| {
        request.check_signature()?;
        // Other signers have their own idea of a name.
        if signer.starts_with("kubernetes.io/") { request.common_name().map(drop) } else { Ok(()) }
    });
    judged.err().map(|why| why.to_string())
}

fn validate(errors: &mut FieldErrors, request: &Cursor<'_>) {
    let spec = request.get("spec");
    if let Some(reason) = why_no_request(spec.text("request"), spec.text("signerName")) {
        errors.invalid(spec.at("request"), spec.raw("request").clone(), reason);
    }
    let usages = spec.items("usages");
    if usages.is_empty() {
        errors.required(spec.at("usages"), "");
    }
    for usage in usages.iter().filter(|usage| !USAGES.contains(&usage.as_text())) {
        errors.unsupported(usage.path.clone(), usage.as_text(), &USAGES);
    }
    let mut seen = HashSet::new();
    for usage in usages.iter().filter(|usage| !seen.insert(usage.value)) {
        errors.duplicate(usage.path.clone(), usage.as_text());
    }
    if spec.text("signerName") == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.invalid(spec.at("signerName"), spec.text("signerName"), detail);
    } else {
        signer_name(errors, &spec, "signerName");
    }
    if let Some(seconds) = spec.int("expirationSeconds").filter(|seconds| *seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(spec.at("expirationSeconds"), seconds, detail);
    }
    conditions(errors, &request.get("status"));
}

fn conditions(errors: &mut FieldErrors, status: &Cursor<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for condition in status.items("conditions") {
        let kind = condition.text("type");
        if kind.is_empty() {
            errors.required(condition.at("type"), "");
        }
        let settled = ["Approved", "Denied", "Failed"].contains(&kind);
        let allowed: &[&str] = if settled { &["True"] } else { &["False", "True", "Unknown"] };
        errors.one_of(condition.at("status"), condition.text("status"), allowed);
        if seen.contains(&kind) {
            errors.duplicate(condition.at("type"), kind);
        }
        seen.insert(kind);
    }
}

/// A request is approved or denied, not both. Told after everything else.
fn one_verdict(errors: &mut FieldErrors, request: &Cursor<'_>) {
    let verdicts = ["Approved", "Denied"];
    if verdicts.iter().all(|kind| !of_type(request, kind).is_empty()) {
        let [approved, denied] = verdicts.map(|kind| format!("conditions[{{\"type\": \"{kind}\"}}]"));
        let detail = format!("must specify at most one of: `{approved}`, `{denied}`");
        errors.invalid(request.at("status").child("conditions"), format!("{{{approved}, {denied}}}"), detail);
    }
}

/// Whether an issued certificate is at least one block of PEM that holds a certificate.
fn certificates_in(encoded: &str) -> Result<(), String> {
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    let blocks = ferry_x509::pem::blocks(&String::from_utf8_lossy(&bytes));
    for block in &blocks {
        if block.label != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {}", quote(&block.label)));
        }
        if block.headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if block.contents.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        // A block may hold several, one behind the other, and nothing else.
        let mut rest = block.contents.as_slice();
        while !rest.is_empty() {
            Certificate::from_der(rest).map_err(|why| why.to_string())?;
            (rest, _) = X509Certificate::from_der(rest).map_err(|why| format!("x509: {why}"))?;
        }
    }
    if blocks.is_empty() { Err("must contain at least one CERTIFICATE PEM block".to_owned()) } else { Ok(()) }
}

fn of_type(request: &Cursor<'_>, kind: &str) -> Vec<Value> {
    let list = request.get("status");
    list.array("conditions").iter().filter(|c| c["type"].as_str() == Some(kind)).cloned().collect()
}

impl Strategy for CertificateSigningRequest {
    fn plain(&self) -> &Plain {
        &self.0
    }

    /// Who asks is what the server knows, not what the request says.
    fn prepare_create(&self, context: &Context<'_>, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), json!({}));
        }
        let spec = object_at(object, &["spec"]);
        spec.insert("username".into(), context.user.name.as_str().into());
        spec.insert("uid".into(), context.user.uid.as_str().into());
        spec.insert("groups".into(), json!(context.user.groups));
        spec.insert("extra".into(), json!(context.user.extra));
        for key in ["uid", "groups", "extra"] {
            let empty = match spec.get(key) {
                Some(Value::String(text)) => text.is_empty(),
                Some(Value::Array(list)) => list.is_empty(),
                Some(Value::Object(map)) => map.is_empty(),
                _ => true,
            };
            if empty {
                spec.remove(key);
            }
        }
    }

    /// The request is what it is from the first: no manager owns it.
    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        if subresource.is_empty() { vec!["spec", "status"] } else { vec!["spec"] }
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::keep(object, old, "spec");
        if context.subresource.is_empty() {
            common::keep(object, old, "status");
        }
        if context.subresource == "approval" {
            // Only the conditions are the approver's.
            let given = object.pointer("/status/conditions").cloned();
            common::keep(object, old, "status");
            let status = object_at(object, &["status"]);
            match given {
                Some(conditions) => status.insert("conditions".into(), conditions),
                None => status.remove("conditions"),
            };
        }
        if !context.subresource.is_empty() {
            stamp_conditions(object, old);
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate(&mut errors, &Cursor::root(object));
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        validate(&mut errors, &new);
        let path = new.at("status").child("conditions");
        for kind in ["Approved", "Denied", "Failed"] {
            if of_type(&new, kind).len() < of_type(&old, kind).len() {
                errors.forbidden(path.clone(), format!("updates may not remove a condition of type {kind:?}"));
            }
        }
        if context.subresource != "approval" {
            for kind in ["Approved", "Denied"] {
                let (now, before) = (of_type(&new, kind), of_type(&old, kind));
                if now.len() > before.len() {
                    errors.forbidden(path.clone(), format!("updates may not add a condition of type {kind:?}"));
                } else if now.len() == before.len() && now != before {
                    errors.forbidden(path.clone(), format!("updates may not modify a condition of type {kind:?}"));
                }
            }
        }
        let (now, before) = (new.get("status").text("certificate"), old.get("status").text("certificate"));
        if now != before {
            let path = new.at("status").child("certificate");
            if context.subresource != "status" {
                errors.forbidden(path, "updates may not set certificate content");
            } else if !before.is_empty() {
                errors.forbidden(path, "updates may not modify existing certificate content");
            } else if let Err(detail) = certificates_in(now) {
                errors.invalid(path, "<certificate data>", detail);
            }
        }
        one_verdict(&mut errors, &new);
        errors
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec!["spec.signerName"]
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let request = Cursor::root(object);
        let spec = request.get("spec");
        let has = |kind: &str| !of_type(&request, kind).is_empty();
        let mut state = match (has("Denied"), has("Approved")) {
            (true, _) => "Denied",
            (false, true) => "Approved",
            (false, false) => "Pending",
        }
        .to_owned();
        if has("Failed") {
            state += ",Failed";
        }
        if !request.get("status").text("certificate").is_empty() {
            state += ",Issued";
        }
        vec![
            object::name(object).into(),
            cells::age(object, now).into(),
            cells::none_if_empty(spec.text("signerName").to_owned()).into(),
            spec.text("username").into(),
            spec.int("expirationSeconds").map_or("<none>".to_owned(), cells::human_duration).into(),
            state.into(),
        ]
    }
}

/// New conditions are stamped with the time they were seen.
fn stamp_conditions(object: &mut Value, old: &Value) {
    let now = ferry_meta::time::time(ferry_meta::time::now());
    let mut before: HashMap<Option<&Value>, &Value> = HashMap::new();
    for condition in object::items(old, "/status/conditions") {
        before.entry(condition.get("type")).or_insert(condition);
    }
    for condition in crate::cursor::maps_mut(object_at(object, &["status"]), "conditions") {
        let was = before.get(&condition.get("type")).copied();
        if condition.get("lastUpdateTime").is_none_or(Value::is_null) {
            condition.insert("lastUpdateTime".into(), now.as_str().into());
        }
        if condition.get("lastTransitionTime").is_none_or(Value::is_null) {
            let same = was.filter(|was| was.get("status") == condition.get("status"));
            let time = same.and_then(|was| was.get("lastTransitionTime")).filter(|t| !t.is_null()).cloned();
            condition.insert("lastTransitionTime".into(), time.unwrap_or_else(|| now.as_str().into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn request(der: &[u8]) -> Value {
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            STANDARD.encode(der)
        );
        json!({"spec": {"request": STANDARD.encode(pem), "signerName": "example.com/a", "usages": ["client auth"]}})
    }

    fn found(errors: &FieldErrors) -> Vec<String> {
        errors.iter().map(|error| format!("{}: {}", error.path, error.detail)).collect()
    }

    #[test]
    fn nobody_asks_for_the_key_of_somebody_else() {
        let pair = KeyPair::generate().expect("a key");
        let mut der = CertificateParams::default().serialize_request(&pair).expect("a request").der().to_vec();
        let mut errors = FieldErrors::new();
        validate(&mut errors, &Cursor::root(&request(&der)));
        assert_eq!(found(&errors), [] as [String; 0]);
        *der.last_mut().expect("bytes") ^= 1;
        validate(&mut errors, &Cursor::root(&request(&der)));
        assert_eq!(found(&errors), ["spec.request: x509: ECDSA verification failure"]);
    }

    #[test]
    fn nothing_stands_behind_the_certificates_of_a_block() {
        let pair = KeyPair::generate().expect("a key");
        let own = CertificateParams::default().self_signed(&pair).expect("a certificate").der().to_vec();
        let of = |parts: &[&[u8]]| {
            let body = STANDARD.encode(parts.concat());
            certificates_in(
                &STANDARD.encode(format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")),
            )
        };
        assert_eq!((of(&[&own]), of(&[&own, &own])), (Ok(()), Ok(())));
        assert!(of(&[&own, b"more"]).is_err() && of(&[&own, &own[..99]]).is_err());
    }

    /// Who may write the status, or the request, does not thereby rewrite who approved it and why.
    #[test]
    fn an_approval_is_changed_by_approval_alone() {
        let user = UserInfo::new("u", &[]);
        let strategy = CertificateSigningRequest(<Plain as Default>::default());
        let pair = KeyPair::generate().expect("a key");
        let der = CertificateParams::default().serialize_request(&pair).expect("a request").der().to_vec();
        let mut old = request(&der);
        old["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "one"}]});
        let mut new = old.clone();
        new["status"]["conditions"][0]["reason"] = "another".into();
        for (subresource, wanted) in [
            ("", vec!["status.conditions: updates may not modify a condition of type \"Approved\""]),
            ("status", vec!["status.conditions: updates may not modify a condition of type \"Approved\""]),
            ("approval", vec![]),
        ] {
            let context = Context { user: &user, subresource, dry_run: false, patch: false, reader: None };
            assert_eq!(found(&strategy.validate_update(&context, &new, &old)), wanted, "{subresource}");
        }
    }
}

//! ClusterTrustBundles: the certificate authorities that a signer's certificates are checked against.

use ferry_meta::{FieldError, FieldErrors};
use ferry_x509::pem::{self, Block};
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::core::pod::signer_name;
use crate::cursor::{Cursor, IMMUTABLE, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, subdomain_name};

pub struct ClusterTrustBundle(pub Plain);

const LARGEST: usize = 1024 * 1024;
const OMITTED: &str = "<value omitted>";

/// A bundle of a signer is named after it, one without a signer never looks as if it had one.
fn validate_name(errors: &mut FieldErrors, bundle: &Cursor<'_>) {
    let metadata = bundle.get("metadata");
    let (name, signer) = (metadata.text("name"), bundle.get("spec").text("signerName"));
    let generated = metadata.text("generateName");
    let path = metadata.at("name");
    if signer.is_empty() {
        if name.is_empty() {
        } else if name.contains(':') {
            errors.invalid(path, name, "ClusterTrustBundle without signer name must not have \":\" in its name");
        } else {
            errors.reasons(path, name, subdomain_name(name, false));
        }
        return;
    }
    let prefix = signer.replace('/', ":") + ":";
    if !generated.is_empty() && !generated.starts_with(&prefix) {
        let detail = format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}");
        errors.invalid(bundle.at("metadata").child("generateName"), generated, detail);
    }
    match name.strip_prefix(&prefix) {
        None if name.is_empty() => {}
        None => {
            let detail = format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}");
            errors.invalid(path, name, detail);
        }
        Some(rest) => errors.reasons(path, name, subdomain_name(rest, false)),
    }
}

fn validate_anchors(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let (path, text) = (spec.at("trustBundle"), spec.text("trustBundle"));
    if text.len() > LARGEST {
        errors.push(FieldError::too_long(&path, LARGEST));
        return;
    }
    let mut anchors: Vec<Vec<u8>> = Vec::new();
    let mut bad = false;
    for (index, block) in pem::blocks(text).into_iter().enumerate() {
        match why_no_anchor(&block) {
            None => anchors.push(block.contents),
            Some(reason) => {
                bad = true;
                errors.invalid(path.clone(), OMITTED, format!("entry {index} {reason}"));
            }
        }
    }
    if bad {
        return;
    }
    if anchors.is_empty() {
        errors.invalid(path.clone(), OMITTED, "at least one trust anchor must be provided");
    }
    for (index, anchor) in anchors.iter().enumerate() {
        let same: Vec<usize> = (0..anchors.len()).filter(|other| anchors[*other] == *anchor).collect();
        if same.len() > 1 && same[0] == index {
            let shown: Vec<String> = same.iter().map(usize::to_string).collect();
            errors.invalid(path.clone(), OMITTED, format!("duplicate trust anchor (indices [{}])", shown.join(" ")));
        }
    }
}

fn why_no_anchor(block: &Block) -> Option<String> {
    if block.label != "CERTIFICATE" {
        return Some(format!("has bad block type: {}", block.label));
    }
    if block.headers {
        return Some("has PEM block headers".to_owned());
    }
    let Ok((b"", certificate)) = X509Certificate::from_der(&block.contents) else {
        return Some("does not parse as X.509".to_owned());
    };
    let is_authority = matches!(certificate.basic_constraints(), Ok(Some(constraints)) if constraints.value.ca);
    (!is_authority).then(|| "does not have the CA bit set".to_owned())
}

fn validate(errors: &mut FieldErrors, bundle: &Cursor<'_>, old: Option<&Cursor<'_>>) {
    validate_name(errors, bundle);
    errors.extend(crate::object_meta::kube_finalizers(bundle.value));
    let spec = bundle.get("spec");
    if !spec.text("signerName").is_empty() {
        signer_name(errors, &spec, "signerName");
    }
    // What is not changed is not read again: a newer parser may be stricter.
    if old.is_none_or(|old| old.get("spec").text("trustBundle") != spec.text("trustBundle")) {
        validate_anchors(errors, &spec);
    }
}

impl Strategy for ClusterTrustBundle {
    fn plain(&self) -> &Plain {
        &self.0
    }

    /// The rest depends on the signer, so that it is judged with the whole object.
    fn validate_name(&self, _name: &str, _prefix: bool) -> Vec<String> {
        Vec::new()
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate(&mut errors, &Cursor::root(object), None);
        errors
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        validate(&mut errors, &new, Some(&old));
        let spec = new.get("spec");
        if spec.text("signerName") != old.get("spec").text("signerName") {
            errors.invalid(spec.at("signerName"), spec.text("signerName"), IMMUTABLE);
        }
        errors
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec!["spec.signerName"]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nMIIBbzCCARWgAwIBAgIUVJBpoZ2TZ3v150fdcO8KP0JLxNgwCgYIKoZIzj0EAwIw\nDDEKMAgGA1UEAwwBYTAgFw0yNjExMTUxMjQ0MThaGA8yMTI2MTAyMjEyNDQxOFow\nDDEKMAgGA1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOhV+Me5Lceo\nyxHFhFHKnbt7PmZMNdAcycwWq3hsqwSlqBTVBNsen+LHX0Gq/6rENinw9ewCU1eD\nuqDrHj4SrY+jUzBRMB0GA1UdDgQWBBTqadTaN00z4m5vhCWglvsqBDWaPzAfBgNV\nHSMEGDAWgBTqadTaN00z4m5vhCWglvsqBDWaPzAPBgNVHRMBAf8EBTADAQH/MAoG\nCCqGSM49BAMCA0gAMEUCIFMKvABX3k+aP19RzNiLUiTRX3WnZZAQU8nCeg5E8k+R\nAiEA4FUPICvarezuihGEM8nlc5Vu3fIrI+ALCwwsgUr2I68=\n-----END CERTIFICATE-----";
    const LEAF: &str = "-----BEGIN CERTIFICATE-----\nMIIBazCCARKgAwIBAgIUdyePQPf2ZC6yUbjNRdQTxD38Xt0wCgYIKoZIzj0EAwIw\nDDEKMAgGA1UEAwwBYjAgFw0yNjExMTUxMjQ0MThaGA8yMTI2MTAyMjEyNDQxOFow\nDDEKMAgGA1UEAwwBYjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBLFsXnK5YFm\nx7CV3kFIq3irdUEe+1DZYHrW8rYyPfSLVRbz0PH+LxpUZi148vZsYQy3o28kfWqx\nVQKVz5hPOZ+jUDBOMB0GA1UdDgQWBBSIzMn3Zi7VDZ1MP71kUMZJHzpFszAfBgNV\nHSMEGDAWgBSIzMn3Zi7VDZ1MP71kUMZJHzpFszAMBgNVHRMBAf8EAjAAMAoGCCqG\nSM49BAMCA0cAMEQCIGCuezrL4hY8OSQUDPO70cQV5Ob8g7kdcE0NCfA2uVeQAiBO\n1UcUdnjOapu6N/l7kZuzaAc78s18vAwWJpIRnUv1nA==\n-----END CERTIFICATE-----";

    #[test]
    fn a_bundle_holds_authorities_and_is_named_after_its_signer() {
        let twice = format!("{AUTHORITY}\n{AUTHORITY}");
        let headed = AUTHORITY.replacen('\n', "\nKey: value\n\n", 1);
        // What is no block does not hide those behind it.
        let behind = format!("-----BEGIN CERTIFICATE-----\nno base64!\n-----END CERTIFICATE-----\n{LEAF}");
        for (name, signer, bundle, want) in [
            ("plain", "", AUTHORITY, vec![]),
            ("test.test:signer:0", "test.test/signer", AUTHORITY, vec![]),
            ("a:b", "", AUTHORITY, vec!["must not have"]),
            ("other:0", "test.test/signer", AUTHORITY, vec!["must be named with prefix test.test:signer:"]),
            ("test.test:signer:A", "test.test/signer", AUTHORITY, vec!["RFC 1123"]),
            ("plain", "", LEAF, vec!["entry 0 does not have the CA bit set"]),
            ("plain", "", "none", vec!["at least one trust anchor"]),
            ("plain", "", &headed, vec!["entry 0 has PEM block headers"]),
            ("plain", "", &behind, vec!["entry 0 does not have the CA bit set"]),
            ("plain", "", &twice, vec!["duplicate trust anchor (indices [0 1])"]),
        ] {
            let object = json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": bundle}});
            let mut errors = FieldErrors::new();
            validate(&mut errors, &Cursor::root(&object), None);
            let lines: Vec<String> = errors.iter().map(|error| error.line()).collect();
            assert_eq!(lines.len(), want.len(), "{name} {signer}: {lines:?}");
            assert!(lines.iter().zip(&want).all(|(line, want)| line.contains(want)), "{lines:?} {want:?}");
        }
    }
}

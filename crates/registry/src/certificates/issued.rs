//! What a signer may put into a PodCertificateRequest: a certificate for the key that was asked for, of a sound lifetime.

use ferry_meta::{FieldError, FieldErrors, time};
use ferry_x509::{Certificate, KeyKind, PublicKey, Request, pem};
use jiff::Timestamp;
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::pod_request::decoded;
use crate::cursor::{Cursor, Report};

const LONGEST: usize = 100 * 1024;
const MINUTE: i64 = 60;
const NANOS: i64 = 1_000_000_000;

pub(super) fn check(errors: &mut FieldErrors, status: &Cursor<'_>, spec: &Cursor<'_>, now: Timestamp) {
    let (path, chain) = (status.at("certificateChain"), status.text("certificateChain"));
    if chain.len() > LONGEST {
        return errors.push(FieldError::too_long(&path, LONGEST));
    }
    let mut blocks = pem::blocks(chain).into_iter();
    let mut refuse = |why: &str| errors.invalid(path.clone(), chain, why);
    let Some(block) = blocks.next() else {
        return refuse("issued certificate chain must contain at least one certificate");
    };
    if block.label != "CERTIFICATE" {
        return refuse("issued certificate chain must consist entirely of CERTIFICATE PEM blocks");
    }
    let read = Certificate::from_der(&block.contents);
    let read = read.and_then(|leaf| Ok((leaf, PublicKey::of_certificate(&block.contents)?)));
    let Some((leaf, key)) = read.ok().filter(|_| is_certificate(&block.contents)) else {
        return refuse("leaf certificate does not parse as valid X.509");
    };
    names(errors, status, &leaf);
    let wanted = match spec.text("stubPKCS10Request") {
        "" => PublicKey::from_der(&decoded(spec.text("pkixPublicKey")))
            .map_err(|_| ("pkixPublicKey", "must be a valid PKIX-serialized public key")),
        stub => Request::from_der(decoded(stub))
            .and_then(|request| request.key())
            .map_err(|_| ("stubPKCS10Request", "must be a valid PKCS#10 CSR")),
    };
    match wanted {
        Err((key, detail)) => {
            return errors.push(FieldError::invalid(&spec.at(key), Value::Null, detail).shown_as(""));
        }
        Ok(wanted) if wanted.kind != KeyKind::Other && wanted != key => {
            return errors.invalid(path, chain, "leaf certificate was not issued to the requested public key");
        }
        Ok(_) => {}
    }
    if !times(errors, status, spec, &leaf, now) {
        return;
    }
    for block in blocks {
        let why = if block.label != "CERTIFICATE" {
            // The word is upstream's.
            "issued certificate chain must consist entirely of CERTFICATE PEM blocks"
        } else if !is_certificate(&block.contents) {
            "intermediate certificate does not parse as valid X.509"
        } else {
            continue;
        };
        return errors.invalid(path, chain, why);
    }
}

/// One certificate, and nothing behind it that another reader may take for a second one.
fn is_certificate(der: &[u8]) -> bool {
    matches!(X509Certificate::from_der(der), Ok((b"", _)))
}

fn names(errors: &mut FieldErrors, status: &Cursor<'_>, leaf: &Certificate) {
    let path = || status.at("certificateChain");
    for name in &leaf.dns_names {
        if name.is_empty() {
            errors.invalid(path(), &**name, "leaf certificate should not contain empty DNSName");
        }
        if name.contains("..") {
            errors.invalid(path(), &**name, "leaf certificate's DNSName should not contain '..'");
        }
        if name.starts_with('.') || name.ends_with('.') {
            errors.invalid(path(), &**name, "leaf certificate's DNSName should not start or end with '.'");
        }
    }
    let sound = |mail: &str| mail.rsplit_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    for mail in leaf.mails.iter().filter(|mail| !sound(mail)) {
        errors.invalid(path(), &**mail, "leaf certificate should not contain invalid EmailAddress");
    }
}

/// Whether the times that are told are those of the certificate, and leave time to use and to renew it.
fn times(errors: &mut FieldErrors, status: &Cursor<'_>, spec: &Cursor<'_>, leaf: &Certificate, now: Timestamp) -> bool {
    const IN_CERTIFICATE: &str = "must be present and consistent with the issued certificate";
    const IN_RANGE: &str = "must be present and in the range [notbefore+10min, notafter-10min]";
    let told = [("notBefore", IN_CERTIFICATE), ("notAfter", IN_CERTIFICATE), ("beginRefreshAt", IN_RANGE)];
    for (key, detail) in told.into_iter().filter(|(key, _)| !status.has(key)) {
        errors.required(status.at(key), detail);
    }
    if !errors.is_empty() {
        return false;
    }
    let [start, end, refresh] =
        told.map(|(key, _)| time::parse(status.text(key)).map_or(i64::MIN, Timestamp::as_second));
    let lifetime = leaf.not_after - leaf.not_before;
    let longest = spec.number("maxExpirationSeconds");
    let wrong_time = [
        ("notBefore", start != leaf.not_before, "must be set to the NotBefore time encoded in the leaf certificate"),
        (
            "notBefore",
            start.abs_diff(now.as_second()) > 5 * MINUTE.unsigned_abs(),
            "must be set to within 5 minutes of kube-apiserver's current time",
        ),
        ("notAfter", end != leaf.not_after, "must be set to the NotAfter time encoded in the leaf certificate"),
    ];
    if let Some((key, _, detail)) = wrong_time.into_iter().find(|(_, wrong, _)| *wrong) {
        errors.invalid(status.at(key), status.text(key), detail);
        return false;
    }
    let wrong_lifetime = if lifetime < 60 * MINUTE {
        "leaf certificate lifetime must be >= 1 hour".to_owned()
    } else if lifetime > longest {
        format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})")
    } else {
        String::new()
    };
    if !wrong_lifetime.is_empty() {
        errors.invalid(status.at("certificateChain"), lifetime.saturating_mul(NANOS), wrong_lifetime);
        return false;
    }
    let wrong_refresh = if refresh < start + 10 * MINUTE {
        "must be at least 10 minutes after status.notBefore"
    } else if refresh > end - 10 * MINUTE {
        "must be at least 10 minutes before status.notAfter"
    } else {
        return true;
    };
    errors.invalid(status.at("beginRefreshAt"), status.text("beginRefreshAt"), wrong_refresh);
    false
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use ferry_meta::Path;
    use rcgen::{CertificateParams, KeyPair, PublicKeyData};
    use serde_json::json;

    use super::*;

    /// The beginning of 15 January 2027.
    const START: i64 = 1_799_971_200;

    fn at(seconds: i64) -> String {
        Timestamp::from_second(START + seconds).expect("a time").to_string()
    }

    fn chain(pair: &KeyPair, names: &[&str], lifetime: u64) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = rcgen::date_time_ymd(2027, 1, 15);
        params.not_after = params.not_before + std::time::Duration::from_secs(lifetime);
        params.self_signed(pair).expect("a certificate").pem()
    }

    fn found(spec: &Value, chain: &str, times: [i64; 3]) -> Vec<String> {
        let [start, end, refresh] = times.map(at);
        let status = json!({"certificateChain": chain, "notBefore": start, "notAfter": end, "beginRefreshAt": refresh});
        let mut errors = FieldErrors::new();
        let (status, spec) = (Cursor::new(&status, Path::new("status")), Cursor::new(spec, Path::new("spec")));
        check(&mut errors, &status, &spec, Timestamp::from_second(START).expect("a time"));
        errors.iter().map(|error| format!("{}: {}", error.path, error.detail)).collect()
    }

    #[test]
    fn a_certificate_is_for_the_key_that_was_asked_for() {
        let pair = KeyPair::generate().expect("a key");
        let other = KeyPair::generate().expect("a key");
        let request = CertificateParams::default().serialize_request(&pair).expect("a request");
        let spec = json!({"stubPKCS10Request": STANDARD.encode(request.der()), "maxExpirationSeconds": 7200});
        let older =
            json!({"pkixPublicKey": STANDARD.encode(pair.subject_public_key_info()), "maxExpirationSeconds": 7200});
        let sound = [0, 7200, 3600];
        let none = [] as [String; 0];
        assert_eq!(found(&spec, &chain(&pair, &["a.example"], 7200), sound), none);
        assert_eq!(found(&older, &chain(&pair, &[], 7200), sound), none);
        let two = format!("{}{}", chain(&pair, &[], 7200), chain(&other, &[], 9999));
        assert_eq!(found(&spec, &two, sound), none);
        let in_one_block = pem::blocks(&two).into_iter().flat_map(|block| block.contents).collect::<Vec<u8>>();
        let in_one_block = STANDARD.encode(in_one_block);
        let in_one_block = format!("-----BEGIN CERTIFICATE-----\n{in_one_block}\n-----END CERTIFICATE-----\n");
        let leaf = chain(&pair, &[], 7200);
        for (chain, want) in [(in_one_block.clone(), "leaf"), (format!("{leaf}{in_one_block}"), "intermediate")] {
            assert_eq!(
                found(&spec, &chain, sound),
                [format!("status.certificateChain: {want} certificate does not parse as valid X.509")]
            );
        }
        for spec in [&spec, &older] {
            assert_eq!(
                found(spec, &chain(&other, &[], 7200), sound),
                ["status.certificateChain: leaf certificate was not issued to the requested public key"]
            );
        }
        assert_eq!(
            found(&spec, "", sound),
            ["status.certificateChain: issued certificate chain must contain at least one certificate"]
        );
    }

    #[test]
    fn times_are_those_of_the_certificate() {
        let pair = KeyPair::generate().expect("a key");
        let spec =
            json!({"pkixPublicKey": STANDARD.encode(pair.subject_public_key_info()), "maxExpirationSeconds": 7200});
        for (lifetime, times, want) in [
            (
                7200,
                [1, 7200, 3600],
                "status.notBefore: must be set to the NotBefore time encoded in the leaf certificate",
            ),
            (
                7200,
                [0, 7201, 3600],
                "status.notAfter: must be set to the NotAfter time encoded in the leaf certificate",
            ),
            (3599, [0, 3599, 1800], "status.certificateChain: leaf certificate lifetime must be >= 1 hour"),
            (
                7201,
                [0, 7201, 3600],
                "status.certificateChain: leaf certificate lifetime must be <= spec.maxExpirationSeconds (7200)",
            ),
            (7200, [0, 7200, 599], "status.beginRefreshAt: must be at least 10 minutes after status.notBefore"),
            (7200, [0, 7200, 6601], "status.beginRefreshAt: must be at least 10 minutes before status.notAfter"),
        ] {
            assert_eq!(found(&spec, &chain(&pair, &[], lifetime), times), [want]);
        }
    }
}

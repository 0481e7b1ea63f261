//! Signs approved requests of the cluster's own signers with the cluster's authority.

use std::sync::Arc;

use ferry_client::controller::Action;
use ferry_client::{Api, Error};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Client, ResourceExt};
use rcgen::{
    CertificateSigningRequestParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use super::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, condition, is_issued, push, request, subject};
use crate::{Authority, Context};

const SHORTEST_SECONDS: i64 = 600;
/// Begins earlier than now, so that machines whose clocks differ accept it.
const BACKDATE: time::Duration = time::Duration::minutes(5);
/// One that lives shorter does not end earlier for that.
const SHORT_SECONDS: i64 = 8 * 3600;

pub(crate) fn start(context: &Context) {
    let Some(authority) = context.config.signing.clone() else {
        tracing::info!(controller = "csrsigning", "no authority given, nothing is signed");
        return;
    };
    let (authority, clock) = (Arc::new(authority), context.config.clock.clone());
    super::run(context, "csrsigning", move |client, found| {
        let (authority, now) = (authority.clone(), clock.time());
        async move { reconcile(client, found, &authority, now).await }
    });
}

async fn reconcile(
    client: Client,
    mut found: CertificateSigningRequest,
    authority: &Authority,
    now: Time,
) -> Result<Action, Error> {
    let ours = [CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY].contains(&found.spec.signer_name.as_str());
    let approved = condition(&found, "Approved").is_some() && condition(&found, "Denied").is_none();
    if !ours || !approved || is_issued(&found) || condition(&found, "Failed").is_some() {
        return Ok(Action::Done);
    }
    let date = time::OffsetDateTime::from_unix_timestamp(now.0.as_second()).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let issued = request::read(&found).and_then(|asked| {
        request::check(&found.spec.signer_name, &asked)?;
        issue(&found, &asked, authority, date)
    });
    match issued {
        Ok(certificate) => {
            found.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
        }
        Err(problem) => push(&mut found, "Failed", "SignerValidationFailure", &problem, now),
    }
    let api: Api<CertificateSigningRequest> = Api::all(client);
    api.replace_status(&found.name_any(), &PostParams::default(), &found).await?;
    Ok(Action::Done)
}

/// The certificate as PEM.
fn issue(
    found: &CertificateSigningRequest,
    asked: &request::Asked,
    authority: &Authority,
    now: time::OffsetDateTime,
) -> Result<String, String> {
    let mut made = CertificateSigningRequestParams::from_der(&asked.request.der.as_slice().into())
        .map_err(|error| format!("cannot be read: {error}"))?;
    made.params.distinguished_name = DistinguishedName::new();
    // Only what the API's usages say, whatever the request's own extensions ask for.
    made.params.is_ca = IsCa::ExplicitNoCa;
    made.params.custom_extensions.clear();
    made.params.key_usages = asked.usages.iter().filter_map(|usage| key_usage(usage)).collect();
    made.params.extended_key_usages = asked.usages.iter().filter_map(|usage| extended_usage(usage)).collect();
    made.params.use_authority_key_identifier_extension = true;
    let longest = i64::try_from(authority.lifetime.as_secs()).unwrap_or(i64::MAX);
    let seconds =
        found.spec.expiration_seconds.map_or(longest, |asked| i64::from(asked).max(SHORTEST_SECONDS).min(longest));
    made.params.not_before = now - BACKDATE;
    made.params.not_after = now + time::Duration::seconds(seconds);
    if seconds >= SHORT_SECONDS {
        made.params.not_after -= BACKDATE;
    }
    // Nobody would believe it any longer than its authority.
    let end = authority_end(authority).ok_or("the authority cannot be read")?;
    if now >= end {
        return Err(format!("refusing to sign a certificate that expired in the past: NotAfter={end}"));
    }
    made.params.not_after = made.params.not_after.min(end);
    let key = || KeyPair::from_pem(&authority.key).map_err(|error| format!("the authority's key: {error}"));
    let issuer =
        Issuer::from_ca_cert_pem(&authority.certificate, key()?).map_err(|error| format!("the authority: {error}"))?;
    let plain = made.signed_by(&issuer).map_err(|error| format!("cannot be signed: {error}"))?;
    let signed = subject::put(plain.der(), &asked.request.raw_subject, &key()?).ok_or("cannot be signed")?;
    Ok(pem(&signed))
}

fn authority_end(authority: &Authority) -> Option<time::OffsetDateTime> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(authority.certificate.as_bytes()).ok()?;
    Some(pem.parse_x509().ok()?.validity().not_after.to_datetime())
}

fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn key_usage(usage: &str) -> Option<KeyUsagePurpose> {
    Some(match usage {
        "digital signature" | "signing" => KeyUsagePurpose::DigitalSignature,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        _ => return None,
    })
}

fn extended_usage(usage: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match usage {
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        "code signing" => ExtendedKeyUsagePurpose::CodeSigning,
        "email protection" | "s/mime" => ExtendedKeyUsagePurpose::EmailProtection,
        "timestamping" => ExtendedKeyUsagePurpose::TimeStamping,
        "ocsp signing" => ExtendedKeyUsagePurpose::OcspSigning,
        "any" => ExtendedKeyUsagePurpose::Any,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DnType, SanType};
    use serde_json::json;

    use super::*;

    fn authority() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Authority { certificate, key: key.serialize_pem(), lifetime: Duration::from_secs(365 * 24 * 3600) }
    }

    fn csr(
        signer: &str,
        common_name: &str,
        organizations: &[&str],
        name: Option<&str>,
        usages: &[&str],
    ) -> CertificateSigningRequest {
        let mut params = CertificateParams::default();
        let mut subject = DistinguishedName::new();
        for organization in organizations {
            subject.push(DnType::OrganizationName, *organization);
        }
        subject.push(DnType::CommonName, common_name);
        params.distinguished_name = subject;
        params.subject_alt_names =
            name.map(|name| SanType::DnsName(name.try_into().expect("a name"))).into_iter().collect();
        let key = KeyPair::generate().expect("a key");
        let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        serde_json::from_value(json!({
            "metadata": { "name": "r" },
            "spec": { "request": ByteString(pem.into_bytes()), "signerName": signer, "usages": usages, "expirationSeconds": 3600 },
        }))
        .expect("a request")
    }

    /// Somebody in two groups, as `openssl req -subj /O=dev/O=ops/CN=jane` makes it. Its own signature is over another
    /// subject, which is judged elsewhere.
    #[test]
    fn all_groups_are_carried_over() {
        let authority = authority();
        let found = csr(CLIENT, "jane", &["dev"], None, &["client auth"]);
        let mut asked = request::read(&found).expect("a request");
        // RDNs of O=dev, O=ops and CN=jane.
        let attribute = |kind: u8, text: &str| {
            let size = u8::try_from(text.len()).expect("short");
            let mut der = vec![0x31, size + 9, 0x30, size + 7, 6, 3, 0x55, 4, kind, 0x0c, size];
            der.extend_from_slice(text.as_bytes());
            der
        };
        let parts = [attribute(10, "dev"), attribute(10, "ops"), attribute(3, "jane")].concat();
        asked.request.raw_subject = [&[0x30, u8::try_from(parts.len()).expect("short")][..], &parts].concat();
        let made = issue(&found, &asked, &authority, time::OffsetDateTime::now_utc()).expect("a certificate");
        let (_, pem) = x509_parser::pem::parse_x509_pem(made.as_bytes()).expect("PEM");
        let certificate = pem.parse_x509().expect("a certificate");
        assert_eq!(certificate.subject().to_string(), "O=dev, O=ops, CN=jane");
        let (_, of) = x509_parser::pem::parse_x509_pem(authority.certificate.as_bytes()).expect("PEM");
        let of = of.parse_x509().expect("the authority");
        certificate.verify_signature(Some(of.public_key())).expect("signed by the authority");
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let now = time::OffsetDateTime::now_utc().replace_nanosecond(0).expect("a time");
        params.not_after = now + time::Duration::minutes(20);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let brief = Authority { certificate, key: key.serialize_pem(), lifetime: Duration::from_secs(24 * 3600) };
        let found = csr(CLIENT, "jane", &["dev"], None, &["client auth"]);
        let end = |authority: &Authority, seconds: Option<i32>, now| -> Result<i64, String> {
            let mut found = found.clone();
            found.spec.expiration_seconds = seconds;
            let made = issue(&found, &request::read(&found).expect("a request"), authority, now)?;
            let (_, pem) = x509_parser::pem::parse_x509_pem(made.as_bytes()).expect("PEM");
            Ok(pem.parse_x509().expect("a certificate").validity().not_after.timestamp() - now.unix_timestamp())
        };
        assert_eq!(end(&brief, None, now), Ok(20 * 60));
        assert_eq!(end(&brief, Some(600), now), Ok(600));
        let later = end(&brief, None, now + time::Duration::hours(1));
        assert!(later.is_err_and(|why| why.starts_with("refusing to sign a certificate that expired in the past")));
        // What lives long ends as much earlier as it began.
        let long = Authority { lifetime: Duration::from_secs(24 * 3600), ..authority() };
        assert_eq!(end(&long, None, now), Ok(24 * 3600 - 300));
    }

    #[test]
    fn signers_have_their_rules() {
        let authority = authority();
        let check = |found: &CertificateSigningRequest, expected: &str| {
            let issued = request::read(found).and_then(|asked| {
                request::check(&found.spec.signer_name, &asked)?;
                issue(found, &asked, &authority, time::OffsetDateTime::now_utc())
            });
            match issued {
                Ok(pem) => {
                    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
                    let certificate = pem.parse_x509().expect("a certificate");
                    let life =
                        certificate.validity().not_after.timestamp() - certificate.validity().not_before.timestamp();
                    assert_eq!((certificate.subject().to_string().as_str(), life), (expected, 3900));
                    assert!(!certificate.is_ca());
                    let (_, of) = x509_parser::pem::parse_x509_pem(authority.certificate.as_bytes()).expect("PEM");
                    let of = of.parse_x509().expect("the authority");
                    certificate.verify_signature(Some(of.public_key())).expect("signed by the authority");
                }
                Err(problem) => assert!(problem.contains(expected), "{problem}"),
            }
        };
        let client = ["client auth", "digital signature"];
        let nodes = ["system:nodes"];
        check(&csr(KUBELET_CLIENT, "system:node:a", &nodes, None, &client), "O=system:nodes, CN=system:node:a");
        check(&csr(KUBELET_CLIENT, "system:node:a", &nodes, Some("x"), &client), "DNS subjectAltNames are not allowed");
        check(&csr(KUBELET_CLIENT, "mallory", &nodes, None, &client), "system:node:");
        check(
            &csr(KUBELET_SERVING, "system:node:a", &nodes, Some("a"), &["server auth", "digital signature"]),
            "O=system:nodes, CN=system:node:a",
        );
        check(
            &csr(KUBELET_SERVING, "system:node:a", &nodes, None, &["server auth", "digital signature"]),
            "subjectAltName is required",
        );
        check(&csr(CLIENT, "jane", &["dev"], None, &["client auth"]), "O=dev, CN=jane");
        check(&csr(CLIENT, "jane", &["system:masters"], None, &["client auth"]), "system:masters");
        check(
            &csr(CLIENT, "jane", &["dev"], None, &["server auth"]),
            "invalid usage for client certificate: server auth",
        );
        check(&csr(CLIENT, "jane", &["dev"], None, &["digital signature"]), "missing required usage");
        // A request that names two is of neither.
        for signer in [KUBELET_CLIENT, KUBELET_SERVING, CLIENT, LEGACY] {
            let usages = if signer == KUBELET_SERVING { ["server auth", "digital signature"] } else { client };
            let mut two = csr(signer, "system:node:a", &["system:masters"], None, &usages);
            let pem = String::from_utf8(two.spec.request.0.clone()).expect("text");
            let mut der = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM").1.contents;
            let organization = [0x55, 4, 10];
            let at = der.windows(3).position(|part| part == organization).expect("the organization");
            der[at + 2] = 3;
            two.spec.request = ByteString(super::pem(&der).replace("CERTIFICATE", "CERTIFICATE REQUEST").into_bytes());
            check(&two, "the subject has 2 common names");
            let asked = request::read(&two).expect("it can be read");
            assert!(!request::is_kubelet_client(&asked));
        }
        let mut broken = csr(CLIENT, "jane", &["dev"], None, &["client auth"]);
        broken.spec.request = ByteString(b"nonsense".to_vec());
        check(&broken, "PEM block type must be CERTIFICATE REQUEST");
    }
}

//! What a certificate request asks for, and whether its signer may give it.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use super::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING};

/// The parts of a request that its signer judges.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Asked {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) addresses: usize,
    pub(super) mails: usize,
    pub(super) uris: usize,
    pub(super) usages: Vec<String>,
    /// As the request has it.
    pub(super) subject: Vec<u8>,
    /// The subject has words that cannot be read: nobody could judge them.
    pub(super) odd_subject: bool,
}

pub(super) fn read(request: &CertificateSigningRequest) -> Result<Asked, String> {
    let (_, pem) =
        x509_parser::pem::parse_x509_pem(&request.spec.request.0).map_err(|error| format!("not PEM: {error}"))?;
    let (_, parsed) =
        X509CertificationRequest::from_der(&pem.contents).map_err(|error| format!("not a request: {error}"))?;
    let subject = &parsed.certification_request_info.subject;
    let mut asked = Asked { usages: request.spec.usages.clone().unwrap_or_default(), ..Asked::default() };
    asked.usages.sort();
    asked.common_name =
        subject.iter_common_name().filter_map(|name| name.as_str().ok()).next().unwrap_or_default().into();
    asked.organizations = subject.iter_organization().filter_map(|name| Some(name.as_str().ok()?.to_owned())).collect();
    asked.subject = subject.as_raw().to_vec();
    asked.odd_subject = subject.iter_attributes().any(|attribute| attribute.as_str().is_err());
    for extension in parsed.requested_extensions().into_iter().flatten() {
        if let ParsedExtension::SubjectAlternativeName(names) = extension {
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(name) => asked.names.push((*name).to_owned()),
                    GeneralName::IPAddress(_) => asked.addresses += 1,
                    GeneralName::RFC822Name(_) => asked.mails += 1,
                    _ => asked.uris += 1,
                }
            }
        }
    }
    Ok(asked)
}

fn has(asked: &Asked, usage: &str) -> bool {
    asked.usages.iter().any(|known| known == usage)
}

/// What nodes ask for: exactly these, and to encipher keys or not, as the kind of their key needs it.
fn usages_are(asked: &Asked, kind: &str) -> bool {
    let known = ["digital signature", "key encipherment", kind];
    has(asked, "digital signature")
        && has(asked, kind)
        && asked.usages.iter().all(|usage| known.contains(&usage.as_str()))
}

/// Whether this is what a kubelet asks for to be a client.
pub(super) fn is_kubelet_client(asked: &Asked) -> bool {
    check(KUBELET_CLIENT, asked).is_ok()
}

/// The signer's own rules; the error is what the requester is told.
pub(super) fn check(signer: &str, asked: &Asked) -> Result<(), String> {
    let named = asked.common_name.starts_with("system:node:");
    let member = asked.organizations == ["system:nodes"];
    // The first that is true is what is wrong.
    let faults: &[(bool, &str)] = match signer {
        KUBELET_CLIENT => &[
            (!member, "subject organization is not system:nodes"),
            (!asked.names.is_empty(), "DNS subjectAltNames are not allowed"),
            (asked.mails > 0, "Email subjectAltNames are not allowed"),
            (asked.addresses > 0, "IP subjectAltNames are not allowed"),
            (asked.uris > 0, "URI subjectAltNames are not allowed"),
            (!named, "subject common name does not begin with system:node:"),
            (
                !usages_are(asked, "client auth"),
                "usages did not match [client auth digital signature key encipherment]",
            ),
        ],
        KUBELET_SERVING => &[
            (!member, "subject organization is not system:nodes"),
            (asked.names.is_empty() && asked.addresses == 0, "DNS or IP subjectAltName is required"),
            (asked.mails > 0, "Email subjectAltNames are not allowed"),
            (asked.uris > 0, "URI subjectAltNames are not allowed"),
            (
                !usages_are(asked, "server auth"),
                "usages did not match [digital signature key encipherment server auth]",
            ),
            (!named, "subject common name does not begin with system:node:"),
        ],
        CLIENT => {
            let known = ["client auth", "digital signature", "key encipherment"];
            if let Some(usage) = asked.usages.iter().find(|usage| !known.contains(&usage.as_str())) {
                return Err(format!("invalid usage for client certificate: {usage}"));
            }
            &[
                (!has(asked, "client auth"), "missing required usage for client certificate: client auth"),
                (
                    asked.organizations.iter().any(|group| group == "system:masters"),
                    "subject organization contains \"system:masters\", which is not allowed",
                ),
            ]
        }
        _ => &[],
    };
    let odd = (asked.odd_subject, "the subject has an attribute that cannot be read");
    match faults.iter().chain([&odd]).find(|(wrong, _)| *wrong) {
        Some((_, why)) => Err((*why).to_owned()),
        None => Ok(()),
    }
}

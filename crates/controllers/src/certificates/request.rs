//! What a certificate request asks for, and whether its signer may give it.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use super::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY};

/// The parts of a request that its signer judges.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Asked {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) addresses: usize,
    pub(super) mails_or_uris: usize,
    pub(super) usages: Vec<String>,
    /// An attribute of the subject occurs twice, or is one that cannot be carried over.
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
    asked.odd_subject =
        subject.iter_attributes().count() > 1 + asked.organizations.len() || asked.organizations.len() > 1;
    for extension in parsed.requested_extensions().into_iter().flatten() {
        if let ParsedExtension::SubjectAlternativeName(names) = extension {
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(name) => asked.names.push((*name).to_owned()),
                    GeneralName::IPAddress(_) => asked.addresses += 1,
                    _ => asked.mails_or_uris += 1,
                }
            }
        }
    }
    Ok(asked)
}

fn usages_are(asked: &Asked, required: &[&str], optional: &[&str]) -> bool {
    required.iter().all(|usage| asked.usages.iter().any(|known| known == usage))
        && asked.usages.iter().all(|known| required.contains(&known.as_str()) || optional.contains(&known.as_str()))
}

fn is_node(asked: &Asked) -> bool {
    asked.organizations == ["system:nodes"] && asked.common_name.starts_with("system:node:")
}

/// Whether this is what a kubelet asks for to be a client.
pub(super) fn is_kubelet_client(asked: &Asked) -> bool {
    is_node(asked)
        && asked.names.is_empty()
        && asked.addresses == 0
        && asked.mails_or_uris == 0
        && usages_are(asked, &["client auth", "digital signature"], &["key encipherment"])
}

/// The signer's own rules; the error is what the requester is told.
pub(super) fn check(signer: &str, asked: &Asked) -> Result<(), String> {
    let wrong = |text: &str| Err(text.to_owned());
    match signer {
        KUBELET_CLIENT if !is_node(asked) => {
            wrong("subject organization is not system:nodes or subject common name does not begin with system:node:")
        }
        KUBELET_CLIENT if !is_kubelet_client(asked) => {
            wrong("usages did not match [client auth digital signature], or subject alternative names are not allowed")
        }
        KUBELET_SERVING if !is_node(asked) => {
            wrong("subject organization is not system:nodes or subject common name does not begin with system:node:")
        }
        KUBELET_SERVING if asked.names.is_empty() && asked.addresses == 0 => {
            wrong("DNS or IP subjectAltName is required")
        }
        KUBELET_SERVING if asked.mails_or_uris > 0 => wrong("email and URI subjectAltNames are not allowed"),
        KUBELET_SERVING if !usages_are(asked, &["digital signature", "server auth"], &["key encipherment"]) => {
            wrong("usages did not match [digital signature server auth]")
        }
        CLIENT if !usages_are(asked, &["client auth"], &["digital signature", "key encipherment"]) => {
            wrong("usages did not match [client auth]")
        }
        CLIENT if asked.organizations.iter().any(|group| group == "system:masters") => {
            wrong("subject organization contains \"system:masters\", which is not allowed")
        }
        KUBELET_CLIENT | KUBELET_SERVING | CLIENT | LEGACY if asked.odd_subject => {
            wrong("this signer carries over one organization and the common name of a subject, and nothing else")
        }
        _ => Ok(()),
    }
}

//! What a certificate request asks for, and whether its signer may give it.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING};

/// The parts of a request that its signer judges.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: ferry_x509::Request,
    pub(super) usages: Vec<String>,
}

pub(super) fn read(request: &CertificateSigningRequest) -> Result<Asked, String> {
    let mut usages = request.spec.usages.clone().unwrap_or_default();
    usages.sort();
    let request = ferry_x509::Request::from_pem(&request.spec.request.0).map_err(|why| why.to_string())?;
    Ok(Asked { request, usages })
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
    let request = &asked.request;
    let name = request.common_name().map_err(|why| why.to_string())?;
    let named = name.starts_with("system:node:");
    let member = request.subject.organizations == ["system:nodes"];
    // The first that is true is what is wrong.
    let faults: &[(bool, &str)] = match signer {
        KUBELET_CLIENT => &[
            (!member, "subject organization is not system:nodes"),
            (!request.dns_names.is_empty(), "DNS subjectAltNames are not allowed"),
            (request.mails > 0, "Email subjectAltNames are not allowed"),
            (!request.addresses.is_empty(), "IP subjectAltNames are not allowed"),
            (request.uris > 0, "URI subjectAltNames are not allowed"),
            (!named, "subject common name does not begin with system:node:"),
            (
                !usages_are(asked, "client auth"),
                "usages did not match [client auth digital signature key encipherment]",
            ),
        ],
        KUBELET_SERVING => &[
            (!member, "subject organization is not system:nodes"),
            (request.dns_names.is_empty() && request.addresses.is_empty(), "DNS or IP subjectAltName is required"),
            (request.mails > 0, "Email subjectAltNames are not allowed"),
            (request.uris > 0, "URI subjectAltNames are not allowed"),
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
                    request.subject.organizations.iter().any(|group| group == "system:masters"),
                    "subject organization contains \"system:masters\", which is not allowed",
                ),
            ]
        }
        _ => &[],
    };
    let others = [
        (request.subject.odd, "the subject has an attribute that cannot be read"),
        (!request.subject.uids.is_empty(), "the subject has a uid, which is not given on request"),
    ];
    match faults.iter().chain(&others).find(|(wrong, _)| *wrong) {
        Some((_, why)) => Err((*why).to_owned()),
        None => Ok(()),
    }
}

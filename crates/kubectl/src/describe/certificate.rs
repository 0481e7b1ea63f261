//! Certificate requests: who asks, and for whom.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use super::parts::{date, head, list, text};
use crate::error::{Error, Result};
use crate::print::table::show_labels;
use crate::text::human_duration;

pub fn request(object: &Value) -> Result<String> {
    let (spec, metadata) = (&object["spec"], &object["metadata"]);
    let mut out = head(object, false);
    out.push_str(&format!("Labels:\t{}\n", show_labels(&metadata["labels"])));
    out.push_str(&format!("Annotations:\t{}\n", show_labels(&metadata["annotations"])));
    out.push_str(&format!("CreationTimestamp:\t{}\n", date(text(metadata, "creationTimestamp"))));
    out.push_str(&format!("Requesting User:\t{}\n", text(spec, "username")));
    if !text(spec, "signerName").is_empty() {
        out.push_str(&format!("Signer:\t{}\n", text(spec, "signerName")));
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64() {
        out.push_str(&format!("Requested Duration:\t{}\n", human_duration(seconds)));
    }
    out.push_str(&format!("Status:\t{}\n", status(&object["status"])));
    let broken = |why: &str| Error::say(format!("Error parsing CSR: {why}"));
    let bytes = STANDARD.decode(text(spec, "request")).map_err(|error| broken(&error.to_string()))?;
    let (_, pem) =
        x509_parser::pem::parse_x509_pem(&bytes).map_err(|_| broken("PEM block type must be CERTIFICATE REQUEST"))?;
    let (_, asked) = X509CertificationRequest::from_der(&pem.contents).map_err(|error| broken(&error.to_string()))?;
    out.push_str(&subject(&asked));
    out.push_str(&names(&asked));
    Ok(out)
}

/// What was decided, and whether there is a certificate.
fn status(status: &Value) -> String {
    let has = |kind: &str| list(&status["conditions"]).iter().any(|condition| condition["type"] == kind);
    let decided = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if text(status, "certificate").is_empty() { "" } else { ",Issued" };
    format!("{decided}{failed}{issued}")
}

fn subject(asked: &X509CertificationRequest<'_>) -> String {
    let subject = &asked.certification_request_info.subject;
    let of = |oid: &str| -> Vec<String> {
        let all = subject.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == oid);
        all.filter_map(|attribute| attribute.as_str().ok().map(str::to_owned)).collect()
    };
    let last = |oid: &str| of(oid).pop().unwrap_or_default();
    let mut out = format!("Subject:\n\tCommon Name:\t{}\n\tSerial Number:\t{}\n", last("2.5.4.3"), last("2.5.4.5"));
    for (title, oid) in [
        ("Organization", "2.5.4.10"),
        ("Organizational Unit", "2.5.4.11"),
        ("Country", "2.5.4.6"),
        ("Locality", "2.5.4.7"),
        ("Province", "2.5.4.8"),
        ("StreetAddress", "2.5.4.9"),
        ("PostalCode", "2.5.4.17"),
    ] {
        out.push_str(&several(title, &of(oid)));
    }
    out
}

fn several(title: &str, values: &[String]) -> String {
    match values.is_empty() {
        true => String::new(),
        false => format!("\t{title}:\t{}\n", values.join("\n\t\t")),
    }
}

fn names(asked: &X509CertificationRequest<'_>) -> String {
    let (mut dns, mut mail, mut uris, mut addresses) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for extension in asked.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => dns.push((*name).to_owned()),
                GeneralName::RFC822Name(name) => mail.push((*name).to_owned()),
                GeneralName::URI(name) => uris.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
                    (Ok(four), _) => addresses.push(std::net::IpAddr::from(four).to_string()),
                    (_, Ok(six)) => addresses.push(std::net::IpAddr::from(six).to_string()),
                    _ => {}
                },
                _ => {}
            }
        }
    }
    if [&dns, &mail, &uris, &addresses].iter().all(|list| list.is_empty()) {
        return String::new();
    }
    let mut out = "Subject Alternative Names:\n".to_owned();
    for (title, list) in
        [("DNS Names", &dns), ("Email Addresses", &mail), ("URIs", &uris), ("IP Addresses", &addresses)]
    {
        out.push_str(&several(title, list));
    }
    out
}

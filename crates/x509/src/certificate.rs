//! What a certificate says of itself: for which names it is, and for how long.

use std::net::IpAddr;

use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::Error;
use crate::request::address;

/// Times are seconds since 1970. Whether to believe it is the reader's to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    pub not_before: i64,
    pub not_after: i64,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub mails: Vec<String>,
}

impl Certificate {
    /// The first one of a chain: that of the server itself.
    pub fn first_of_pem(pem: &[u8]) -> Result<Self, Error> {
        let (_, block) = parse_x509_pem(pem).map_err(|error| Error::Certificate(error.to_string()))?;
        if block.label != "CERTIFICATE" {
            return Err(Error::Label("CERTIFICATE"));
        }
        Self::from_der(&block.contents)
    }

    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| Error::Certificate(error.to_string()))?;
        let names = parsed.subject_alternative_name().map_err(|error| Error::Certificate(error.to_string()))?;
        let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
        let dns = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        };
        let ip = |name: &GeneralName<'_>| match name {
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        };
        let mail = |name: &GeneralName<'_>| match name {
            GeneralName::RFC822Name(name) => Some((*name).to_owned()),
            _ => None,
        };
        Ok(Self {
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            dns_names: names.iter().filter_map(dns).collect(),
            addresses: names.iter().filter_map(ip).collect(),
            mails: names.iter().filter_map(mail).collect(),
        })
    }

    /// Whether it is for this host: a wildcard stands for one label.
    pub fn is_for(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.contains(&address);
        }
        self.dns_names.iter().any(|name| {
            let name = name.to_ascii_lowercase();
            let wild =
                || name.strip_prefix("*.").is_some_and(|rest| host.split_once('.').is_some_and(|(_, end)| end == rest));
            name == host || wild()
        })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn names_and_times_are_read() {
        let names = ["a.example", "*.b.example", "10.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("names");
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let pem = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").pem();
        let read = Certificate::first_of_pem(pem.as_bytes()).expect("a certificate");
        assert_eq!(read.not_after, 1_893_456_000);
        for (host, want) in [
            ("a.example", true),
            ("A.example.", true),
            ("b.example", false),
            ("x.b.example", true),
            ("*.b.example", true),
            ("x.y.b.example", false),
            ("10.0.0.1", true),
            ("10.0.0.2", false),
            ("", false),
        ] {
            assert_eq!(read.is_for(host), want, "{host}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        for text in [
            "",
            "x",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "-----BEGIN KEY-----\nAAAA\n-----END KEY-----\n",
        ] {
            assert!(Certificate::first_of_pem(text.as_bytes()).is_err(), "{text}");
        }
    }
}

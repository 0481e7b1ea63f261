//! The name in a certificate or a request.

use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::x509::X509Name;

use crate::Error;

/// The attribute that carries a user's uid.
pub const UID_OID: &str = "1.3.6.1.4.1.57683.2";

/// Who is named. What cannot be read is an error and never left out: less of a name is another name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// In their order.
    pub common_names: Vec<String>,
    pub organizations: Vec<String>,
    pub uids: Vec<String>,
    /// It has attributes of other kinds that are no text: nobody could judge them.
    pub odd: bool,
}

impl Subject {
    pub fn read(name: &X509Name<'_>) -> Result<Self, Error> {
        let mut subject = Self::default();
        for attribute in name.iter_attributes() {
            let kind = attribute.attr_type();
            let list = if *kind == OID_X509_COMMON_NAME {
                &mut subject.common_names
            } else if *kind == OID_X509_ORGANIZATION_NAME {
                &mut subject.organizations
            } else if kind.to_id_string() == UID_OID {
                &mut subject.uids
            } else {
                subject.odd |= attribute.as_str().is_err();
                continue;
            };
            let text = attribute.as_str().map_err(|_| Error::Subject(kind.to_string()))?;
            list.push(text.to_owned());
        }
        Ok(subject)
    }

    /// The name that counts: the last one, as in Go. Authorities of others name people `CN=Users, CN=jane`.
    pub fn common_name(&self) -> Option<&str> {
        self.common_names.last().map(String::as_str).filter(|name| !name.is_empty())
    }
}

//! Client certificates: the common name is the user, each organization a group.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ferry_meta::UserInfo;
use ferry_x509::Subject;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::CREDENTIAL_ID;
use crate::authenticate::{Authenticator, AuthnError, Credentials};
use crate::expiring::Expiring;
use crate::removed_nodes::RemovedNodes;
use crate::request_header::ClientAuthority;

/// How long it is remembered whom a certificate names: connections send many requests.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Whose certificate it is. Where there is an authority, TLS has only seen that the client has the certificate's key.
pub struct X509 {
    /// The CA that must vouch for the chain; without one, TLS has looked at that.
    authority: Option<Arc<ClientAuthority>>,
    removed: Option<Arc<RemovedNodes>>,
    seen: Expiring<Arc<Named>>,
}

/// Whom a certificate names, and when.
struct Named {
    valid: RangeInclusive<i64>,
    user: Option<UserInfo>,
}

impl Default for X509 {
    fn default() -> Self {
        Self { authority: None, removed: None, seen: Expiring::new() }
    }
}

impl X509 {
    /// For certificates of this CA alone.
    pub fn of(authority: Arc<ClientAuthority>) -> Self {
        Self { authority: Some(authority), ..Self::default() }
    }

    /// Refuses those of machines that were taken out of the cluster.
    #[must_use]
    pub fn without(self, removed: Arc<RemovedNodes>) -> Self {
        Self { removed: Some(removed), ..self }
    }
}

/// The name a certificate is made out to.
pub(crate) fn common_name(der: &[u8]) -> Option<String> {
    ferry_x509::subject_of_certificate(der).ok()?.common_name().map(str::to_owned)
}

#[async_trait::async_trait]
impl Authenticator for X509 {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<UserInfo>, AuthnError> {
        let Some(leaf) = credentials.certificates.first() else { return Ok(None) };
        if let Some(authority) = &self.authority
            && let Err(why) = authority.verify(credentials.certificates)
        {
            // A token beside it may still say who it is; otherwise this is 401, and not an anonymous caller.
            return Err(AuthnError::Invalid(why.to_string()));
        }
        let digest: [u8; 32] = Sha256::digest(leaf).into();
        let known = match self.seen.get(&digest) {
            Some(known) => known,
            None => {
                let read = Arc::new(read(leaf, &digest)?);
                self.seen.put(digest, read.clone(), REMEMBERED);
                read
            }
        };
        let user = known.at(ferry_meta::time::now().as_second())?;
        // Asked each time: a connection may be older than the removal.
        if let (Some(user), Some(removed)) = (&user, &self.removed)
            && removed.refuses(&user.name, *known.valid.start())
        {
            return Err(AuthnError::Invalid(format!("x509: {} was removed from the cluster", user.name)));
        }
        Ok(user)
    }
}

impl Named {
    fn at(&self, now: i64) -> Result<Option<UserInfo>, AuthnError> {
        if !self.valid.contains(&now) {
            return Err(AuthnError::Invalid("x509: certificate has expired or is not yet valid".into()));
        }
        Ok(self.user.clone())
    }
}

fn read(der: &[u8], digest: &[u8; 32]) -> Result<Named, AuthnError> {
    let invalid = |why: String| AuthnError::Invalid(why);
    let (_, certificate) = X509Certificate::from_der(der).map_err(|e| invalid(format!("x509: {e}")))?;
    let validity = certificate.validity();
    let valid = validity.not_before.timestamp()..=validity.not_after.timestamp();
    if let Ok(Some(usage)) = certificate.extended_key_usage()
        && !usage.value.client_auth
        && !usage.value.any
    {
        return Err(invalid("x509: certificate specifies an incompatible key usage".into()));
    }
    let subject = Subject::read(certificate.subject()).map_err(|why| invalid(why.to_string()))?;
    let Some(name) = subject.common_name().map(str::to_owned) else { return Ok(Named { valid, user: None }) };
    if subject.uids.len() > 1 {
        return Err(invalid("x509: expected 1 UID, but found multiple".into()));
    }
    let mut fingerprint = String::from("X509SHA256=");
    for byte in digest {
        let _ = write!(fingerprint, "{byte:02x}");
    }
    let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![fingerprint])]);
    let uid = subject.uids.into_iter().next().unwrap_or_default();
    let user = UserInfo { name, uid, groups: subject.organizations, extra };
    Ok(Named { valid, user: Some(user) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate_until(
        valid_until: i32,
        name: Option<&str>,
        groups: &[&str],
        usage: rcgen::ExtendedKeyUsagePurpose,
    ) -> Vec<u8> {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = name {
            parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        }
        for group in groups {
            parameters.distinguished_name.push(rcgen::DnType::OrganizationName, *group);
        }
        parameters.not_before = rcgen::date_time_ymd(2025, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(valid_until, 1, 1);
        parameters.extended_key_usages = vec![usage];
        let key = rcgen::KeyPair::generate().expect("a key");
        parameters.self_signed(&key).expect("a certificate").der().to_vec()
    }

    fn certificate(name: Option<&str>, groups: &[&str], usage: rcgen::ExtendedKeyUsagePurpose) -> Vec<u8> {
        certificate_until(2027, name, groups, usage)
    }

    fn user(der: &[u8], now: i64) -> Result<Option<UserInfo>, AuthnError> {
        read(der, &Sha256::digest(der).into())?.at(now)
    }

    #[tokio::test]
    async fn whom_a_certificate_names_is_remembered() {
        // This one goes by today's date.
        let valid = |name, groups| certificate_until(3000, name, groups, rcgen::ExtendedKeyUsagePurpose::ClientAuth);
        let der = valid(Some("jane"), &["devs"]);
        let other = valid(Some("john"), &[]);
        let authenticator = X509::default();
        for (der, name) in [(&der, "jane"), (&der, "jane"), (&other, "john"), (&der, "jane")] {
            let certificates = [der.clone().into()];
            let headers = http::HeaderMap::new();
            let credentials = Credentials { headers: &headers, certificates: &certificates, path: "/" };
            let found = authenticator.authenticate(&credentials).await.expect("valid").expect("a user");
            assert_eq!(found.name, name);
        }
    }

    #[test]
    fn a_certificate_names_its_user_while_it_is_valid() {
        let at = |year: i64| (year - 1970) * 31_556_952;
        let client = rcgen::ExtendedKeyUsagePurpose::ClientAuth;
        let der = certificate(Some("system:node:n1"), &["system:nodes"], client.clone());
        let found = user(&der, at(2026)).expect("valid").expect("a user");
        assert_eq!((found.name.as_str(), found.groups), ("system:node:n1", vec!["system:nodes".to_owned()]));
        assert!(found.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        assert!(user(&der, at(2028)).is_err(), "expired");
        assert!(user(&der, at(2024)).is_err(), "not yet valid");
        assert!(user(&certificate(None, &["g"], client), at(2026)).expect("valid").is_none(), "no name");
        let server = certificate(Some("a"), &[], rcgen::ExtendedKeyUsagePurpose::ServerAuth);
        assert!(user(&server, at(2026)).is_err(), "a server's certificate");
        assert!(user(b"garbage", at(2026)).is_err());
        // Authorities of others name people below a folder; the last name counts, as in Go.
        let changed = |from: &[u8], to: &[u8]| {
            let mut der = certificate(Some("Users"), &["jane"], rcgen::ExtendedKeyUsagePurpose::ClientAuth);
            let place = der.windows(from.len()).rposition(|part| part == from).expect("it is there");
            der[place..place + to.len()].copy_from_slice(to);
            user(&der, at(2026))
        };
        let organization = [0x55, 4, 10];
        assert_eq!(changed(&organization, &[0x55, 4, 3]).expect("valid").expect("a user").name, "jane");
        // A group that cannot be read is not left out.
        assert!(changed(b"jane", b"j\xffne").is_err());
    }
}

//! Certificates for pods: a key is made here, a request asks a signer for the certificate, both become files.
//!
//! Keys live in memory and in the pod's volume alone: after a restart of the kubelet a new request is made.

use std::collections::HashMap;
use std::time::Duration;

use ferry_client::{Api, Clock};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{PodCertificateRequest, PodCertificateRequestSpec};
use k8s_openapi::api::core::v1::{Node, Pod, PodCertificateProjection, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::PostParams;
use parking_lot::Mutex;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, RsaKeySize};

use crate::pod;
use crate::sources::Sources;

/// A certificate that is due but still valid is used on while its renewal is on the way; looked at again after this.
const RENEWAL_LOOK: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct Issued {
    pub(super) key: String,
    pub(super) chain: String,
    pub(super) refresh_at: Timestamp,
    expires_at: Timestamp,
}

#[derive(Clone)]
struct Pending {
    request: String,
    key: String,
}

#[derive(Default)]
struct Known {
    issued: Option<Issued>,
    pending: Option<Pending>,
}

/// The pod's uid, the volume, and which of its sources.
type Key = (String, String, usize);

pub(super) struct Certificates {
    client: Client,
    clock: Clock,
    node: String,
    known: Mutex<HashMap<Key, Known>>,
}

/// What a signer has said so far.
#[derive(Debug, PartialEq)]
enum Answer {
    None,
    Issued { chain: String, refresh_at: Timestamp, expires_at: Timestamp },
    Refused(String),
}

impl Certificates {
    pub(super) fn new(client: Client, node: &str, clock: Clock) -> Self {
        Self { client, clock, node: node.to_owned(), known: Mutex::default() }
    }

    pub(super) fn forget(&self, uid: &str) {
        self.known.lock().retain(|(owner, ..), _| owner != uid);
    }

    pub(super) async fn get(
        &self,
        sources: &Sources,
        pod: &Pod,
        (volume, index): (&str, usize),
        wanted: &PodCertificateProjection,
    ) -> Result<Issued, String> {
        let key = (pod::uid(pod).to_owned(), volume.to_owned(), index);
        let now = self.clock.now();
        let (issued, pending) = {
            let mut known = self.known.lock();
            let known = known.entry(key.clone()).or_default();
            (known.issued.clone(), known.pending.clone())
        };
        if let Some(issued) = issued.as_ref().filter(|issued| issued.refresh_at > now) {
            return Ok(issued.clone());
        }
        let pending = match pending {
            Some(pending) => pending,
            None => {
                let pending = self.request(pod, wanted).await?;
                self.known.lock().entry(key.clone()).or_default().pending = Some(pending.clone());
                pending
            }
        };
        let found = sources.certificate_requests.get(pod::uid(pod), pod::namespace(pod), &pending.request).await;
        let found = found.map_err(|e| ferry_client::write::short(&e))?;
        match found.as_deref().map(answer) {
            Some(Answer::Issued { chain, refresh_at, expires_at }) => {
                let issued = Issued { key: pending.key, chain, refresh_at, expires_at };
                self.known.lock().insert(key, Known { issued: Some(issued.clone()), pending: None });
                Ok(issued)
            }
            Some(Answer::Refused(why)) => Err(why),
            other => {
                if other.is_none() {
                    // Taken away before anyone signed it: the next look asks again.
                    self.known.lock().entry(key).or_default().pending = None;
                }
                let again = now.checked_add(RENEWAL_LOOK).unwrap_or(now);
                let valid = issued.filter(|issued| issued.expires_at > now);
                valid
                    .map(|issued| Issued { refresh_at: again, ..issued })
                    .ok_or_else(|| format!("PodCertificateRequest {:?} is not issued yet", pending.request))
            }
        }
    }

    async fn request(&self, pod: &Pod, wanted: &PodCertificateProjection) -> Result<Pending, String> {
        let short = |error: kube::Error| ferry_client::write::short(&error);
        let namespace = pod::namespace(pod);
        let account = pod::spec(pod).service_account_name.clone().filter(|n| !n.is_empty());
        let account = account.unwrap_or_else(|| "default".to_owned());
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let account_uid = accounts.get(&account).await.map_err(short)?.metadata.uid.unwrap_or_default();
        let node = Api::<Node>::all(self.client.clone()).get(&self.node).await.map_err(short)?;
        let kind = wanted.key_type.clone();
        let (key, proof) = super::blocking(move || generate(&kind)).await?;
        let request = PodCertificateRequest {
            metadata: ObjectMeta {
                generate_name: Some("req-".to_owned()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    name: pod::name(pod).to_owned(),
                    uid: pod::uid(pod).to_owned(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: PodCertificateRequestSpec {
                signer_name: wanted.signer_name.clone(),
                pod_name: pod::name(pod).to_owned(),
                pod_uid: pod::uid(pod).to_owned(),
                service_account_name: account,
                service_account_uid: account_uid,
                node_name: self.node.clone(),
                node_uid: node.metadata.uid.unwrap_or_default(),
                max_expiration_seconds: wanted.max_expiration_seconds,
                stub_pkc_s10_request: ByteString(proof),
                unverified_user_annotations: wanted.user_annotations.clone(),
            },
            status: None,
        };
        let requests: Api<PodCertificateRequest> = Api::namespaced(self.client.clone(), namespace);
        let made = requests.create(&PostParams::default(), &request).await.map_err(short)?;
        Ok(Pending { request: made.metadata.name.unwrap_or_default(), key })
    }
}

fn answer(request: &PodCertificateRequest) -> Answer {
    let Some(status) = &request.status else { return Answer::None };
    for condition in status.conditions.iter().flatten().filter(|c| c.status == "True") {
        match condition.type_.as_str() {
            "Denied" | "Failed" => {
                let end = condition.type_.to_lowercase();
                let (reason, message) = (&condition.reason, &condition.message);
                return Answer::Refused(format!("PodCertificateRequest was permanently {end}: {reason}: {message}"));
            }
            "Issued" => {
                let expires_at = status.not_after.as_ref().map(|time| time.0);
                let refresh_at = status.begin_refresh_at.as_ref().map(|time| time.0);
                if let (Some(expires_at), Some(chain)) = (expires_at, status.certificate_chain.clone()) {
                    return Answer::Issued { chain, refresh_at: refresh_at.unwrap_or(expires_at), expires_at };
                }
            }
            _ => {}
        }
    }
    Answer::None
}

/// A private key as PEM, and the proof that somebody has it: a certificate request without a subject.
fn generate(kind: &str) -> Result<(String, Vec<u8>), String> {
    let key = match kind {
        "RSA3072" => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_3072),
        "RSA4096" => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
        "ECDSAP256" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        "ECDSAP384" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        "ECDSAP521" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
        "ED25519" => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        other => return Err(format!("unknown key type {other:?}")),
    };
    let key = key.map_err(|e| e.to_string())?;
    let mut request = CertificateParams::default();
    request.distinguished_name = DistinguishedName::new();
    let request = request.serialize_request(&key).map_err(|e| e.to_string())?;
    Ok((key.serialize_pem(), request.der().to_vec()))
}

/// The files of a projection: key and chain in one file, or each in its own.
pub(super) fn files(wanted: &PodCertificateProjection, issued: &Issued) -> Vec<(String, Vec<u8>)> {
    let both = || format!("{}{}", issued.key, issued.chain);
    let parts = [
        (&wanted.credential_bundle_path, both()),
        (&wanted.key_path, issued.key.clone()),
        (&wanted.certificate_chain_path, issued.chain.clone()),
    ];
    let named = parts.into_iter().filter_map(|(path, text)| Some((path.clone()?, text.into_bytes())));
    named.filter(|(path, _)| !path.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_prove_themselves() {
        for kind in ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"] {
            let (key, request) = generate(kind).expect(kind);
            assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"), "{kind}");
            use x509_parser::prelude::FromDer;
            let (_, parsed) =
                x509_parser::certification_request::X509CertificationRequest::from_der(&request).expect("a request");
            assert_eq!(parsed.certification_request_info.subject.iter().count(), 0, "{kind}");
        }
        assert!(generate("DSA").is_err());
    }

    #[test]
    fn a_signer_issues_or_refuses() {
        let check = |status: serde_json::Value, want: &str| {
            let request: PodCertificateRequest = serde_json::from_value(json!({"metadata": {}, "spec": {
                "signerName": "s/s", "podName": "p", "podUID": "u", "serviceAccountName": "a", "serviceAccountUID": "v",
                "nodeName": "n", "nodeUID": "w", "stubPKCS10Request": ""}, "status": status}))
            .expect("a request");
            let seen = format!("{:?}", answer(&request));
            assert!(seen.contains(want), "{seen}");
        };
        let condition = |kind: &str| {
            json!([{"type": kind, "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        check(json!({}), "None");
        check(json!({"conditions": condition("Denied")}), "permanently denied: R: m");
        check(json!({"conditions": condition("Failed")}), "permanently failed");
        let issued = json!({"conditions": condition("Issued"), "certificateChain": "CHAIN",
            "notAfter": "2026-01-02T00:00:00Z", "beginRefreshAt": "2026-01-01T12:00:00Z"});
        check(issued, "CHAIN");
    }

    #[test]
    fn key_and_chain_go_where_they_are_wanted() {
        let time = Timestamp::UNIX_EPOCH;
        let issued = Issued { key: "K".into(), chain: "C".into(), refresh_at: time, expires_at: time };
        let wanted = PodCertificateProjection {
            credential_bundle_path: Some("b".into()),
            key_path: Some("k".into()),
            ..PodCertificateProjection::default()
        };
        assert_eq!(files(&wanted, &issued), [("b".to_owned(), b"KC".to_vec()), ("k".to_owned(), b"K".to_vec())]);
    }
}

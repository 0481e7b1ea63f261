//! Who may approve, sign and attest for a signer, and which subjects a client certificate must never have.

use std::sync::Arc;

use base64::Engine;
use ferry_auth::rbac::changes_only_references;
use ferry_auth::{Attributes, Authorizer};
use ferry_meta::ApiError;
use ferry_meta::object::text;
use serde_json::Value;

use crate::{Operation, Plugin, Request};

const GROUP: &str = "certificates.k8s.io";

/// Whether the user has the verb on this signer, or on all signers of its domain.
async fn may(authorizer: &dyn Authorizer, request: &Request<'_>, verb: &str, signer: &str) -> bool {
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    for name in [signer, &domain] {
        let about = Attributes { name, version: "*", ..Attributes::resource(request.user, verb, GROUP, "signers") };
        if authorizer.authorize(&about).await.is_allowed() {
            return true;
        }
    }
    false
}

pub(crate) struct CertificateApproval {
    authorizer: Arc<dyn Authorizer>,
}

impl CertificateApproval {
    pub(crate) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer }
    }
}

#[async_trait::async_trait]
impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.concerns(GROUP, "certificatesigningrequests") || request.subresource != "approval" {
            return Ok(());
        }
        let Some(old) = request.old else { return Ok(()) };
        let signer = text(old, "/spec/signerName");
        if may(&*self.authorizer, request, "approve", signer).await {
            return Ok(());
        }
        Err(request.forbidden(format_args!("user not permitted to approve requests with signerName {signer:?}")))
    }
}

pub(crate) struct CertificateSigning {
    authorizer: Arc<dyn Authorizer>,
}

impl CertificateSigning {
    pub(crate) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer }
    }
}

#[async_trait::async_trait]
impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.concerns(GROUP, "certificatesigningrequests") || request.subresource != "status" {
            return Ok(());
        }
        let (Some(object), Some(old)) = (request.object.as_deref(), request.old) else { return Ok(()) };
        let same = ["/status/certificate", "/status/conditions"]
            .iter()
            .all(|pointer| object.pointer(pointer) == old.pointer(pointer));
        let signer = text(old, "/spec/signerName");
        if same || may(&*self.authorizer, request, "sign", signer).await {
            return Ok(());
        }
        Err(request.forbidden(format_args!("user not permitted to sign requests with signerName {signer:?}")))
    }
}

pub(crate) struct ClusterTrustBundleAttest {
    authorizer: Arc<dyn Authorizer>,
}

impl ClusterTrustBundleAttest {
    pub(crate) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer }
    }
}

#[async_trait::async_trait]
impl Plugin for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.is(GROUP, "clustertrustbundles") {
            return Ok(());
        }
        let Some(object) = request.object.as_deref() else { return Ok(()) };
        let unchanged = request.old.is_some_and(|old| changes_only_references(object, old));
        let signer = text(object, "/spec/signerName");
        if unchanged || signer.is_empty() || may(&*self.authorizer, request, "attest", signer).await {
            return Ok(());
        }
        Err(request.forbidden(format_args!("user not permitted to attest for signerName {signer:?}")))
    }
}

/// Nobody gets a certificate of the all-powerful group through the API.
pub(crate) struct CertificateSubjectRestriction;

#[async_trait::async_trait]
impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
        if !request.is(GROUP, "certificatesigningrequests") {
            return Ok(());
        }
        let Some(object) = request.object.as_deref().filter(|o| text(o, "/spec/signerName") == SIGNER) else {
            return Ok(());
        };
        let asked = asked(object).map_err(|why| request.forbidden(format_args!("failed to parse CSR: {why}")))?;
        if asked.subject.organizations.iter().any(|organization| organization == "system:masters") {
            return Err(
                request.forbidden(format_args!("use of {SIGNER} signer with system:masters group is not allowed"))
            );
        }
        Ok(())
    }
}

/// What a CertificateSigningRequest asks for.
pub(super) fn asked(request: &Value) -> Result<ferry_x509::Request, String> {
    let standard = base64::engine::general_purpose::STANDARD;
    let pem = standard.decode(text(request, "/spec/request")).map_err(|e| e.to_string())?;
    ferry_x509::Request::from_pem(&pem).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Case;
    use ferry_auth::{Decision, PolicyRule};
    use serde_json::json;

    struct Rules(PolicyRule);

    #[async_trait::async_trait]
    impl Authorizer for Rules {
        async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
            if self.0.allows(attributes) { Decision::allow() } else { Decision::no_opinion("") }
        }
    }

    #[tokio::test]
    async fn signers_are_approved_by_name_or_domain() {
        let names = vec!["example.com/*".to_owned(), "k8s.io/one".to_owned()];
        let rule =
            PolicyRule { resource_names: names, ..PolicyRule::new(&["approve", "sign"], &[GROUP], &["signers"]) };
        let plugin = CertificateApproval::new(Arc::new(Rules(rule)));
        for (signer, allowed) in [("example.com/a", true), ("k8s.io/one", true), ("k8s.io/two", false)] {
            let object = json!({"metadata": {"name": "r"}, "spec": {"signerName": signer}});
            let case = Case::update(GROUP, "certificatesigningrequests", "", object.clone(), object).at("approval");
            let got = case.validate(&plugin).await.err().map(|error| error.0.message);
            let want = format!(
                "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to approve requests with signerName {signer:?}"
            );
            assert_eq!(got, (!allowed).then_some(want));
        }
    }

    /// Pods choose the bundles of a signer by labels.
    #[tokio::test]
    async fn labels_of_a_bundle_are_for_those_who_attest() {
        let old = json!({"metadata": {"name": "b", "labels": {"trusted": "no"}}, "spec": {"signerName": "a.io/x", "trustBundle": "t"}});
        let mut labelled = old.clone();
        labelled["metadata"]["labels"]["trusted"] = json!("yes");
        let mut finalized = old.clone();
        finalized["metadata"]["finalizers"] = json!(["a.io/f"]);
        for (verb, object, allowed) in
            [("sign", &labelled, false), ("sign", &finalized, true), ("sign", &old, true), ("attest", &labelled, true)]
        {
            let plugin =
                ClusterTrustBundleAttest::new(Arc::new(Rules(PolicyRule::new(&[verb], &[GROUP], &["signers"]))));
            let case = Case::update(GROUP, "clustertrustbundles", "", object.clone(), old.clone());
            assert_eq!(case.validate(&plugin).await.is_ok(), allowed, "{verb} {object}");
        }
    }

    #[tokio::test]
    async fn masters_are_not_to_be_had() {
        let check = async |group: &str| {
            let mut parameters = rcgen::CertificateParams::default();
            parameters.distinguished_name.push(rcgen::DnType::OrganizationName, group);
            let key = rcgen::KeyPair::generate().expect("a key");
            let pem = parameters.serialize_request(&key).expect("a request").pem().expect("pem");
            let encoded = base64::engine::general_purpose::STANDARD.encode(pem);
            let object = json!({"metadata": {"name": "r"},
                "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "request": encoded}});
            let case = Case::create(GROUP, "certificatesigningrequests", "", object);
            case.validate(&CertificateSubjectRestriction).await.err().map(|error| error.0.message)
        };
        assert_eq!(check("devs").await, None);
        assert!(
            check("system:masters").await.expect("refused").ends_with(
                "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
            )
        );
    }
}

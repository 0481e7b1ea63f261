//! Approves what kubelets ask for to be clients, when they may: after a SubjectAccessReview, as upstream.

use ferry_client::controller::Action;
use ferry_client::{Api, Error};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Client, ResourceExt};

use super::{KUBELET_CLIENT, condition, is_issued, push, request};
use crate::Context;

pub(crate) fn start(context: &Context) {
    let clock = context.config.clock.clone();
    super::run(context, "csrapproving", move |client, found| reconcile(client, found, clock.time()));
}

async fn reconcile(client: Client, mut found: CertificateSigningRequest, now: Time) -> Result<Action, Error> {
    let decided = ["Approved", "Denied", "Failed"].iter().any(|kind| condition(&found, kind).is_some());
    if decided || is_issued(&found) || found.spec.signer_name != KUBELET_CLIENT {
        return Ok(Action::Done);
    }
    // What cannot be read is for an administrator to judge.
    let Ok(asked) = request::read(&found) else { return Ok(Action::Done) };
    if !request::is_kubelet_client(&asked) {
        return Ok(Action::Done);
    }
    let own = found.spec.username.as_deref().is_some_and(|user| asked.request.common_name() == Ok(user));
    let tries = [
        (own, "selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
        (true, "nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
    ];
    for (applies, subresource, message) in tries {
        if applies && is_allowed(&client, &found, subresource).await? {
            push(&mut found, "Approved", "AutoApproved", message, now);
            let api: Api<CertificateSigningRequest> = Api::all(client);
            api.replace_subresource("approval", &found.name_any(), &PostParams::default(), &found).await?;
            return Ok(Action::Done);
        }
    }
    // Whoever asks may be allowed to later on, and nothing would tell.
    Err(format!("recognized csr {:?} but subject access review was not approved", found.name_any()).into())
}

async fn is_allowed(client: &Client, found: &CertificateSigningRequest, subresource: &str) -> Result<bool, Error> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: found.spec.username.clone(),
            uid: found.spec.uid.clone(),
            groups: found.spec.groups.clone(),
            extra: found.spec.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                group: Some("certificates.k8s.io".into()),
                resource: Some("certificatesigningrequests".into()),
                verb: Some("create".into()),
                subresource: Some(subresource.into()),
                version: Some("*".into()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    Ok(api.create(&PostParams::default(), &review).await?.status.is_some_and(|status| status.allowed))
}

//! Certificates: requests approved, signed and cleaned up, and the bundle that clients trust the API server by.

pub(crate) mod approve;
pub(crate) mod clean;
pub(crate) mod clean_pod_requests;
mod request;
pub(crate) mod sign;
mod subject;
pub(crate) mod trust_bundle;

use std::future::Future;

use ferry_client::controller::{self, Action};
use ferry_client::{Error, ObjectKey, WorkQueue};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;

use crate::Context;

const NAME: &str = "certificate-controller";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// Runs one of the controllers over all requests.
fn run<Work, Done>(context: &Context, name: &'static str, reconcile: Work)
where
    Work: Fn(Client, CertificateSigningRequest) -> Done + Send + Sync + 'static,
    Done: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let (client, requests) = (context.client(NAME), context.informers.of::<CertificateSigningRequest>());
    let queue: WorkQueue<ObjectKey> = context.queue("certificate");
    let keys = queue.clone();
    requests.on_change(move |change| keys.add(ObjectKey::of(&**change.object())));
    let synced = requests.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, name, &queue, 1, ready, move |key: ObjectKey| {
        let work = requests.get_key(&key).map(|found| reconcile(client.clone(), (*found).clone()));
        async move {
            match work {
                Some(work) => work.await,
                None => Ok(Action::Done),
            }
        }
    });
}

fn condition<'a>(request: &'a CertificateSigningRequest, kind: &str) -> Option<&'a CertificateSigningRequestCondition> {
    let conditions = request.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

fn is_issued(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().and_then(|status| status.certificate.as_ref()).is_some_and(|bytes| !bytes.0.is_empty())
}

fn push(request: &mut CertificateSigningRequest, kind: &str, reason: &str, message: &str, now: Time) {
    let conditions = request.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: kind.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now),
    });
}

//! Certificates that a node asks for: its own, and those of the pods it runs.

use ferry_meta::object::{items, text, uid};
use serde_json::Value;

use super::{Answer, GrantAnswer, NodeRestriction, Refusal, missing, not_yet, refuse};
use crate::plugins::certificates::asked;
use crate::pod::is_mirror;
use crate::resources::SERVICE_ACCOUNTS;
use crate::{Operation, Request};

const SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// A node's certificates carry its own name. The signers judge the rest.
pub(super) fn signing(node: &str, request: &Request<'_>) -> Answer {
    let Some(object) = request.object.as_deref().filter(|_| request.operation == Operation::Create) else {
        return Ok(());
    };
    if ![SERVING, CLIENT].contains(&text(object, "/spec/signerName")) {
        return Ok(());
    }
    let asked = asked(object).map_err(|why| Refusal::Forbidden(format!("unable to parse csr: {why}")))?;
    match asked.common_name() {
        Ok(name) if name.strip_prefix("system:node:") == Some(node) => Ok(()),
        _ => refuse(format!("can only create a node CSR with CN=system:node:{node}")),
    }
}

impl NodeRestriction {
    pub(super) async fn pod_certificate(&self, node: &str, request: &Request<'_>) -> Answer {
        if request.operation != Operation::Create {
            return refuse(format!("unexpected operation {}", request.operation.as_str()));
        }
        if !request.subresource.is_empty() {
            return refuse(format!("unexpected subresource {}", request.subresource));
        }
        let Some(object) = request.object.as_deref() else { return refuse("unexpected type <nil>") };
        let asked = |field: &str| text(object, &format!("/spec/{field}"));
        self.names_this_node(node, asked("nodeName"), asked("nodeUID"), request.namespace, asked("podName"))?;

        let shown = format!("{}/{}", request.namespace, asked("podName"));
        let pod = self.existing_pod(request.namespace, asked("podName")).map_err(|error| {
            not_yet(format!("while retrieving pod {shown:?} named in the PodCertificateRequest: {error}"))
        })?;
        if asked("podUID") != uid(&pod) {
            return Err(not_yet(format!(
                "PodCertificateRequest for pod {shown:?} contains pod UID ({:?}) which differs from running pod {:?}",
                asked("podUID"),
                uid(&pod)
            )));
        }
        if text(&pod, "/spec/nodeName") != node {
            return refuse(format!("pod {shown:?} is not running on node {node:?} named in the PodCertificateRequest"));
        }
        if is_mirror(&pod) {
            return refuse(format!("pod {shown:?} is a mirror pod"));
        }
        self.of_the_account(&pod, request.namespace, &shown, asked("serviceAccountName"), asked("serviceAccountUID"))?;
        self.signer(&pod, request, &shown, asked("signerName"), asked("serviceAccountName")).await
    }

    fn names_this_node(&self, node: &str, named: &str, given: &str, namespace: &str, pod: &str) -> Answer {
        if named != node {
            return refuse(format!(
                "PodCertificateRequest.Spec.NodeName={named:?}, which is not the requesting node {node:?}"
            ));
        }
        let object = self.existing_node(node).map_err(|error| {
            not_yet(format!("while retrieving node {node:?} named in the PodCertificateRequest: {error}"))
        })?;
        let (shown, real) = (format!("{namespace}/{pod}"), uid(&object));
        if given == real {
            return Ok(());
        }
        Err(not_yet(format!(
            "PodCertificateRequest for pod {shown:?} names node UID {given:?}, inconsistent with the running node ({real:?})"
        )))
    }

    fn of_the_account(&self, pod: &Value, namespace: &str, shown: &str, account: &str, given: &str) -> Answer {
        let real = text(pod, "/spec/serviceAccountName");
        if account != real {
            return refuse(format!(
                "PodCertificateRequest for pod {shown:?} contains serviceAccountName ({account:?}) that differs from running pod ({real:?})"
            ));
        }
        let Some(object) = self.reader.get(&SERVICE_ACCOUNTS, namespace, account) else {
            let (error, shown) = (missing("", "serviceaccount", account), format!("{namespace}/{account}"));
            return Err(not_yet(format!(
                "while retrieving service account {shown:?} named in the PodCertificateRequest: {error}"
            )));
        };
        let real = uid(&object);
        if given == real {
            return Ok(());
        }
        Err(not_yet(format!(
            "PodCertificateRequest for pod {shown:?} names service account UID {given:?}, which differs from the running service account ({real:?})"
        )))
    }

    async fn signer(&self, pod: &Value, request: &Request<'_>, shown: &str, signer: &str, account: &str) -> Answer {
        let mounts = items(pod, "/spec/volumes")
            .iter()
            .flat_map(|volume| items(volume, "/projected/sources"))
            .filter_map(|source| source.get("podCertificate").filter(|source| source.is_object()))
            .any(|source| text(source, "/signerName") == signer);
        if mounts {
            return Ok(());
        }
        // Rules cannot name resources with a slash.
        let resource = signer.replace('/', ":");
        match self.is_granted(request, "request-serviceaccounts-podcertificate-signer", &resource, account).await {
            GrantAnswer::Granted => Ok(()),
            GrantAnswer::Refused => {
                refuse(format!("pod {shown:?} does not mount a podCertificate projected volume for signer {signer:?}"))
            }
            GrantAnswer::Unknown(why) => {
                let user = &request.user.name;
                refuse(format!(
                    "error authorizing {user} to request podcertificaterequests for signer {signer:?}: {why}"
                ))
            }
        }
    }
}

//! What pods refer to, and so which objects a node may read.

use ferry_meta::ObjectReader;
use ferry_meta::object::{annotations, items, name, namespace, text};
use serde_json::Value;

use crate::resources::{PERSISTENT_VOLUMES, PODS};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Related {
    Pod,
    Secret,
    ConfigMap,
    Claim,
    Volume,
    ResourceClaim,
    Attachment,
    ServiceAccount,
    Slice,
    CertificateRequest,
}

/// Whether some pod bound to the node refers to the object, directly or through its volume claims.
pub(super) fn pod_of_node_refers(
    reader: &dyn ObjectReader,
    node: &str,
    kind: Related,
    namespace: &str,
    name: &str,
) -> bool {
    let claim_used = |namespace: &str, claim: &str| {
        pods_of_node(reader, node, namespace).any(|pod| refers(&pod, Related::Claim, claim))
    };
    match kind {
        Related::Volume => reader.get(&PERSISTENT_VOLUMES, "", name).is_some_and(|volume| {
            claim_used(text(&volume, "/spec/claimRef/namespace"), text(&volume, "/spec/claimRef/name"))
        }),
        Related::Secret => {
            pods_of_node(reader, node, namespace).any(|pod| refers(&pod, kind, name))
                || reader.list(&PERSISTENT_VOLUMES, "").iter().any(|volume| {
                    volume_secret(volume, namespace, name)
                        && claim_used(text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"))
                })
        }
        _ => pods_of_node(reader, node, namespace).any(|pod| refers(&pod, kind, name)),
    }
}

/// Mirror pods are written by the node itself and must not open anything to it.
fn pods_of_node(reader: &dyn ObjectReader, node: &str, namespace: &str) -> impl Iterator<Item = std::sync::Arc<Value>> {
    // An empty namespace would list the pods of all of them.
    let pods = if namespace.is_empty() { Vec::new() } else { reader.list(&PODS, namespace) };
    let node = node.to_owned();
    pods.into_iter().filter(move |pod| {
        text(pod, "/spec/nodeName") == node && !annotations(pod).contains_key("kubernetes.io/config.mirror")
    })
}

fn refers(pod: &Value, kind: Related, wanted: &str) -> bool {
    match kind {
        Related::ServiceAccount => text(pod, "/spec/serviceAccountName") == wanted,
        Related::Secret => {
            items(pod, "/spec/imagePullSecrets").iter().any(|secret| text(secret, "/name") == wanted)
                || containers(pod).any(|c| environment(c, "secretRef", "secretKeyRef", wanted))
                || volumes(pod).any(|volume| volume_of_secret(volume, wanted))
        }
        Related::ConfigMap => {
            containers(pod).any(|c| environment(c, "configMapRef", "configMapKeyRef", wanted))
                || volumes(pod).any(|volume| {
                    text(volume, "/configMap/name") == wanted
                        || items(volume, "/projected/sources").iter().any(|s| text(s, "/configMap/name") == wanted)
                })
        }
        Related::Claim => volumes(pod).any(|volume| {
            text(volume, "/persistentVolumeClaim/claimName") == wanted
                || (volume.get("ephemeral").is_some() && format!("{}-{}", name(pod), text(volume, "/name")) == wanted)
        }),
        Related::ResourceClaim => {
            items(pod, "/spec/resourceClaims").iter().any(|claim| resource_claim(pod, claim) == wanted)
                || text(pod, "/status/extendedResourceClaimStatus/resourceClaimName") == wanted
        }
        Related::Pod | Related::Volume | Related::Attachment | Related::Slice | Related::CertificateRequest => false,
    }
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"]
        .into_iter()
        .flat_map(|pointer| items(pod, pointer))
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    items(pod, "/spec/volumes").iter()
}

fn environment(container: &Value, whole: &str, key: &str, wanted: &str) -> bool {
    items(container, "/envFrom").iter().any(|source| text(source, &format!("/{whole}/name")) == wanted)
        || items(container, "/env").iter().any(|variable| text(variable, &format!("/valueFrom/{key}/name")) == wanted)
}

/// Where the volume sources of a pod name a Secret of its namespace.
fn volume_of_secret(volume: &Value, wanted: &str) -> bool {
    const NAMES: [&str; 10] = [
        "/secret/secretName",
        "/azureFile/secretName",
        "/cephfs/secretRef/name",
        "/cinder/secretRef/name",
        "/flexVolume/secretRef/name",
        "/iscsi/secretRef/name",
        "/rbd/secretRef/name",
        "/scaleIO/secretRef/name",
        "/storageos/secretRef/name",
        "/csi/nodePublishSecretRef/name",
    ];
    NAMES.iter().any(|pointer| text(volume, pointer) == wanted)
        || items(volume, "/projected/sources").iter().any(|source| text(source, "/secret/name") == wanted)
}

/// The claim behind an entry of the spec: named there, or made from a template and then named in the status.
fn resource_claim<'a>(pod: &'a Value, claim: &'a Value) -> &'a str {
    let named = text(claim, "/resourceClaimName");
    if !named.is_empty() {
        return named;
    }
    let mut made = items(pod, "/status/resourceClaimStatuses").iter();
    made.find(|made| text(made, "/name") == text(claim, "/name")).map_or("", |made| text(made, "/resourceClaimName"))
}

/// Where a PersistentVolume names a Secret that its node needs. What only controllers use is not the node's.
fn volume_secret(volume: &Value, wanted_namespace: &str, wanted: &str) -> bool {
    /// With the namespace of the reference and no other.
    const IN_THEIR_NAMESPACE: [&str; 5] = [
        "/spec/csi/nodePublishSecretRef",
        "/spec/csi/nodeStageSecretRef",
        "/spec/csi/nodeExpandSecretRef",
        "/spec/cinder/secretRef",
        "/spec/storageos/secretRef",
    ];
    /// Without a namespace it is the claim's.
    const OR_THE_CLAIMS: [&str; 5] = [
        "/spec/cephfs/secretRef",
        "/spec/flexVolume/secretRef",
        "/spec/iscsi/secretRef",
        "/spec/rbd/secretRef",
        "/spec/scaleIO/secretRef",
    ];
    debug_assert!(namespace(volume).is_empty());
    let or_claim = |namespace: &str| {
        let namespace = if namespace.is_empty() { text(volume, "/spec/claimRef/namespace") } else { namespace };
        namespace == wanted_namespace
    };
    let named = |pointer: &str| volume.pointer(pointer).filter(|reference| text(reference, "/name") == wanted);
    IN_THEIR_NAMESPACE.iter().filter_map(|pointer| named(pointer)).any(|r| text(r, "/namespace") == wanted_namespace)
        || OR_THE_CLAIMS.iter().filter_map(|pointer| named(pointer)).any(|r| or_claim(text(r, "/namespace")))
        || volume
            .pointer("/spec/azureFile")
            .is_some_and(|source| text(source, "/secretName") == wanted && or_claim(text(source, "/secretNamespace")))
}

//! Which other objects of the API a pod refers to. A mirror pod refers to none.

use ferry_meta::object::{items, text};
use serde_json::Value;

use crate::pod::{is_set, refers_to_config_maps, refers_to_secrets};

/// Volumes that need nothing of the API beside the pod itself.
const ON_THEIR_OWN: [&str; 23] = [
    "/awsElasticBlockStore",
    "/azureDisk",
    "/cephfs",
    "/cinder",
    "/downwardAPI",
    "/emptyDir",
    "/fc",
    "/flexVolume",
    "/flocker",
    "/gcePersistentDisk",
    "/gitRepo",
    "/hostPath",
    "/image",
    "/iscsi",
    "/nfs",
    "/photonPersistentDisk",
    "/portworxVolume",
    "/quobyte",
    "/rbd",
    "/scaleIO",
    "/storageos",
    "/vsphereVolume",
    "/projected",
];

/// Volumes that stand for an object of the API, and what they are called to the node.
const VOLUMES: [(&str, &str); 7] = [
    ("/configMap", "configmaps (via configmap volumes)"),
    ("/secret", "secrets (via secret volumes)"),
    ("/csi", "csidrivers (via CSI volumes)"),
    ("/glusterfs", "endpoints (via glusterFS volumes)"),
    ("/persistentVolumeClaim", "persistentvolumeclaims"),
    ("/ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("/azureFile", "secrets (via azureFile volumes)"),
];

const PROJECTED: [(&str, &str); 5] = [
    ("/configMap", "configmaps (via projected volumes)"),
    ("/secret", "secrets (via projected volumes)"),
    ("/serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("/clusterTrustBundle", "clustertrustbundles"),
    ("/podCertificate", "podcertificates"),
];

/// The first thing of the API that the pod refers to. What is not known is an error: it may refer to anything.
pub(super) fn of(pod: &Value) -> Result<Option<&'static str>, String> {
    for (found, what) in [
        (!text(pod, "/spec/serviceAccountName").is_empty(), "serviceaccounts"),
        (refers_to_secrets(pod), "secrets"),
        (refers_to_config_maps(pod), "configmaps"),
        (!items(pod, "/spec/resourceClaims").is_empty(), "resourceclaims"),
    ] {
        if found {
            return Ok(Some(what));
        }
    }
    for volume in items(pod, "/spec/volumes") {
        if let Some((_, what)) = VOLUMES.iter().find(|(source, _)| is_set(volume, source)) {
            return Ok(Some(what));
        }
        if !ON_THEIR_OWN.iter().any(|source| is_set(volume, source)) {
            return Err(format!("unknown volume type for volume  {:?}", text(volume, "/name")));
        }
        for source in items(volume, "/projected/sources") {
            if let Some((_, what)) = PROJECTED.iter().find(|(kind, _)| is_set(source, kind)) {
                return Ok(Some(what));
            }
            if !is_set(source, "/downwardAPI") {
                return Err(format!("unknown source for projected volume {:?}", text(volume, "/name")));
            }
        }
    }
    Ok(None)
}

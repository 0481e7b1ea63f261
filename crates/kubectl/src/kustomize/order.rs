//! The order in which objects are applied: what others need comes first.

use super::Item;

const FIRST: [&str; 22] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

pub fn sort(items: &mut [Item]) {
    items.sort_by_key(|item| {
        let kind = item.kind();
        let place = |list: &[&str]| list.iter().position(|known| *known == kind);
        let rank = match (place(&FIRST), place(&LAST)) {
            (Some(at), _) => (0, at),
            (_, Some(at)) => (2, at),
            _ => (1, 0),
        };
        let api_version = item.object["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("~G", api_version));
        let namespace = item.object["metadata"]["namespace"].as_str().unwrap_or("~X");
        (rank, format!("{group}_{version}_{kind}"), format!("{namespace}|{}", item.name()))
    });
}

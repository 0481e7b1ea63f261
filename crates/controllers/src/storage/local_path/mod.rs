//! The local-path provisioner: for each claim of its classes a folder on the node that the scheduler chose, as a volume of
//! type `local`. The kubelets make and remove the folders (decision 270).

mod folders;
mod plan;
mod reconcile;
mod refuse;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

pub(crate) use reconcile::start;

/// Its ServiceAccount, in kube-system.
pub const ACCOUNT: &str = "local-path-provisioner";

/// All that it may do.
pub fn rules() -> Value {
    let watch = ["get", "list", "watch"];
    json!([
        { "apiGroups": [""], "resources": ["nodes"], "verbs": watch },
        { "apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": watch },
        { "apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "list", "watch", "patch"] },
        { "apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get", "list", "watch", "create", "update", "delete"] },
        { "apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"] },
        // Folders of nodes, and nothing else of their kubelets.
        { "nonResourceURLs": ["/ferry/v1/local-volumes/*"], "verbs": ["get", "put", "delete"] },
    ])
}

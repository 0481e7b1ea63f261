//! The resources this crate reads, named once.

use std::sync::LazyLock;

use ferry_meta::GroupResource;

macro_rules! resources {
    ($($name:ident: $group:literal, $resource:literal;)*) => {
        $(pub(crate) static $name: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new($group, $resource));)*
    };
}

resources! {
    SECRETS: "", "secrets";
    CONFIG_MAPS: "", "configmaps";
    PODS: "", "pods";
    NODES: "", "nodes";
    PERSISTENT_VOLUMES: "", "persistentvolumes";
    SERVICE_ACCOUNTS: "", "serviceaccounts";
    RESOURCE_SLICES: "resource.k8s.io", "resourceslices";
    CERTIFICATE_REQUESTS: "certificates.k8s.io", "podcertificaterequests";
    VOLUME_ATTACHMENTS: "storage.k8s.io", "volumeattachments";
    ROLES: "rbac.authorization.k8s.io", "roles";
    ROLE_BINDINGS: "rbac.authorization.k8s.io", "rolebindings";
    CLUSTER_ROLES: "rbac.authorization.k8s.io", "clusterroles";
    CLUSTER_ROLE_BINDINGS: "rbac.authorization.k8s.io", "clusterrolebindings";
}

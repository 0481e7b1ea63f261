//! The resources this crate reads, named once.

use std::sync::LazyLock;

use ferry_meta::GroupResource;

macro_rules! resources {
    ($($name:ident: $group:literal, $resource:literal;)*) => {
        $(pub(crate) static $name: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new($group, $resource));)*
    };
}

resources! {
    CLAIMS: "", "persistentvolumeclaims";
    CSI_DRIVERS: "storage.k8s.io", "csidrivers";
    DEFINITIONS: "apiextensions.k8s.io", "customresourcedefinitions";
    ENDPOINT_SLICES: "discovery.k8s.io", "endpointslices";
    INGRESS_CLASSES: "networking.k8s.io", "ingressclasses";
    LIMIT_RANGES: "", "limitranges";
    NAMESPACES: "", "namespaces";
    NODES: "", "nodes";
    PODS: "", "pods";
    PRIORITY_CLASSES: "scheduling.k8s.io", "priorityclasses";
    RESOURCE_QUOTAS: "", "resourcequotas";
    RUNTIME_CLASSES: "node.k8s.io", "runtimeclasses";
    SERVICES: "", "services";
    SERVICE_ACCOUNTS: "", "serviceaccounts";
    STORAGE_CLASSES: "storage.k8s.io", "storageclasses";
    VOLUMES: "", "persistentvolumes";
}

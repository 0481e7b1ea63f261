//! The resources this crate reads, named once.

use std::sync::LazyLock;

use ferry_meta::GroupResource;

macro_rules! resources {
    ($($name:ident: $group:literal, $resource:literal;)*) => {
        $(pub(crate) static $name: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new($group, $resource));)*
    };
}

resources! {
    NAMESPACES: "", "namespaces";
    NODES: "", "nodes";
    PODS: "", "pods";
    SERVICE_ACCOUNTS: "", "serviceaccounts";
    PRIORITY_CLASSES: "scheduling.k8s.io", "priorityclasses";
}

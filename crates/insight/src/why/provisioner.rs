//! Who makes volumes for a class, as far as anything in the cluster tells of it.

use ferry_meta::object;
use ferry_semantics::local_volumes;
use serde_json::Value;

use super::{Finding, Reason};
use crate::world::World;

pub(super) const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Where the class of a claim stood before it had a field.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// What whoever makes a volume writes into it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Provisioners that were part of Kubernetes, and the CSI drivers that now do their work.
const MIGRATED: [(&str, &str); 8] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
    ("kubernetes.io/rbd", "rbd.csi.ceph.com"),
];

/// The class that a claim or a volume names; None where it names none.
pub(super) fn class_of(item: &Value) -> Option<&str> {
    let old = object::annotations(item).get(OLD_CLASS).and_then(Value::as_str);
    old.or_else(|| item.pointer("/spec/storageClassName").and_then(Value::as_str))
}

/// The CSI driver that does the work of a provisioner.
pub(super) fn driver(provisioner: &str) -> &str {
    MIGRATED.iter().find(|(old, _)| *old == provisioner).map_or(provisioner, |(_, driver)| driver)
}

/// What is not there.
pub(super) fn no_driver(provisioner: &str) -> String {
    let name = match driver(provisioner) {
        same if same == provisioner => "of that name".to_owned(),
        driver => format!("{driver}, which has taken its place"),
    };
    format!("there is no CSIDriver {name}, and no node has registered it; a provisioner may also work without")
}

/// Whether nothing in the cluster calls itself like a provisioner, and no volume tells of its work.
pub(super) fn is_unknown(world: &World, provisioner: &str) -> bool {
    // Ferry's own is no driver: it is one of the controllers.
    if provisioner == local_volumes::PROVISIONER {
        return false;
    }
    let name = driver(provisioner);
    let there = world.seen("csidrivers").map(|all| all.iter().any(|one| object::name(one) == name));
    let is_it = |driver: &Value| object::text(driver, "/name") == name;
    let on_node = |node: &Value| object::items(node, "/spec/drivers").iter().any(is_it);
    let made = |volume: &Value| object::annotations(volume).get(PROVISIONED_BY).is_some_and(|by| by == provisioner);
    let has_made = world.all("persistentvolumes").iter().any(made);
    there == Some(false) && !world.all("csinodes").iter().any(on_node) && !has_made
}

/// A class of its own: whether anybody makes volumes for it.
pub(super) fn class(world: &World, class: &Value) -> Option<Finding> {
    let provisioner = object::text(class, "/provisioner");
    (provisioner != NO_PROVISIONER && is_unknown(world, provisioner)).then(|| {
        let cause = format!("nobody makes volumes for it: its provisioner {provisioner} is not there as a CSI driver");
        Finding::new(Reason::ProvisionerMissing, class, cause).probably().detail(no_driver(provisioner)).advise(
            format!(
                "install {}; a class's provisioner cannot be changed: to name another, create the class anew",
                driver(provisioner)
            ),
        )
    })
}

/// A class of attributes: whether its driver is there.
pub(super) fn attributes(world: &World, class: &Value) -> Option<Finding> {
    let name = object::text(class, "/driverName");
    is_unknown(world, name).then(|| {
        let cause = format!("nobody gives volumes these attributes: its driver {name} is not there");
        Finding::new(Reason::ProvisionerMissing, class, cause).probably().detail(no_driver(name)).advise(format!(
            "install {name}; a class's driver cannot be changed: to name another, create the class anew"
        ))
    })
}

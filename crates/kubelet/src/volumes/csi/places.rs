//! Where a driver's volume and what is remembered of it are on this node: where upstream's kubelet has them, since some
//! drivers look there.

use std::path::{Path, PathBuf};

use super::hex;

#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The pod's record.
    pub(super) record: PathBuf,
    /// Where the driver publishes it to the pod.
    pub(super) target: PathBuf,
    /// The node's record.
    pub(super) staged: PathBuf,
    /// Where the driver stages it.
    pub(super) staging: PathBuf,
}

/// Folders of a pod in which drivers' volumes are recorded: file systems and devices.
pub(super) const KINDS: [(&str, bool); 2] = [("volumes", false), ("volumeDevices", true)];

pub(super) fn records(pod: &Path, kind: &str) -> PathBuf {
    pod.join(kind).join("kubernetes.io~csi")
}

impl Places {
    /// `root` is the kubelet's folder.
    pub(super) fn new(root: &Path, uid: &str, name: &str, driver: &str, handle: &str, block: bool) -> Self {
        let pod = root.join("pods").join(uid);
        let own = root.join("plugins").join("kubernetes.io").join("csi");
        let record = records(&pod, KINDS[usize::from(block)].0).join(name);
        if block {
            let devices = own.join("volumeDevices");
            return Self {
                record,
                target: devices.join("publish").join(name).join(uid),
                staged: devices.join(name).join("data"),
                staging: devices.join("staging").join(name),
            };
        }
        let staged = own.join(driver).join(hex(handle));
        Self { target: record.join("mount"), record, staging: staged.join("globalmount"), staged }
    }
}

//! What a pod wants of a storage driver, from a persistent volume or in its own words.

use std::collections::{BTreeMap, HashMap};

use ferry_plugins::csi::VolumeCapability;
use ferry_plugins::csi::volume_capability::access_mode::Mode;
use ferry_plugins::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use k8s_openapi::api::core::v1::{CSIVolumeSource, PersistentVolumeSpec, Pod, SecretReference};

use super::hex;
use crate::plugins::Driver;
use crate::pod;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::volumes) enum Lifecycle {
    Persistent,
    Ephemeral,
}

impl Lifecycle {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Persistent => "Persistent",
            Self::Ephemeral => "Ephemeral",
        }
    }
}

pub(in crate::volumes) struct Wanted {
    /// The name of the persistent volume, or of the pod's.
    pub(super) name: String,
    pub(super) driver: String,
    pub(super) handle: String,
    pub(super) lifecycle: Lifecycle,
    pub(super) read_only: bool,
    pub(super) file_system: String,
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) options: Vec<String>,
    pub(super) access: Vec<String>,
    pub(super) stage_secret: Option<SecretReference>,
    pub(super) publish_secret: Option<SecretReference>,
    pub(super) expand_secret: Option<SecretReference>,
    /// A device, in place of a file system.
    pub(super) block: bool,
}

impl Wanted {
    /// None where the volume is no driver's.
    pub(in crate::volumes) fn persistent(name: &str, spec: &PersistentVolumeSpec, read_only: bool) -> Option<Self> {
        let source = spec.csi.as_ref()?;
        Some(Self {
            name: name.to_owned(),
            driver: source.driver.clone(),
            handle: source.volume_handle.clone(),
            lifecycle: Lifecycle::Persistent,
            read_only: read_only || source.read_only == Some(true),
            file_system: source.fs_type.clone().unwrap_or_default(),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            options: spec.mount_options.clone().unwrap_or_default(),
            access: spec.access_modes.clone().unwrap_or_default(),
            stage_secret: source.node_stage_secret_ref.clone(),
            publish_secret: source.node_publish_secret_ref.clone(),
            expand_secret: source.node_expand_secret_ref.clone(),
            block: spec.volume_mode.as_deref() == Some("Block"),
        })
    }

    pub(in crate::volumes) fn inline(pod: &Pod, name: &str, source: &CSIVolumeSource) -> Self {
        let secret = source.node_publish_secret_ref.as_ref().map(|reference| SecretReference {
            name: Some(reference.name.clone()),
            namespace: Some(pod::namespace(pod).to_owned()),
        });
        Self {
            name: name.to_owned(),
            driver: source.driver.clone(),
            // As upstream makes it, so that drivers see the same.
            handle: format!("csi-{}", hex(&format!("{}{name}", pod::uid(pod)))),
            lifecycle: Lifecycle::Ephemeral,
            read_only: source.read_only == Some(true),
            file_system: source.fs_type.clone().unwrap_or_default(),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            options: Vec::new(),
            access: vec!["ReadWriteOnce".to_owned()],
            stage_secret: None,
            publish_secret: secret,
            expand_secret: None,
            block: false,
        }
    }

    pub(super) fn capability(&self, driver: &Driver, group: Option<u32>) -> VolumeCapability {
        let mode = match self.access.first().map(String::as_str) {
            Some("ReadWriteMany") => Mode::MultiNodeMultiWriter,
            Some("ReadOnlyMany") => Mode::MultiNodeReaderOnly,
            Some("ReadWriteOncePod") if driver.single_writers => Mode::SingleNodeSingleWriter,
            _ if driver.single_writers => Mode::SingleNodeMultiWriter,
            _ => Mode::SingleNodeWriter,
        };
        let group = group.filter(|_| driver.groups).map(|group| group.to_string());
        let kind = if self.block {
            AccessType::Block(BlockVolume {})
        } else {
            AccessType::Mount(MountVolume {
                fs_type: self.file_system.clone(),
                mount_flags: self.options.clone(),
                volume_mount_group: group.unwrap_or_default(),
            })
        };
        VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type: Some(kind) }
    }

    /// What the driver is told of the volume, and of the pod where it wants to know.
    pub(super) fn context(&self, pod: Option<&Pod>) -> HashMap<String, String> {
        let mut context: HashMap<String, String> =
            self.attributes.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let Some(pod) = pod else { return context };
        let account = pod::spec(pod).service_account_name.clone().unwrap_or_default();
        for (key, value) in [
            ("pod.name", pod::name(pod)),
            ("pod.namespace", pod::namespace(pod)),
            ("pod.uid", pod::uid(pod)),
            ("serviceAccount.name", &account),
            ("ephemeral", if self.lifecycle == Lifecycle::Ephemeral { "true" } else { "false" }),
        ] {
            context.insert(format!("csi.storage.k8s.io/{key}"), value.to_owned());
        }
        context
    }

    pub(in crate::volumes) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether files are given to the pod's group here, and not by the driver.
    pub(super) fn is_given(&self, policy: &str) -> bool {
        match policy {
            "None" => false,
            "File" => true,
            // A volume that others write too is theirs as well.
            _ => !self.file_system.is_empty() && self.access.iter().all(|mode| mode.starts_with("ReadWriteOnce")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_of_the_pods_own_is_asked_for_as_it_is_described() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}})).expect("a pod");
        let source: CSIVolumeSource = serde_json::from_value(json!({
            "driver": "d.example.com", "readOnly": true, "fsType": "xfs", "volumeAttributes": {"size": "large"},
            "nodePublishSecretRef": {"name": "s"},
        }))
        .expect("a source");
        let wanted = Wanted::inline(&pod, "v", &source);
        assert_eq!(
            (wanted.driver.as_str(), wanted.read_only, wanted.file_system.as_str()),
            ("d.example.com", true, "xfs")
        );
        assert_eq!(wanted.context(None), HashMap::from([("size".to_owned(), "large".to_owned())]));
        let secret = wanted.publish_secret.expect("a secret");
        assert_eq!((secret.namespace.as_deref(), secret.name.as_deref()), (Some("n"), Some("s")));
    }
}

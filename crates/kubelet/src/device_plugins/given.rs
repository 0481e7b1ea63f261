//! What a container gets by its devices: variables, mounts, device files, annotations, names of CDI devices.

use std::collections::{BTreeMap, BTreeSet};

use ferry_cri::v1::{CdiDevice, ContainerConfig, Device, KeyValue, Mount};
use ferry_plugins::deviceplugin::ContainerAllocateResponse;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Given {
    variables: BTreeMap<String, String>,
    mounts: Vec<Mount>,
    devices: Vec<Device>,
    annotations: BTreeMap<String, String>,
    /// By the name of each device.
    cdi: BTreeSet<String>,
}

impl Given {
    /// Adds what a plug-in answered. Of two answers that set the same, the first counts, as upstream has it.
    pub(super) fn add(&mut self, answer: &ContainerAllocateResponse) {
        for (name, value) in &answer.envs {
            self.variables.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &answer.annotations {
            self.annotations.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for mount in &answer.mounts {
            if !self.mounts.iter().any(|known| known.container_path == mount.container_path) {
                self.mounts.push(Mount {
                    container_path: mount.container_path.clone(),
                    host_path: mount.host_path.clone(),
                    readonly: mount.read_only,
                    ..Mount::default()
                });
            }
        }
        for device in &answer.devices {
            if !self.devices.iter().any(|known| known.container_path == device.container_path) {
                self.devices.push(Device {
                    container_path: device.container_path.clone(),
                    host_path: device.host_path.clone(),
                    permissions: device.permissions.clone(),
                });
            }
        }
        self.cdi.extend(answer.cdi_devices.iter().map(|device| device.name.clone()));
    }

    pub(crate) fn add_cdi(&mut self, names: impl IntoIterator<Item = String>) {
        self.cdi.extend(names);
    }

    pub(crate) fn has_cdi(&self) -> bool {
        !self.cdi.is_empty()
    }

    /// Puts it into a container. What the pod itself says stays: its variables and mounts come first.
    pub(crate) fn put_into(self, config: &mut ContainerConfig) {
        for (key, value) in self.variables {
            if !config.envs.iter().any(|known| known.key == key) {
                config.envs.push(KeyValue { key, value: value.into_bytes() });
            }
        }
        for mount in self.mounts {
            if !config.mounts.iter().any(|known| known.container_path == mount.container_path) {
                config.mounts.push(mount);
            }
        }
        config.devices.extend(self.devices);
        for (name, value) in self.annotations {
            config.annotations.entry(name).or_insert(value);
        }
        config.cdi_devices.extend(self.cdi.into_iter().map(|name| CdiDevice { name }));
    }
}

#[cfg(test)]
mod tests {
    use ferry_plugins::deviceplugin as api;

    use super::*;

    #[test]
    fn the_pods_own_words_and_the_first_answer_count() {
        let answer = |value: &str| ContainerAllocateResponse {
            envs: [("A".to_owned(), value.to_owned()), ("OWN".to_owned(), value.to_owned())].into(),
            mounts: vec![api::Mount { container_path: "/m".into(), host_path: value.into(), read_only: true }],
            devices: vec![api::DeviceSpec {
                container_path: "/dev/x".into(),
                host_path: value.into(),
                permissions: "rw".into(),
            }],
            annotations: [("a".to_owned(), value.to_owned())].into(),
            cdi_devices: vec![api::CdiDevice { name: format!("example.com/gpu={value}") }],
        };
        let mut given = Given::default();
        given.add(&answer("1"));
        given.add(&answer("2"));
        let mut config = ContainerConfig {
            envs: vec![KeyValue { key: "OWN".into(), value: b"pod".to_vec() }],
            ..ContainerConfig::default()
        };
        given.put_into(&mut config);
        let variables: Vec<(&str, &[u8])> = config.envs.iter().map(|v| (v.key.as_str(), v.value.as_slice())).collect();
        assert_eq!(variables, [("OWN", b"pod".as_slice()), ("A", b"1")]);
        assert_eq!(
            (config.mounts.len(), config.mounts[0].host_path.as_str(), config.mounts[0].readonly),
            (1, "1", true)
        );
        assert_eq!((config.devices.len(), config.devices[0].host_path.as_str()), (1, "1"));
        assert_eq!(config.annotations["a"], "1");
        let names: Vec<&str> = config.cdi_devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["example.com/gpu=1", "example.com/gpu=2"]);
    }
}

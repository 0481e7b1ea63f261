//! The parts of a bundle's `config.json` that are followed, as the OCI specification names them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::seccomp::Profile;
use crate::users::{Range, Users};

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    pub(crate) process: Process,
    pub(crate) root: Root,
    #[serde(default)]
    pub(crate) mounts: Vec<Mount>,
    #[serde(default)]
    pub(crate) hooks: Hooks,
    pub(crate) linux: Linux,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Process {
    pub(crate) user: User,
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: Vec<String>,
    pub(crate) cwd: String,
    #[serde(default)]
    pub(crate) no_new_privileges: bool,
    #[serde(default)]
    pub(crate) capabilities: Capabilities,
    pub(crate) oom_score_adj: Option<i64>,
    #[serde(default)]
    pub(crate) apparmor_profile: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    #[serde(default)]
    pub(crate) additional_gids: Vec<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Capabilities {
    pub(crate) bounding: Vec<String>,
    pub(crate) effective: Vec<String>,
    pub(crate) permitted: Vec<String>,
    pub(crate) inheritable: Vec<String>,
    pub(crate) ambient: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Root {
    pub(crate) path: PathBuf,
    #[serde(default)]
    pub(crate) readonly: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Mount {
    pub(crate) destination: PathBuf,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) source: PathBuf,
    #[serde(default)]
    pub(crate) options: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Linux {
    pub(crate) cgroups_path: String,
    #[serde(default)]
    pub(crate) resources: Resources,
    #[serde(default)]
    pub(crate) namespaces: Vec<Namespace>,
    /// The users of its user namespace, where it has one.
    #[serde(default)]
    pub(crate) uid_mappings: Vec<Range>,
    #[serde(default)]
    pub(crate) gid_mappings: Vec<Range>,
    #[serde(default)]
    pub(crate) devices: Vec<Device>,
    #[serde(default)]
    pub(crate) masked_paths: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) readonly_paths: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) rootfs_propagation: String,
    pub(crate) seccomp: Option<Profile>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Namespace {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// One to join; without it a new one is made.
    pub(crate) path: Option<PathBuf>,
}

impl Document {
    /// A namespace of its own: none, a new one, or one to join.
    pub(crate) fn namespace(&self, kind: &str) -> Option<Option<&Path>> {
        self.linux.namespaces.iter().find(|one| one.kind == kind).map(|one| one.path.as_deref())
    }

    pub(crate) fn users(&self) -> Users {
        Users { uids: self.linux.uid_mappings.clone(), gids: self.linux.gid_mappings.clone() }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Device {
    pub(crate) path: PathBuf,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    #[serde(default = "readable")]
    pub(crate) file_mode: u32,
    #[serde(default)]
    pub(crate) uid: u32,
    #[serde(default)]
    pub(crate) gid: u32,
    /// Its owner is one of the machine's users and none of the container's: nobody asked for this very device.
    #[serde(default)]
    pub(crate) owned_by_machine: bool,
}

fn readable() -> u32 {
    0o666
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Resources {
    pub(crate) devices: Vec<DeviceRule>,
    pub(crate) cpu: Cpu,
    pub(crate) memory: Memory,
    pub(crate) pids: Pids,
    pub(crate) hugepage_limits: Vec<HugePages>,
    pub(crate) unified: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DeviceRule {
    pub(crate) allow: bool,
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    pub(crate) major: Option<i64>,
    pub(crate) minor: Option<i64>,
    #[serde(default)]
    pub(crate) access: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cpu {
    pub(crate) shares: Option<u64>,
    pub(crate) quota: Option<i64>,
    pub(crate) period: Option<u64>,
    pub(crate) cpus: String,
    pub(crate) mems: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    pub(crate) limit: Option<i64>,
    /// With the memory itself.
    pub(crate) swap: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pids {
    pub(crate) limit: Option<i64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HugePages {
    pub(crate) page_size: String,
    pub(crate) limit: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Hooks {
    pub(crate) prestart: Vec<Hook>,
    pub(crate) create_runtime: Vec<Hook>,
    pub(crate) create_container: Vec<Hook>,
    pub(crate) start_container: Vec<Hook>,
    pub(crate) poststart: Vec<Hook>,
    pub(crate) poststop: Vec<Hook>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Hook {
    pub(crate) path: PathBuf,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: Vec<String>,
    /// Seconds.
    pub(crate) timeout: Option<u64>,
}

//! The mounts of one container: its volumes, `/etc/hosts` and the file for its last words.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferry_cri::v1::{Device, ImageSpec, Mount, MountPropagation};
use k8s_openapi::api::core::v1::{Container, VolumeMount};

use super::{Mounted, VolumePath, subpath};
use crate::spec::env::expand;
use crate::spec::room::Room;

/// What the mounts of a container are made from.
pub(crate) struct Mounts {
    pub(crate) container: Container,
    pub(crate) mounted: Arc<Mounted>,
    /// Volumes that are images, by the names the runtime gave them.
    pub(crate) images: HashMap<String, String>,
    pub(crate) pod_folder: PathBuf,
    /// The content of `/etc/hosts`; none leaves the image's own.
    pub(crate) hosts: Option<String>,
    pub(crate) variables: Vec<(String, String)>,
    /// Whether the runtime can make a mount read-only together with what is mounted below it.
    pub(crate) recursive_read_only: bool,
}

/// Makes what has to exist and gives the mounts. Blocks.
pub(crate) fn container_mounts(input: &Mounts) -> Result<Vec<Mount>, String> {
    let container = &input.container;
    let variables = input.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let part = part_of(mount, &variables)?;
        if let Some(image) = input.images.get(&mount.name) {
            mounts.push(Mount {
                container_path: absolute(&mount.mount_path),
                image: Some(ImageSpec { image: image.clone(), ..ImageSpec::default() }),
                image_sub_path: part,
                readonly: true,
                ..Mount::default()
            });
            continue;
        }
        let Some(VolumePath { path, read_only, .. }) = input.mounted.places.get(&mount.name) else {
            return Err(format!("cannot find volume {:?} to mount into container {:?}", mount.name, container.name));
        };
        let host = if part.is_empty() {
            path.clone()
        } else {
            let place = input.pod_folder.join("volume-subpaths").join(&mount.name).join(&container.name);
            subpath::bind(path, &part, &place.join(index.to_string())).map_err(|error| {
                // What is wrong may tell of the node's files.
                tracing::warn!(container = container.name, volume = mount.name, "subPath {part:?}: {error}");
                let (volume, name) = (&mount.name, &container.name);
                format!("failed to prepare subPath for volumeMount {volume:?} of container {name:?}")
            })?
        };
        let propagation = match mount.mount_propagation.as_deref() {
            Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
            Some("Bidirectional") => MountPropagation::PropagationBidirectional,
            _ => MountPropagation::PropagationPrivate,
        };
        mounts.push(Mount {
            container_path: absolute(&mount.mount_path),
            host_path: host.to_string_lossy().into_owned(),
            recursive_read_only: recursive_read_only(mount, input.recursive_read_only)?,
            readonly: *read_only || mount.read_only == Some(true),
            propagation: propagation.into(),
            ..Mount::default()
        });
    }
    let takes = |path: &str| mounts.iter().any(|m| m.container_path == path);
    let mut own = Vec::new();
    if let Some(text) = input.hosts.as_ref().filter(|_| !takes("/etc/hosts")) {
        let file = input.pod_folder.join("etc-hosts");
        write(&file, text, 0o644)?;
        own.push(bound("/etc/hosts", &file));
    }
    let last_words = container.termination_message_path.as_deref().filter(|p| !p.is_empty());
    if let Some(path) = last_words.filter(|p| !takes(p)) {
        let folder = input.pod_folder.join("containers").join(&container.name);
        let file = folder.join(format!("{:08x}", rand::random::<u32>()));
        write(&file, "", 0o666)?;
        own.push(bound(path, &file));
    }
    mounts.extend(own);
    Ok(mounts)
}

/// The part of a volume that is mounted; empty for all of it. An expression whose variables are not all there says nothing of
/// where the container is to be: it must not get all of the volume, or a folder that is called after the expression.
fn part_of(mount: &VolumeMount, variables: &HashMap<&str, &str>) -> Result<String, String> {
    let part = match mount.sub_path_expr.as_deref().filter(|expression| !expression.is_empty()) {
        None => mount.sub_path.clone().unwrap_or_default(),
        Some(expression) => {
            let missing = RefCell::new(BTreeSet::new());
            let expanded = expand(expression, &mut Room::of_path(), |name| {
                let found = variables.get(name).filter(|value| !value.is_empty());
                found.map(|value| (*value).to_owned()).or_else(|| {
                    missing.borrow_mut().insert(name.to_owned());
                    None
                })
            });
            let missing: Vec<String> = missing.into_inner().into_iter().collect();
            if !missing.is_empty() {
                return Err(format!("missing value for {}", missing.join(", ")));
            }
            expanded.map_err(|why| format!("unable to provision SubPath: {why}"))?
        }
    };
    if part.starts_with('/') {
        return Err(format!("error SubPath `{part}` must not be an absolute path"));
    }
    if part.split('/').any(|step| step == "..") {
        return Err(format!("unable to provision SubPath `{part}`: must not contain '..'"));
    }
    Ok(part)
}

/// Whether what is mounted below a mount is read-only too. Where that is wanted and cannot be, the container is not made.
pub(crate) fn recursive_read_only(mount: &VolumeMount, able: bool) -> Result<bool, String> {
    let name = &mount.name;
    let refused = |why: &str| Err(format!("volume {name:?} requested recursive read-only mode, but it is {why}"));
    let wanted = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(wanted) => wanted,
    };
    if mount.read_only != Some(true) {
        return refused("not read-only");
    }
    if let Some(propagation) = mount.mount_propagation.as_deref().filter(|propagation| *propagation != "None") {
        return refused(&format!("not compatible with propagation {propagation:?}"));
    }
    match wanted {
        "IfPossible" => Ok(able),
        "Enabled" if able => Ok(true),
        "Enabled" => refused("not supported by the runtime"),
        other => Err(format!("unknown recursive read-only mode {other:?}")),
    }
}

/// The devices that a container opens.
pub(crate) fn container_devices(container: &Container, mounted: &Mounted) -> Result<Vec<Device>, String> {
    let opened = container.volume_devices.iter().flatten();
    opened
        .map(|opened| {
            let place = mounted.places.get(&opened.name).filter(|place| place.device);
            let place = place.ok_or_else(|| {
                format!("cannot find volume {:?} to pass into container {:?}", opened.name, container.name)
            })?;
            Ok(Device {
                container_path: opened.device_path.clone(),
                host_path: place.path.to_string_lossy().into_owned(),
                permissions: if place.read_only { "r" } else { "mrw" }.to_owned(),
            })
        })
        .collect()
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn bound(path: &str, file: &Path) -> Mount {
    Mount { container_path: path.to_owned(), host_path: file.to_string_lossy().into_owned(), ..Mount::default() }
}

fn write(file: &Path, text: &str, mode: u32) -> Result<(), String> {
    let write = || -> std::io::Result<()> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        ferry_podfs::overwrite(file, text.as_bytes(), mode)
    };
    write().map_err(|error| format!("writing {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn images_are_left_to_the_runtime() {
        let folder = tempfile::tempdir().expect("a folder");
        let mounts = json!([{"name": "i", "mountPath": "/i", "subPath": "etc"}, {"name": "absent", "mountPath": "/x"}]);
        let input = |mounts: serde_json::Value| Mounts {
            container: serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).expect("a container"),
            mounted: Arc::default(),
            images: HashMap::from([("i".to_owned(), "sha256:0".to_owned())]),
            pod_folder: folder.path().to_owned(),
            hosts: None,
            variables: Vec::new(),
            recursive_read_only: false,
        };
        let made = container_mounts(&input(json!([mounts[0]]))).expect("a mount");
        let image = made[0].image.as_ref().map(|image| image.image.as_str());
        assert_eq!((image, made[0].image_sub_path.as_str(), made[0].readonly), (Some("sha256:0"), "etc", true));
        assert!(container_mounts(&input(mounts)).is_err());
    }

    /// A folder called `$(NAME)` would be shared by all containers whose variable is missing.
    #[test]
    fn a_sub_path_is_known_or_the_container_waits() {
        let long = "x".repeat(3000);
        let variables =
            HashMap::from([("NAME", "web-0"), ("EMPTY", ""), ("UP", ".."), ("ROOT", "/etc"), ("LONG", long.as_str())]);
        for (path, expression, want) in [
            (None, None, Ok("")),
            (Some("a/b"), None, Ok("a/b")),
            (None, Some("logs/$(NAME)"), Ok("logs/web-0")),
            (None, Some("$$(NAME)"), Ok("$(NAME)")),
            (None, Some("$(ABSENT)"), Err("missing value for ABSENT")),
            (None, Some("$(NAME)/$(EMPTY)$(ABSENT)"), Err("missing value for ABSENT, EMPTY")),
            (None, Some("a/$(UP)/b"), Err("unable to provision SubPath `a/../b`: must not contain '..'")),
            (None, Some("$(LONG)$(LONG)"), Err("unable to provision SubPath: the path is longer than 4096 bytes")),
            (None, Some("$(ROOT)"), Err("error SubPath `/etc` must not be an absolute path")),
            (Some("a/../b"), None, Err("unable to provision SubPath `a/../b`: must not contain '..'")),
        ] {
            let mount = VolumeMount {
                sub_path: path.map(str::to_owned),
                sub_path_expr: expression.map(str::to_owned),
                ..VolumeMount::default()
            };
            let seen = part_of(&mount, &variables);
            assert_eq!(seen.as_deref().map_err(String::as_str), want, "{path:?} {expression:?}");
        }
    }

    #[test]
    fn read_only_all_the_way_down_or_not_at_all() {
        let not = |why: &str| Err(format!("volume \"v\" requested recursive read-only mode, but it is {why}"));
        for (mode, read_only, propagation, able, want) in [
            (None, true, None, true, Ok(false)),
            (Some("Disabled"), true, None, true, Ok(false)),
            (Some("IfPossible"), true, None, true, Ok(true)),
            (Some("IfPossible"), true, Some("None"), false, Ok(false)),
            (Some("Enabled"), true, None, true, Ok(true)),
            (Some("Enabled"), true, None, false, not("not supported by the runtime")),
            (Some("Enabled"), false, None, true, not("not read-only")),
            (
                Some("Enabled"),
                true,
                Some("HostToContainer"),
                true,
                not("not compatible with propagation \"HostToContainer\""),
            ),
            (Some("Always"), true, None, true, Err("unknown recursive read-only mode \"Always\"".to_owned())),
        ] {
            let mount: VolumeMount =
                serde_json::from_value(json!({"name": "v", "mountPath": "/v", "readOnly": read_only,
                "recursiveReadOnly": mode, "mountPropagation": propagation}))
                .expect("a mount");
            assert_eq!(recursive_read_only(&mount, able), want, "{mount:?}");
        }
    }
}

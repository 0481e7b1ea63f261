//! Devices that are named by the Container Device Interface: their vendors say in files of the node what a container needs
//! for each of them. The files are the administrator's, as programs are; containers cannot write them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::one_device;

/// Where the files are; of two that say something of one device, that of the later folder counts.
const FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// No file is read further than this, and no more of them.
const LARGEST: u64 = 4 << 20;
const MOST_FILES: usize = 1000;

/// Reads YAML, of which JSON is a part.
pub type ReadYaml = fn(&[u8]) -> Result<Value, String>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    kind: String,
    #[serde(default)]
    devices: Vec<Named>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    name: String,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Edits {
    env: Vec<String>,
    device_nodes: Vec<Node>,
    mounts: Vec<Mount>,
    hooks: Vec<Hook>,
    additional_gids: Vec<u32>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    path: String,
    host_path: Option<String>,
    permissions: Option<String>,
    file_mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: String,
    container_path: String,
    #[serde(default)]
    options: Vec<String>,
    r#type: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hook {
    hook_name: String,
    path: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    timeout: Option<i64>,
}

/// Changes a container's file as its devices ask for. A device that no file knows is an error: a container that was
/// promised one does not start without.
pub(super) fn apply(spec: &mut Value, names: &[String], read: ReadYaml) -> Result<(), String> {
    if names.is_empty() {
        return Ok(());
    }
    apply_from(spec, names, &files(&FOLDERS.map(PathBuf::from), read))
}

/// The files by their kinds, the most important last.
fn files(folders: &[PathBuf], read: ReadYaml) -> Vec<File> {
    let mut found = Vec::new();
    for folder in folders {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "json" || end == "yaml"));
        paths.sort();
        for path in paths.iter().take(MOST_FILES) {
            match file(path, read) {
                Ok(file) => found.push(file),
                // Another vendor's mistake is not this container's.
                Err(why) => tracing::warn!("{} says nothing of devices: {why}", path.display()),
            }
        }
    }
    found
}

fn file(path: &Path, read: ReadYaml) -> Result<File, String> {
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > LARGEST {
        return Err("it is no file of a few megabytes".to_owned());
    }
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    serde_json::from_value(read(&text)?).map_err(|error| error.to_string())
}

fn apply_from(spec: &mut Value, names: &[String], files: &[File]) -> Result<(), String> {
    let mut unknown = Vec::new();
    // What a file says of all its devices is done once for each file.
    let mut chosen: BTreeMap<usize, Vec<&Edits>> = BTreeMap::new();
    for name in names {
        let found = files.iter().enumerate().rev().find_map(|(place, file)| {
            let (kind, device) = name.split_once('=')?;
            let device = file.devices.iter().find(|known| file.kind == kind && known.name == device)?;
            Some((place, &device.container_edits))
        });
        match found {
            Some((place, edits)) => chosen.entry(place).or_default().push(edits),
            None => unknown.push(name.as_str()),
        }
    }
    if !unknown.is_empty() {
        return Err(format!("unresolvable CDI devices {}", unknown.join(", ")));
    }
    for (place, devices) in chosen {
        for edits in files.get(place).map(|file| &file.container_edits).into_iter().chain(devices) {
            edit(spec, edits)?;
        }
    }
    Ok(())
}

fn list<'a>(spec: &'a mut Value, pointer: &str) -> Result<&'a mut Vec<Value>, String> {
    let found = spec.pointer_mut(pointer).ok_or_else(|| format!("{pointer} is missing"))?;
    if found.is_null() {
        *found = json!([]);
    }
    found.as_array_mut().ok_or_else(|| format!("{pointer} is no list"))
}

fn edit(spec: &mut Value, edits: &Edits) -> Result<(), String> {
    let variables = list(spec, "/process/env")?;
    for variable in &edits.env {
        let name = variable.split('=').next().unwrap_or_default();
        variables.retain(|known| known.as_str().and_then(|known| known.split('=').next()) != Some(name));
        variables.push(variable.as_str().into());
    }
    for node in &edits.device_nodes {
        let host = node.host_path.as_deref().unwrap_or(&node.path);
        let mut device = one_device(Path::new(host), &node.path).ok_or_else(|| format!("{host} is no device"))?;
        for (key, value) in [("fileMode", node.file_mode), ("uid", node.uid), ("gid", node.gid)] {
            if let Some(value) = value {
                device[key] = value.into();
            }
        }
        let access = node.permissions.as_deref().unwrap_or("rwm");
        let allowed = json!({
            "allow": true, "type": device["type"], "major": device["major"], "minor": device["minor"], "access": access,
        });
        list(spec, "/linux/resources/devices")?.push(allowed);
        let devices = list(spec, "/linux/devices")?;
        devices.retain(|known| known["path"] != device["path"]);
        devices.push(device);
    }
    for mount in &edits.mounts {
        let (kind, options) = (mount.r#type.as_deref().unwrap_or("bind"), &mount.options);
        let options = if options.is_empty() { vec!["rbind".to_owned(), "ro".to_owned()] } else { options.clone() };
        let mounts = list(spec, "/mounts")?;
        mounts.retain(|known| known["destination"] != mount.container_path.as_str());
        mounts.push(json!({
            "destination": mount.container_path, "type": kind, "source": mount.host_path, "options": options,
        }));
    }
    for hook in &edits.hooks {
        let mut entry = json!({"path": hook.path, "args": hook.args, "env": hook.env});
        if let Some(timeout) = hook.timeout {
            entry["timeout"] = timeout.into();
        }
        let known = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];
        if !known.contains(&hook.hook_name.as_str()) {
            return Err(format!("there is no hook {:?}", hook.hook_name));
        }
        match spec["hooks"][&hook.hook_name].as_array_mut() {
            Some(hooks) => hooks.push(entry),
            None => spec["hooks"][&hook.hook_name] = json!([entry]),
        }
    }
    let groups = list(spec, "/process/user/additionalGids")?;
    groups.extend(edits.additional_gids.iter().map(|group| Value::from(*group)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Value, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    fn spec() -> Value {
        json!({
            "process": {"env": ["PATH=/bin", "A=old"], "user": {"additionalGids": [1]}},
            "mounts": [], "linux": {"devices": [], "resources": {"devices": []}},
        })
    }

    #[test]
    fn devices_become_what_their_vendor_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let write =
            |name: &str, text: Value| std::fs::write(folder.path().join(name), text.to_string()).expect("written");
        write(
            "vendor.json",
            json!({
                "cdiVersion": "0.6.0", "kind": "example.com/gpu",
                "containerEdits": {"env": ["ALL=1"]},
                "devices": [
                    {"name": "0", "containerEdits": {
                        "env": ["A=new"],
                        "deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/zero", "permissions": "rw", "fileMode": 438}],
                        "mounts": [{"hostPath": "/lib", "containerPath": "/vendor", "options": ["ro", "bind"]}],
                        "hooks": [{"hookName": "createContainer", "path": "/bin/true", "args": ["true"]}],
                        "additionalGids": [44]}},
                    {"name": "1", "containerEdits": {"env": ["B=1"]}},
                ],
            }),
        );
        write("broken.json", json!({"kind": 7}));
        let files = files(&[folder.path().to_owned(), "/nowhere".into()], parse);
        assert_eq!(files.len(), 1);
        let mut changed = spec();
        let names = ["example.com/gpu=0".to_owned(), "example.com/gpu=1".to_owned()];
        apply_from(&mut changed, &names, &files).expect("applied");
        assert_eq!(changed["process"]["env"], json!(["PATH=/bin", "ALL=1", "A=new", "B=1"]));
        assert_eq!(changed["process"]["user"]["additionalGids"], json!([1, 44]));
        let device = &changed["linux"]["devices"][0];
        assert_eq!((&device["path"], &device["major"], &device["minor"]), (&json!("/dev/gpu0"), &json!(1), &json!(5)));
        assert_eq!(device["fileMode"], 438);
        assert_eq!(changed["linux"]["resources"]["devices"][0]["access"], "rw");
        assert_eq!(changed["mounts"][0]["destination"], "/vendor");
        assert_eq!(changed["hooks"]["createContainer"][0]["path"], "/bin/true");
    }

    #[test]
    fn a_device_that_nobody_knows_is_refused() {
        let mut unchanged = spec();
        let names = ["example.com/gpu=7".to_owned(), "nonsense".to_owned()];
        let why = apply_from(&mut unchanged, &names, &[]).expect_err("nobody knows it");
        assert_eq!(why, "unresolvable CDI devices example.com/gpu=7, nonsense");
        assert_eq!(unchanged, spec());
        assert!(apply(&mut unchanged, &[], parse).is_ok());
    }
}

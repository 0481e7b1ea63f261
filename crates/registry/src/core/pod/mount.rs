//! The rules of volume mounts and of block devices.

use std::collections::HashSet;

use ferry_meta::FieldErrors;

use super::spec::Whole;
use crate::check;
use crate::cursor::{Cursor, Report};

/// What the items of a list have under a key.
fn texts<'a>(container: &Cursor<'a>, list: &str, key: &str) -> HashSet<&'a str> {
    container.array(list).iter().map(|item| item[key].as_str().unwrap_or_default()).collect()
}

pub fn mounts(errors: &mut FieldErrors, container: &Cursor<'_>, whole: &Whole<'_>) {
    let mut points: HashSet<&str> = HashSet::new();
    let (devices, device_paths) =
        (texts(container, "volumeDevices", "name"), texts(container, "volumeDevices", "devicePath"));
    let list = container.at("volumeMounts");
    for mount in container.items("volumeMounts") {
        let (name, path) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            errors.required(mount.at("name"), "");
        }
        if !whole.volumes.contains_key(name) {
            errors.not_found(mount.at("name"), name);
        }
        if path.is_empty() {
            errors.required(mount.at("mountPath"), "");
        }
        if !points.insert(path) {
            errors.invalid(mount.at("mountPath"), path, "must be unique");
        }
        if devices.contains(name) {
            errors.invalid(mount.at("name"), name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(path) {
            errors.invalid(mount.at("mountPath"), path, "must not already exist as a path in volumeDevices");
        }
        let (below, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
        if !below.is_empty() {
            check::descending_path(errors, list.child("subPath"), below);
        }
        if !expression.is_empty() {
            if !below.is_empty() {
                errors.invalid(mount.at("subPathExpr"), expression, "subPathExpr and subPath are mutually exclusive");
            }
            check::descending_path(errors, list.child("subPathExpr"), expression);
        }
        propagation(errors, container, &mount);
        recursive_read_only(errors, container, &mount);
    }
}

fn propagation(errors: &mut FieldErrors, container: &Cursor<'_>, mount: &Cursor<'_>) {
    let Some(mode) = mount.raw("mountPropagation").as_str() else { return };
    let path = container.at("volumeMounts").child("mountPropagation");
    let supported = ["Bidirectional", "HostToContainer", "None"];
    if !supported.contains(&mode) {
        errors.unsupported(path.clone(), mode, &supported);
    }
    if mode == "Bidirectional" && !container.get("securityContext").is_true("privileged") {
        errors.forbidden(path, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn recursive_read_only(errors: &mut FieldErrors, container: &Cursor<'_>, mount: &Cursor<'_>) {
    let Some(mode) = mount.raw("recursiveReadOnly").as_str() else { return };
    let path = || container.at("volumeMounts").child("recursiveReadOnly");
    match mode {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.is_true("readOnly") {
                errors.forbidden(path(), "may only be specified when readOnly is true");
            }
            if !["", "None"].contains(&mount.text("mountPropagation")) {
                errors.forbidden(path(), "may only be specified when mountPropagation is None or not specified");
            }
        }
        other => errors.unsupported(path(), other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

pub fn devices(errors: &mut FieldErrors, container: &Cursor<'_>, whole: &Whole<'_>) {
    if container.array("volumeDevices").is_empty() {
        return;
    }
    let (mut paths, mut seen): (HashSet<&str>, HashSet<&str>) = (HashSet::new(), HashSet::new());
    let (mounts, mount_paths) =
        (texts(container, "volumeMounts", "name"), texts(container, "volumeMounts", "mountPath"));
    for device in container.items("volumeDevices") {
        let (name, path) = (device.text("name"), device.text("devicePath"));
        if name.is_empty() {
            errors.required(device.at("name"), "");
        }
        if seen.contains(name) {
            errors.invalid(device.at("name"), name, "must be unique");
        }
        match whole.volumes.get(name) {
            None => errors.not_found(device.at("name"), name),
            Some(volume) if volume["persistentVolumeClaim"].is_null() && volume["ephemeral"].is_null() => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(device.at("name"), name, detail);
            }
            Some(_) => {}
        }
        if path.is_empty() {
            errors.required(device.at("devicePath"), "");
        }
        if paths.contains(path) {
            errors.invalid(device.at("devicePath"), path, "must be unique");
        }
        if path.split('/').any(|part| part == "..") {
            errors.invalid(device.at("devicePath"), path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path);
        }
        if mounts.contains(name) {
            errors.invalid(device.at("name"), name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(path) {
            errors.invalid(device.at("devicePath"), path, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            seen.insert(name);
        }
    }
}

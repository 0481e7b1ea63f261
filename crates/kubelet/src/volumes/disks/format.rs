//! From a disk to a mounted file system: looked at, formatted or checked, mounted. The steps and their words are upstream's.

use std::ffi::OsStr;
use std::path::Path;

use super::device::Device;
use super::{Disk, Limits, is_file_system};
use crate::volumes::programs::{Ended, NotRun, Programs};
use crate::volumes::{blocking, mount_table};

const DEFAULT: &str = "ext4";
const PARTITIONS: &str = "unknown data, probably partitions";

/// `blkid` found nothing.
const NOTHING_FOUND: i32 = 2;
/// `fsck` found something, and
const CORRECTED: i32 = 1;
const NOT_CORRECTED: i32 = 4;

pub(super) async fn mount(
    programs: &Programs,
    limits: Limits,
    device: Device,
    disk: &Disk,
    at: &Path,
) -> Result<(), String> {
    let mounted = format_and_mount(programs, limits, &device, disk, at).await;
    mounted.map_err(|why| {
        let (at, kind) = (at.display(), disk.file_system.as_deref().unwrap_or_default());
        format!("local: failed to mount device {device} at {at} (fstype: {kind}), error {why}")
    })
}

async fn format_and_mount(
    programs: &Programs,
    limits: Limits,
    device: &Device,
    disk: &Disk,
    at: &Path,
) -> Result<(), String> {
    let found = found(programs, limits, device).await?;
    let wanted = disk.file_system.as_deref();
    let kind = match found.as_deref() {
        None if disk.is_read_only() => {
            return Err(format!("cannot mount unformatted disk {device} as it is in read-only mode"));
        }
        None => {
            format(programs, limits, device, wanted.unwrap_or(DEFAULT)).await?;
            wanted.unwrap_or(DEFAULT)
        }
        Some(found) if is_file_system(found) && wanted.is_none_or(|wanted| wanted == found) => {
            if !disk.is_read_only() {
                check(programs, limits, device).await?;
            }
            found
        }
        Some(found) => {
            let wanted = wanted.unwrap_or(DEFAULT);
            return Err(format!("failed to mount the volume as {wanted:?}, it already contains {found}"));
        }
    };
    device.check()?;
    let options = disk.options.iter().map(String::as_str).chain(disk.read_only.then_some("ro")).chain(["defaults"]);
    let options = options.collect::<Vec<_>>().join(",");
    let place = at.to_owned();
    blocking(move || std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))).await?;
    if let Err(why) = programs.mount(kind, &options, device.path(), at, limits.mount).await {
        let _ = tokio::fs::remove_dir(at).await;
        return Err(why);
    }
    let place = at.to_owned();
    let mounted = blocking(move || mount_table::at(&place).map_err(|error| error.to_string())).await?;
    if mounted.is_some_and(|mounted| device.is_mounted_as(&mounted)) {
        return Ok(());
    }
    // Its path came to mean another one while it was mounted.
    let _ = programs.unmount(at, false, limits.unmount).await;
    device.check()?;
    Err(format!("{device} is not what was mounted"))
}

/// The file system on a device; none where there is nothing at all.
async fn found(programs: &Programs, limits: Limits, device: &Device) -> Result<Option<String>, String> {
    device.check()?;
    let failed = |why: String| format!("failed to get disk format of disk {device}: {why}");
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"].map(OsStr::new);
    // The very device that is formatted where nothing is found.
    let ended = programs.run_held("blkid", &arguments, &device.held(), device.path(), limits.look).await;
    let ended = ended.map_err(|error| failed(error.to_string()))?;
    match ended.code {
        Some(0) => {}
        Some(NOTHING_FOUND) => return Ok(None),
        _ => return Err(failed(format!("{}: {}", ended.how, ended.output))),
    }
    let (mut file_system, mut partitions) = (None, false);
    for line in ended.output.lines().filter(|line| !line.trim().is_empty()) {
        match line.split_once('=') {
            Some(("TYPE", kind)) => file_system = Some(kind.to_owned()),
            Some(("PTTYPE", table)) => partitions = !table.is_empty(),
            Some(_) => {}
            None => return Err(failed(format!("blkid returns invalid output: {}", ended.output))),
        }
    }
    let found = if partitions { Some(PARTITIONS.to_owned()) } else { file_system };
    // That it found something and does not say what, is no reason to write over it.
    found.map(Some).ok_or_else(|| failed(format!("blkid returns invalid output: {}", ended.output)))
}

async fn format(programs: &Programs, limits: Limits, device: &Device, kind: &str) -> Result<(), String> {
    device.check()?;
    device.check_free()?;
    let options: &[&str] = match kind {
        "ext3" | "ext4" => &["-F", "-m0"],
        "xfs" => &["-f"],
        _ => &[],
    };
    let arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    tracing::info!("formatting {device} as {kind}: nothing is on it");
    let failed = |how: &str, output: &str| {
        format!("format of disk \"{device}\" failed: type:({kind:?}) errcode:({how}) output:({output})")
    };
    // The device itself, and not what its name may mean by now: what is written over is gone.
    match programs.run_held(&format!("mkfs.{kind}"), &arguments, &device.held(), device.path(), limits.format).await {
        Ok(ended) if ended.is_success() => Ok(()),
        Ok(Ended { how, output, .. }) => Err(failed(&how, &output)),
        Err(error) => Err(failed(&error.to_string(), "")),
    }
}

/// Repairs what can be repaired without asking anybody.
async fn check(programs: &Programs, limits: Limits, device: &Device) -> Result<(), String> {
    device.check()?;
    // Not every file system's program looks whether it is mounted before it writes.
    if device.is_in_use() {
        tracing::warn!("{device} is in use on this node, and is mounted without a check");
        return Ok(());
    }
    match programs.run("fsck", &[OsStr::new("-a")], device.path(), limits.check).await {
        Err(NotRun::Missing(_)) => tracing::warn!("there is no fsck: {device} is mounted without a check"),
        Err(error) => return Err(format!("'fsck' on device {device}: {error}")),
        Ok(Ended { code: Some(0), .. }) => {}
        Ok(Ended { code: Some(CORRECTED), .. }) => {
            tracing::info!("device {device} has errors which were corrected by fsck");
        }
        Ok(Ended { code: Some(NOT_CORRECTED), output, .. }) => {
            return Err(format!("'fsck' found errors on device {device} but could not correct them: {output}"));
        }
        Ok(Ended { code: None, how, output }) => return Err(format!("'fsck' on device {device} was {how}: {output}")),
        // It has no say over this file system, or the device is mounted elsewhere.
        Ok(Ended { how, output, .. }) => tracing::warn!("fsck on device {device} failed with {how}: {output}"),
    }
    Ok(())
}

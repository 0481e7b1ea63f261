//! Who the container's process is, and what it may do: given up for good before its program is executed.

use std::io::Write;
use std::os::fd::AsFd;

use rustix::fs::{Gid, Uid};
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::document::{Capabilities, Process};
use super::rootfs::{because, is_proc};
use crate::spec::capabilities::number;

fn set(names: &[String]) -> Result<CapabilitySet, String> {
    names.iter().try_fold(CapabilitySet::empty(), |all, name| {
        let number = number(name).ok_or_else(|| format!("unknown capability {name:?}"))?;
        Ok(all | CapabilitySet::from_bits_retain(1 << number))
    })
}

/// The highest capability that this kernel knows; to be asked while /proc is still the machine's.
pub(super) fn last_capability() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
    text.trim().parse().unwrap_or(40)
}

pub(super) fn drop_bounding(capabilities: &Capabilities, last: u32) -> Result<(), String> {
    let kept = set(&capabilities.bounding)?;
    for number in 0..=last {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !kept.contains(one) {
            rustix::thread::remove_capability_from_bounding_set(one).map_err(because("cannot drop a capability"))?;
        }
    }
    Ok(())
}

/// Root of the user namespace that was just entered: until then this process is nobody there, with all capabilities.
pub(crate) fn become_root() -> Result<(), String> {
    let failed = || because::<rustix::io::Errno>("cannot become root of the user namespace");
    rustix::thread::set_thread_groups(&[]).map_err(failed())?;
    rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).map_err(failed())?;
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).map_err(failed())?;
    // Changes of users may have shown it.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed())
}

/// Changes user and groups, and leaves no capability but those that are asked for.
pub(super) fn become_user(process: &Process) -> Result<(), String> {
    let wanted = &process.capabilities;
    rustix::thread::set_keep_capabilities(true).map_err(because("cannot keep capabilities"))?;
    let user = &process.user;
    let groups: Vec<Gid> = user.additional_gids.iter().map(|group| Gid::from_raw(*group)).collect();
    rustix::thread::set_thread_groups(&groups).map_err(because("cannot set groups"))?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(because("cannot set the group"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(because("cannot set the user"))?;
    rustix::thread::set_keep_capabilities(false).map_err(because("cannot keep capabilities"))?;
    // What this machine's administrator took from Ferry itself cannot be passed on.
    let have = rustix::thread::capabilities(None).map_err(because("cannot read capabilities"))?.permitted;
    let sets = CapabilitySets {
        effective: set(&wanted.effective)? & have,
        permitted: set(&wanted.permitted)? & have,
        inheritable: set(&wanted.inheritable)? & have,
    };
    rustix::thread::set_capabilities(None, sets).map_err(because("cannot set capabilities"))?;
    let _ = rustix::thread::clear_ambient_capability_set();
    for name in &wanted.ambient {
        let one = set(std::slice::from_ref(name))?;
        if !have.contains(one) {
            continue;
        }
        rustix::thread::configure_capability_in_ambient_set(one, true)
            .map_err(because(format!("cannot pass on {name}")))?;
    }
    Ok(())
}

/// A program of its own security profile from the next execution on.
pub(super) fn confine(profile: &str) -> Result<(), String> {
    if profile.is_empty() {
        return Ok(());
    }
    let failed = || because::<std::io::Error>(format!("cannot apply AppArmor profile {profile:?}"));
    let open = |path| std::fs::OpenOptions::new().write(true).open(path);
    let modern = open("/proc/thread-self/attr/apparmor/exec");
    let mut file = modern.or_else(|_| open("/proc/thread-self/attr/exec")).map_err(failed())?;
    // A file of the image would take the words, and confine nobody.
    if !is_proc(file.as_fd())? {
        return Err(format!("cannot apply AppArmor profile {profile:?}: /proc is not the kernel's"));
    }
    file.write_all(format!("exec {profile}").as_bytes()).map_err(failed())
}

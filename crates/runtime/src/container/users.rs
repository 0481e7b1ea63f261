//! A container in the user namespace of its pod. What takes the machine's rights is done before they are given up: trees of
//! mounts that show their files as those of the pod's users, and devices.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::CWD;
use rustix::process::DumpableBehavior;
use rustix::thread::LinkNameSpaceType;

use super::devices;
use super::document::{Document, Mount};
use super::init::{self, BORN};
use super::options::Options;
use super::privileges;
use super::rootfs::{Rootfs, because, failure};
use super::system::{self, Birth, Clone};
use super::trees::{bound, clone_tree, new_file_system};

pub(super) struct Prepared {
    users: File,
    /// The process namespace that is joined; without one the container gets one of its own.
    processes: Option<File>,
    pub(super) root: OwnedFd,
    /// By the number of the mount.
    pub(super) trees: BTreeMap<usize, OwnedFd>,
}

impl Prepared {
    /// None for a container whose users are the machine's.
    pub(super) fn make(document: &Document, processes: Option<File>) -> Result<Option<Self>, String> {
        let path = match document.namespace("user") {
            None => return Ok(None),
            Some(None) => return Err("a user namespace has to be the pod's".to_owned()),
            Some(Some(path)) => path,
        };
        let users = File::open(path).map_err(because("the pod's user namespace"))?;
        if document.namespace("pid").is_none() {
            return Err("a container in a user namespace cannot share the machine's processes".to_owned());
        }
        let path = &document.root.path;
        let root = clone_tree(CWD, path, false).map_err(because("the container's root"))?;
        let mut trees = BTreeMap::new();
        for (number, mount) in document.mounts.iter().enumerate() {
            let made = match mount.kind.as_str() {
                "bind" => bound(mount, Some(users.as_fd())),
                "tmpfs" if mount.destination == Path::new("/dev") => device_folder(document, mount, &root),
                _ => continue,
            };
            trees.insert(number, made.map_err(|why| failure(mount, &why))?);
        }
        Ok(Some(Self { users, processes, root, trees }))
    }

    /// From now on this process is root there and nobody on the machine.
    pub(super) fn enter(&self) -> Result<(), String> {
        rustix::thread::move_into_link_name_space(self.users.as_fd(), Some(LinkNameSpaceType::User))
            .map_err(because("cannot join the pod's user namespace"))?;
        privileges::become_root()
    }

    /// The process namespace belongs to the same users, so that the container's first process is made only now. It is the
    /// shim's child, too; this one tells its number and ends.
    pub(super) fn be_born(&self, channel: &mut UnixStream) -> Result<(), String> {
        if let Some(processes) = &self.processes {
            rustix::thread::move_into_link_name_space(processes.as_fd(), Some(LinkNameSpaceType::ProcessID))
                .map_err(because("cannot join the pod's processes"))?;
        }
        let birth = Birth { new_processes: self.processes.is_none(), sibling: true };
        match system::clone(birth).map_err(because("cannot make the container's process"))? {
            Clone::Parent(pid) => {
                let _ = channel.write_all(&[&[BORN][..], &pid.to_le_bytes()].concat());
                system::end(0)
            }
            Clone::Child => {
                // Nothing is told before the shim knows who tells it.
                init::listen(channel)?;
                rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
                    .map_err(because("cannot hide"))?;
                rustix::process::setsid().map_err(because("cannot begin a session"))?;
                Ok(())
            }
        }
    }
}

/// The container's /dev, owned by its root. It is the machine's file system: on one of a user namespace no device works.
fn device_folder(document: &Document, mount: &Mount, root: &OwnedFd) -> Result<OwnedFd, String> {
    let users = document.users();
    let (uid, gid) = users.root();
    let mut options = Options::parse(&mount.options)?;
    options.data.extend([("uid", uid), ("gid", gid)].map(|(key, id)| (key.to_owned(), Some(id.to_string()))));
    let folder = new_file_system("tmpfs", &mount.source, &options)?;
    if devices::own(document) {
        let again = |tree: &OwnedFd| tree.try_clone().map(Rootfs::of).map_err(|error| error.to_string());
        devices::make_for(&users, &again(&folder)?, &again(root)?, document)?;
    }
    Ok(folder)
}

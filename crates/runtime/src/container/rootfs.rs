//! The container's view of files: its root, what is mounted there, and what of it is hidden.
//!
//! Every mount is made detached, given its attributes, and only then put into its place, which the kernel resolves inside
//! the container's root. So nobody can lead a mount out of the root or catch one without its attributes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags};

use super::document::{Document, Mount};
use super::options::Options;
use super::trees::{clone_open, clone_open_tree, clone_tree, new_file_system};
use super::{system, trees};

const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
const PROC_MAGIC: u32 = 0x9FA0;
/// In /proc: figures that some give a container its own view of. Nothing is confined by them.
const FIGURES: [&str; 8] = ["cpuinfo", "diskstats", "loadavg", "meminfo", "slabinfo", "stat", "swaps", "uptime"];
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// What was being done when it failed.
pub(super) fn because<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

/// The root while it is put together, in a mount namespace of its own.
pub(super) struct Rootfs {
    root: OwnedFd,
    /// Mounts that were made already, by their number.
    trees: BTreeMap<usize, OwnedFd>,
}

impl Rootfs {
    /// Keeps what is mounted from now on away from the machine, but for what the container shares with it.
    pub(super) fn begin(document: &Document) -> Result<Self, String> {
        leave_mounts(document)?;
        let path = &document.root.path;
        let root = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(because(format!("the container's root {}", path.display())))?;
        Ok(Self::of(root))
    }

    pub(super) fn of(root: OwnedFd) -> Self {
        Self { root, trees: BTreeMap::new() }
    }

    /// With trees that took the machine's rights to make. A root has to be in some place before it can be entered: the
    /// machine's own root is one that everybody gets to.
    pub(super) fn prepared(
        document: &Document,
        root: OwnedFd,
        trees: BTreeMap<usize, OwnedFd>,
    ) -> Result<Self, String> {
        leave_mounts(document)?;
        trees::put(root.as_fd(), Path::new("/")).map_err(because("the container's root"))?;
        Ok(Self { root, trees })
    }

    pub(super) fn mount_all(&self, document: &Document, groups: &[PathBuf]) -> Result<(), String> {
        for (number, mount) in document.mounts.iter().enumerate() {
            let failed = |error: String| failure(mount, &error);
            if let Some(tree) = self.trees.get(&number) {
                self.put(tree.as_fd(), mount).map_err(failed)?;
                continue;
            }
            match mount.kind.as_str() {
                "cgroup" if !groups.is_empty() => self.mount_groups(mount, groups).map_err(failed)?,
                "cgroup" => self.mount_kind("cgroup2", mount).map_err(failed)?,
                "bind" => trees::bound(mount, None).and_then(|tree| self.put(tree.as_fd(), mount)).map_err(failed)?,
                kind => self.mount_kind(kind, mount).map_err(failed)?,
            }
        }
        Ok(())
    }

    /// A file system of the kernel.
    fn mount_kind(&self, kind: &str, mount: &Mount) -> Result<(), String> {
        if matches!(kind, "proc" | "sysfs") {
            self.refuse_link(&mount.destination)?;
        }
        let options = Options::parse(&mount.options)?;
        let made = new_file_system(kind, &mount.source, &options)?;
        self.attach(made.as_fd(), &mount.destination, true)
    }

    /// The control groups of the first generation: the container's own of each hierarchy.
    fn mount_groups(&self, mount: &Mount, groups: &[PathBuf]) -> Result<(), String> {
        let mut options = Options::parse(&mount.options)?;
        options.data = vec![("mode".into(), Some("755".into()))];
        let read_only = options.set & u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
        options.set &= !read_only;
        let top = new_file_system("tmpfs", Path::new("tmpfs"), &options)?;
        self.attach(top.as_fd(), &mount.destination, true)?;
        for group in groups {
            let name = hierarchy(group).ok_or_else(|| format!("no hierarchy has {}", group.display()))?;
            let bound = clone_tree(CWD, group, true)?;
            let set = options.set | read_only;
            system::set_mount_attributes(bound.as_fd(), true, set, 0).map_err(because("attributes"))?;
            self.attach(bound.as_fd(), &mount.destination.join(name), true)?;
            // Controllers that are mounted together are found by the name of each.
            let text = name.to_string_lossy();
            for alias in text.split(',').filter(|_| text.contains(',')) {
                let place = self.place(&mount.destination, true)?;
                let linked = rustix::fs::symlinkat(name, &place, alias);
                linked.or_else(already).map_err(because("a name of control groups"))?;
            }
        }
        system::set_mount_attributes(top.as_fd(), false, read_only, 0).map_err(because("attributes"))
    }

    /// A tree, into the place that a mount says.
    fn put(&self, tree: BorrowedFd<'_>, mount: &Mount) -> Result<(), String> {
        let about = rustix::fs::fstat(tree).map_err(because("its kind"))?;
        self.attach(tree, &mount.destination, FileType::from_raw_mode(about.st_mode).is_dir())
    }

    /// Puts a mount into its place.
    fn attach(&self, mount: BorrowedFd<'_>, destination: &Path, folder: bool) -> Result<(), String> {
        let place = self.place(destination, folder)?;
        self.refuse_over_proc(mount, &place, destination)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(mount, c"", &place, c"", flags).map_err(because("it cannot be put there"))
    }

    /// Programs are confined by what this process writes to files there, and hidden paths lie there; nothing else is put over
    /// them. Links lead there, too, so that the file system is asked and not the path.
    fn refuse_over_proc(&self, mount: BorrowedFd<'_>, place: &OwnedFd, destination: &Path) -> Result<(), String> {
        let Ok(top) = self.look(Path::new("/proc")) else { return Ok(()) };
        if !is_proc(place.as_fd())? {
            return Ok(());
        }
        let about = |file: BorrowedFd<'_>| rustix::fs::fstat(file).map_err(because("its place"));
        let (top, place) = (about(top.as_fd())?, about(place.as_fd())?);
        // Another one, such as the machine's in a folder of its own, confines nobody.
        if place.st_dev != top.st_dev {
            return Ok(());
        }
        if place.st_ino == top.st_ino {
            return match is_proc(mount)? {
                true => Ok(()),
                false => Err(format!("{} cannot be mounted because it is not of type proc", destination.display())),
            };
        }
        if FIGURES.iter().any(|name| destination == Path::new("/proc").join(name)) {
            return Ok(());
        }
        Err(format!("{} cannot be mounted because it is inside /proc", destination.display()))
    }

    /// With a link there, what is hidden below and what is mounted over could be two different places.
    fn refuse_link(&self, path: &Path) -> Result<(), String> {
        let plain = INSIDE.union(ResolveFlags::NO_SYMLINKS);
        match ferry_podfs::openat2(&self.root, inside(path), HANDLE, Mode::empty(), plain) {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::LOOP) => Err(format!("{} is a link in the image, and must be a folder", path.display())),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Opens what is there, wherever links lead inside the root.
    pub(super) fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        ferry_podfs::openat2(&self.root, inside(path), flags, Mode::empty(), INSIDE)
    }

    fn look(&self, path: &Path) -> Result<OwnedFd, Errno> {
        ferry_podfs::openat2(&self.root, inside(path), HANDLE, Mode::empty(), INSIDE)
    }

    /// A place below the root; what is missing is made.
    fn place(&self, path: &Path, folder: bool) -> Result<OwnedFd, String> {
        let failed = |error: Errno| format!("{}: {error}", path.display());
        match self.look(path) {
            Err(Errno::NOENT) => {}
            found => return found.map_err(failed),
        }
        let mut so_far = PathBuf::from(".");
        let mut parent = self.look(&so_far).map_err(failed)?;
        let names: Vec<&OsStr> = path
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name),
                _ => None,
            })
            .collect();
        for (number, name) in names.iter().enumerate() {
            so_far.push(name);
            let last = number + 1 == names.len();
            let next = match self.look(&so_far) {
                Err(Errno::NOENT) if last && !folder => {
                    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                    rustix::fs::openat(&parent, *name, flags, Mode::from_raw_mode(0o644)).map_err(failed)?;
                    self.look(&so_far)
                }
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&parent, *name, FOLDER_MODE).map_err(failed)?;
                    self.look(&so_far)
                }
                found => found,
            };
            parent = next.map_err(failed)?;
        }
        Ok(parent)
    }

    /// A place in the container's /dev and what it is called there.
    pub(super) fn parent_of(&self, path: &Path) -> Result<OwnedFd, String> {
        self.place(path.parent().unwrap_or(Path::new("/")), true)
    }

    pub(super) fn working_folder(&self, path: &Path) -> Result<(), String> {
        self.place(path, true).map(|_| ())
    }

    /// A file of the machine in a place of the container.
    pub(super) fn bind_file(&self, from: BorrowedFd<'_>, destination: &Path) -> Result<(), String> {
        let tree = clone_open(from)?;
        self.attach(tree.as_fd(), destination, false)
    }

    /// Hides files and folders, and makes others read-only; what is not there needs neither.
    pub(super) fn cover(&self, document: &Document) -> Result<(), String> {
        let found = |path: &Path| match self.look(path) {
            Ok(place) => Ok(Some(place)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(format!("{}: {error}", path.display())),
        };
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        for path in &document.linux.readonly_paths {
            let Some(place) = found(path)? else { continue };
            let tree = clone_open_tree(place.as_fd())?;
            let read_only = MountAttrFlags::MOUNT_ATTR_RDONLY.bits();
            system::set_mount_attributes(tree.as_fd(), true, read_only.into(), 0).map_err(because(path.display()))?;
            rustix::mount::move_mount(&tree, c"", &place, c"", flags).map_err(because(path.display()))?;
        }
        if document.linux.masked_paths.is_empty() {
            return Ok(());
        }
        let null = null_device()?;
        let mut empty: Option<OwnedFd> = None;
        for path in &document.linux.masked_paths {
            let Some(place) = found(path)? else { continue };
            let about = rustix::fs::fstat(&place).map_err(because(path.display()))?;
            let tree = if FileType::from_raw_mode(about.st_mode).is_dir() {
                match &empty {
                    // In its place already, it can be copied.
                    Some(first) => clone_open(first.as_fd())?,
                    None => {
                        let options = Options::parse(&["ro".to_owned()])?;
                        new_file_system("tmpfs", Path::new("tmpfs"), &options)?
                    }
                }
            } else {
                clone_open(null.as_fd())?
            };
            rustix::mount::move_mount(&tree, c"", &place, c"", flags).map_err(because(path.display()))?;
            if empty.is_none() && FileType::from_raw_mode(about.st_mode).is_dir() {
                empty = Some(tree);
            }
        }
        Ok(())
    }

    /// The root becomes this process's, and the machine's goes out of sight.
    pub(super) fn enter(self, document: &Document) -> Result<(), String> {
        if document.root.readonly {
            let read_only = MountAttrFlags::MOUNT_ATTR_RDONLY.bits();
            system::set_mount_attributes(self.root.as_fd(), false, read_only.into(), 0)
                .map_err(because("the root cannot be made read-only"))?;
        }
        let failed = |what: &'static str| because::<Errno>(what);
        let old = rustix::fs::openat(CWD, "/", OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed("the machine's root"))?;
        rustix::process::fchdir(&self.root).map_err(failed("the container's root"))?;
        rustix::process::pivot_root(c".", c".").map_err(failed("cannot change the root"))?;
        rustix::process::fchdir(&old).map_err(failed("the machine's root"))?;
        // What is unmounted here is not unmounted there.
        let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change(c".", slave).map_err(failed("cannot leave the machine's mounts"))?;
        rustix::mount::unmount(c".", UnmountFlags::DETACH).map_err(failed("cannot leave the machine's root"))?;
        rustix::process::chdir(c"/").map_err(failed("the container's root"))
    }
}

fn leave_mounts(document: &Document) -> Result<(), String> {
    let flags = match document.linux.rootfs_propagation.as_str() {
        // Mounts are the machine's already; the root itself lies on a mount that is nobody else's.
        "rshared" | "shared" => return Ok(()),
        "rslave" | "slave" => MountPropagationFlags::DOWNSTREAM,
        _ => MountPropagationFlags::PRIVATE,
    };
    rustix::mount::mount_change("/", flags | MountPropagationFlags::REC)
        .map_err(because("cannot leave the machine's mounts"))
}

/// A mount that is not made, in the words of other runtimes.
pub(super) fn failure(mount: &Mount, why: &str) -> String {
    format!("error mounting {:?} to rootfs at {:?}: {why}", mount.source, mount.destination)
}

pub(super) fn already(error: Errno) -> Result<(), Errno> {
    if error == Errno::EXIST { Ok(()) } else { Err(error) }
}

/// As a path relative to the root, so that an empty one is the root itself.
fn inside(path: &Path) -> &Path {
    let rest = path.strip_prefix("/").unwrap_or(path);
    if rest.as_os_str().is_empty() { Path::new(".") } else { rest }
}

/// The first folder below where control groups are mounted.
fn hierarchy(group: &Path) -> Option<&OsStr> {
    group.strip_prefix("/sys/fs/cgroup").ok()?.components().next().map(Component::as_os_str)
}

/// Whether a file is one of the kernel's own about processes, and not what somebody put in its place.
pub(super) fn is_proc(file: BorrowedFd<'_>) -> Result<bool, String> {
    let about = rustix::fs::fstatfs(file).map_err(because("its file system"))?;
    Ok(u32::try_from(about.f_type).is_ok_and(|kind| kind == PROC_MAGIC))
}

pub(super) fn own_path(descriptor: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&descriptor))
}

/// The machine's own: one in the container could be anything.
fn null_device() -> Result<OwnedFd, String> {
    let null = rustix::fs::openat(CWD, "/dev/null", HANDLE, Mode::empty()).map_err(because("/dev/null"))?;
    let about = rustix::fs::statat(&null, c"", AtFlags::EMPTY_PATH).map_err(because("/dev/null"))?;
    let right = FileType::from_raw_mode(about.st_mode) == FileType::CharacterDevice
        && about.st_rdev == rustix::fs::makedev(1, 3);
    if right { Ok(null) } else { Err("/dev/null of this machine is no null device".to_owned()) }
}

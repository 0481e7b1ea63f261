//! The container's first process, from its beginning as a copy of the shim to the execution of its program.
//!
//! It tells the shim by single letters how far it is, and the reason where it fails; the end of the connection says that
//! the program is executed. Nothing here returns to the shim's own code.

use std::ffi::CString;
use std::io::{IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::DumpableBehavior;
use rustix::thread::{LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags};

use super::document::{Document, Process};
use super::rootfs::{Rootfs, because};
use super::seccomp::Filter;
use super::users::Prepared;
use super::{cgroup::Group, devices, hooks, privileges, system};

/// What is told to the shim.
pub(super) const READY: u8 = b'R';
pub(super) const TERMINAL: u8 = b'T';
pub(super) const HOOKS: u8 = b'H';
/// It is to be put into its control group by somebody else.
pub(super) const UNPLACED: u8 = b'P';
pub(super) const FAILED: u8 = b'E';
/// Followed by the number of the process that goes on in place of this one, which waits to be told to.
pub(super) const BORN: u8 = b'B';
const MULTIPLEXER: &str = "/dev/pts/ptmx";
const TERMINAL_FLAGS: OFlags = OFlags::RDWR.union(OFlags::NOCTTY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// As of a command that cannot be executed.
const EXIT_CODE: i32 = 128;

/// Ends of pipes that become input and outputs; without them all three are the terminal's.
pub(crate) struct Streams {
    pub(crate) input: Option<OwnedFd>,
    pub(crate) output: OwnedFd,
    pub(crate) errors: OwnedFd,
}

pub(super) struct New<'a> {
    pub(super) id: &'a str,
    pub(super) bundle: &'a Path,
    pub(super) document: &'a Document,
    pub(super) group: &'a Group,
    pub(super) filter: Option<&'a Filter>,
    /// The process namespace that one with users of its own joins.
    pub(super) processes: Option<std::fs::File>,
    pub(super) streams: Option<Streams>,
}

/// A command in a container that runs.
pub(super) struct Joining<'a> {
    pub(super) process: &'a Process,
    /// The container's first process, whose namespaces are joined.
    pub(super) first: BorrowedFd<'a>,
    /// It is in a user namespace.
    pub(super) own_users: bool,
    pub(super) group: &'a Group,
    pub(super) filter: Option<&'a Filter>,
    pub(super) streams: Option<Streams>,
}

/// Runs in the child; what failed is told and the process ends.
pub(super) fn begin(
    mut channel: UnixStream,
    run: impl FnOnce(&mut UnixStream) -> Result<std::convert::Infallible, String>,
) -> ! {
    let Err(error) = run(&mut channel);
    let _ = channel.write_all(&[&[FAILED], error.as_bytes()].concat());
    system::end(EXIT_CODE)
}

/// Nobody in the container looks into this process before it is the container's own.
fn leave_shim() -> Result<(), String> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(because("cannot hide"))?;
    system::reset_signals();
    rustix::process::setsid().map_err(because("cannot begin a session"))?;
    system::close_on_exec(3).map_err(because("cannot close what is the shim's"))
}

pub(super) fn create(new: New<'_>, channel: &mut UnixStream) -> Result<std::convert::Infallible, String> {
    let document = new.document;
    leave_shim()?;
    if new.group.is_scope() {
        tell(channel, UNPLACED)?;
        listen(channel)?;
    }
    new.group.join().map_err(|error| error.to_string())?;
    score(&document.process)?;
    let namespaces = pod_namespaces(document)?;
    let prepared = Prepared::make(document, new.processes)?;
    if let Some(prepared) = &prepared {
        prepared.enter()?;
    }
    for (kind, link, file) in namespaces {
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(link))
            .map_err(because(format!("cannot join the pod's {kind} namespace")))?;
    }
    if let Some(prepared) = &prepared {
        prepared.be_born(channel)?;
    }
    system::new_keyring();
    leave_machine(document)?;
    let last = privileges::last_capability();
    let own_users = prepared.is_some();
    let rootfs = match prepared {
        Some(prepared) => Rootfs::prepared(document, prepared.root, prepared.trees)?,
        None => Rootfs::begin(document)?,
    };
    rootfs.mount_all(document, &new.group.hierarchies())?;
    if !own_users {
        devices::make(&rootfs, document)?;
    }
    if hooks::wait_for_runtime(document) {
        tell(channel, HOOKS)?;
        listen(channel)?;
    }
    hooks::in_container(&document.hooks.create_container, new.id, new.bundle)?;
    rootfs.cover(document)?;
    let terminal = match new.streams {
        Some(streams) => {
            take_streams(streams)?;
            None
        }
        None => Some(terminal(&rootfs, devices::own(document))?),
    };
    make_working_folder(&rootfs, &document.process.cwd)?;
    rootfs.enter(document)?;
    hooks::in_container(&document.hooks.start_container, new.id, new.bundle)?;
    if let Some((master, slave)) = terminal {
        hand_over(channel, master.as_fd())?;
        take_terminal(slave)?;
    }
    finish(&document.process, new.filter, last, channel)
}

type PodNamespace = (&'static str, LinkNameSpaceType, std::fs::File);

/// Those of the pod that the container joins.
fn pod_namespaces(document: &Document) -> Result<Vec<PodNamespace>, String> {
    let kinds = [
        ("network", LinkNameSpaceType::Network),
        ("ipc", LinkNameSpaceType::InterProcessCommunication),
        ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ];
    let kept = kinds.into_iter().filter_map(|(kind, link)| Some((kind, link, document.namespace(kind)??)));
    kept.map(|(kind, link, path)| {
        let file = std::fs::File::open(path).map_err(because(format!("the pod's {kind} namespace")))?;
        Ok((kind, link, file))
    })
    .collect()
}

/// Leaves the machine's namespaces for new ones of the container.
fn leave_machine(document: &Document) -> Result<(), String> {
    let mut flags = UnshareFlags::NEWNS;
    flags.set(UnshareFlags::NEWCGROUP, document.namespace("cgroup").is_some());
    for (kind, flag) in
        [("network", UnshareFlags::NEWNET), ("ipc", UnshareFlags::NEWIPC), ("uts", UnshareFlags::NEWUTS)]
    {
        flags.set(flag, document.namespace(kind) == Some(None));
    }
    #[expect(unsafe_code, reason = "leaving a namespace has no other form")]
    // SAFETY: only namespaces are left, no file descriptors or memory.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(because("cannot make namespaces"))
}

pub(super) fn join(mut joining: Joining<'_>, channel: &mut UnixStream) -> Result<std::convert::Infallible, String> {
    leave_shim()?;
    joining.group.join_beside(joining.first).map_err(|error| error.to_string())?;
    score(joining.process)?;
    keep_own_files(&mut joining, channel)?;
    let last = privileges::last_capability();
    let mut kinds = ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::CONTROL_GROUP;
    kinds.set(ThreadNameSpaceType::USER, joining.own_users);
    rustix::thread::move_into_thread_name_spaces(joining.first, kinds)
        .map_err(because("cannot join the container's namespaces"))?;
    if joining.own_users {
        privileges::become_root()?;
    }
    system::new_keyring();
    match joining.streams {
        Some(streams) => take_streams(streams)?,
        None => {
            // The container's root is this process's already.
            let (master, slave) = open_terminal(open_multiplexer())?;
            hand_over(channel, master.as_fd())?;
            take_terminal(slave)?;
        }
    }
    finish(joining.process, joining.filter, last, channel)
}

/// From the container's namespaces on, the container says what a name stands for, and this process may still open everything:
/// what it needs of the machine is opened before, and nothing else of the shim's stays open.
fn keep_own_files(joining: &mut Joining<'_>, channel: &UnixStream) -> Result<(), String> {
    let null = null_device()?;
    system::set_standard_streams(null.as_fd(), null.as_fd(), null.as_fd())
        .map_err(because("cannot connect input and output"))?;
    let mut kept = vec![channel.as_fd(), joining.first];
    match &mut joining.streams {
        Some(streams) => {
            streams.input.get_or_insert(null);
            kept.extend(streams.input.iter().chain([&streams.output, &streams.errors]).map(AsFd::as_fd));
        }
        None => drop(null),
    }
    system::close_all_but(3, &kept).map_err(because("cannot close what is the shim's"))
}

/// Everything that is left once the process is where it belongs.
fn finish(
    process: &Process,
    filter: Option<&Filter>,
    last: u32,
    channel: &mut UnixStream,
) -> Result<std::convert::Infallible, String> {
    // Folder, program and interpreter are found by paths of the image, which may name descriptors: closing them with the
    // execution is too late.
    system::close_all_but(3, &[channel.as_fd()]).map_err(because("cannot close what is the shim's"))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    privileges::confine(&process.apparmor_profile)?;
    privileges::drop_bounding(&process.capabilities, last)?;
    if process.no_new_privileges {
        rustix::thread::set_no_new_privs(true).map_err(because("cannot give up new privileges"))?;
    }
    let filtered = |filter: Option<&Filter>| match filter {
        Some(filter) => system::filter_calls(filter).map_err(because("cannot filter system calls")),
        None => Ok(()),
    };
    // Some folders can be entered by root only, others by the user only.
    let entered = enter_folder(&process.cwd);
    if !process.no_new_privileges {
        // It takes a privilege that is gone afterwards.
        filtered(filter)?;
    }
    privileges::become_user(process)?;
    if entered.is_err() {
        enter_folder(&process.cwd)?;
    }
    stay_inside()?;
    let program = find(process)?;
    let arguments = words(&process.args)?;
    let variables = words(&process.env)?;
    tell(channel, READY)?;
    listen(channel)?;
    if process.no_new_privileges {
        filtered(filter)?;
    }
    let error = system::execute(&program, &arguments, &variables);
    Err(format!("exec {}: {}", program.to_string_lossy(), plain(&error)))
}

fn words(list: &[String]) -> Result<Vec<CString>, String> {
    list.iter().map(|word| CString::new(word.as_str()).map_err(|_| format!("{word:?} has a zero byte"))).collect()
}

fn tell(channel: &mut UnixStream, letter: u8) -> Result<(), String> {
    channel.write_all(&[letter]).map_err(because("the shim is gone"))
}

/// Waits until the shim says to go on.
pub(super) fn listen(channel: &mut UnixStream) -> Result<(), String> {
    channel.read_exact(&mut [0; 1]).map_err(because("the shim is gone"))
}

fn score(process: &Process) -> Result<(), String> {
    match process.oom_score_adj {
        Some(score) => {
            std::fs::write("/proc/self/oom_score_adj", score.to_string()).map_err(because("cannot set the OOM score"))
        }
        None => Ok(()),
    }
}

fn take_streams(streams: Streams) -> Result<(), String> {
    let input = match streams.input {
        Some(input) => input,
        None => null_device()?,
    };
    system::set_standard_streams(input.as_fd(), streams.output.as_fd(), streams.errors.as_fd())
        .map_err(because("cannot connect input and output"))
}

/// The machine's, as long as its files are in sight.
fn null_device() -> Result<OwnedFd, String> {
    let null =
        rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(because("/dev/null"))?;
    let about = rustix::fs::fstat(&null).map_err(because("/dev/null"))?;
    let right = FileType::from_raw_mode(about.st_mode) == FileType::CharacterDevice
        && about.st_rdev == rustix::fs::makedev(1, 3);
    if right { Ok(null) } else { Err("/dev/null of this machine is no null device".to_owned()) }
}

/// The container's, which may have put something else in its place: no link of the kernel's is followed.
fn open_multiplexer() -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(CWD, MULTIPLEXER, TERMINAL_FLAGS, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

/// A terminal of the container's own, of which the shim gets the other end.
fn terminal(rootfs: &Rootfs, console: bool) -> Result<(OwnedFd, OwnedFd), String> {
    let (master, slave) = open_terminal(rootfs.open(Path::new(MULTIPLEXER), TERMINAL_FLAGS))?;
    if console {
        devices::console(rootfs, slave.as_fd())?;
    }
    Ok((master, slave))
}

fn open_terminal(opened: Result<OwnedFd, Errno>) -> Result<(OwnedFd, OwnedFd), String> {
    let failed = || because::<Errno>("cannot open a terminal");
    let master = opened.map_err(failed())?;
    let about = rustix::fs::fstat(&master).map_err(failed())?;
    let right = FileType::from_raw_mode(about.st_mode) == FileType::CharacterDevice
        && about.st_rdev == rustix::fs::makedev(5, 2);
    if !right {
        return Err("cannot open a terminal: /dev/pts/ptmx is something else".to_owned());
    }
    let slave = system::other_end(master.as_fd()).map_err(because("cannot open a terminal"))?;
    Ok((master, slave))
}

fn hand_over(channel: &UnixStream, master: BorrowedFd<'_>) -> Result<(), String> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [master];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(channel, &[IoSlice::new(&[TERMINAL])], &mut control, SendFlags::empty())
        .map_err(because("the shim is gone"))?;
    Ok(())
}

fn take_terminal(slave: OwnedFd) -> Result<(), String> {
    let failed = || because::<Errno>("cannot connect the terminal");
    rustix::process::ioctl_tiocsctty(&slave).map_err(failed())?;
    system::set_standard_streams(slave.as_fd(), slave.as_fd(), slave.as_fd())
        .map_err(because("cannot connect the terminal"))
}

/// A working folder that the image lacks is made.
fn make_working_folder(rootfs: &Rootfs, folder: &str) -> Result<(), String> {
    if folder == "/" || folder.is_empty() {
        return Ok(());
    }
    rootfs.working_folder(Path::new(folder)).map_err(because(format!("mkdir {folder}")))
}

fn enter_folder(folder: &str) -> Result<(), String> {
    let folder = if folder.is_empty() { "/" } else { folder };
    rustix::process::chdir(folder).map_err(because(format!("chdir to cwd ({folder:?}) set in config.json failed")))
}

/// A link of the kernel's could lead to a folder of the machine.
fn stay_inside() -> Result<(), String> {
    match rustix::process::getcwd(Vec::new()) {
        Ok(path) if path.as_bytes().starts_with(b"/") => Ok(()),
        _ => Err("current working directory is outside of container mount namespace root -- possible container breakout detected".to_owned()),
    }
}

/// As a shell finds a program, with the words of other runtimes where there is none.
fn find(process: &Process) -> Result<CString, String> {
    let name = process.args.first().ok_or("no command specified")?;
    let executable = |path: &Path| -> Result<(), Errno> {
        let about = rustix::fs::stat(path)?;
        if FileType::from_raw_mode(about.st_mode).is_dir() {
            return Err(Errno::ISDIR);
        }
        rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)
    };
    let given = |path: &Path| CString::new(path.to_string_lossy().as_bytes()).map_err(|e| e.to_string());
    if name.contains('/') {
        return match executable(Path::new(name)) {
            Ok(()) => given(Path::new(name)),
            Err(Errno::ACCESS) => Err(format!("exec: {name:?}: permission denied")),
            Err(Errno::ISDIR) => Err(format!("exec: {name:?}: is a directory")),
            Err(error) => Err(format!("exec: {name:?}: stat {name}: {}", plain(&error.into()))),
        };
    }
    let path = process.env.iter().rev().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or_default();
    let mut refused = false;
    for folder in path.split(':') {
        let file = Path::new(if folder.is_empty() { "." } else { folder }).join(name);
        match executable(&file) {
            Ok(()) => return given(&file),
            Err(Errno::ACCESS) => refused = true,
            Err(_) => {}
        }
    }
    let why = if refused { "permission denied" } else { "executable file not found in $PATH" };
    Err(format!("exec: {name:?}: {why}"))
}

/// The kernel's words without the number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.to_lowercase()
}

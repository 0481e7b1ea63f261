//! System calls that have no safe form: making a process, filters of its calls, attributes of mounts.
//!
//! A process is made only in the shim, which has one thread: the child may use all of its memory.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::cgroup::DeviceInstruction;
use super::seccomp::Filter;

/// In the child there is no number.
pub(crate) enum Clone {
    Parent(i32),
    Child,
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Where a copy of this process belongs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Birth {
    /// In a process namespace of its own, as its first process.
    pub(crate) new_processes: bool,
    /// As a child of this process's parent, which hears of its end.
    pub(crate) sibling: bool,
}

/// A copy of this process. It must never return to what waits for events here: it executes something else or ends.
pub(crate) fn clone(birth: Birth) -> io::Result<Clone> {
    // A folder has a link for itself, one from above, and one from each folder in it.
    let threads = std::os::unix::fs::MetadataExt::nlink(&std::fs::metadata("/proc/self/task")?) - 2;
    if threads != 1 {
        return Err(io::Error::other(format!("this process has {threads} threads, and one of them could hold a lock")));
    }
    let when = |wanted: bool, flag: i32| if wanted { flag } else { 0 };
    let flags = libc::SIGCHLD | when(birth.new_processes, libc::CLONE_NEWPID) | when(birth.sibling, libc::CLONE_PARENT);
    #[expect(unsafe_code, reason = "a process with a process namespace has no other form")]
    // SAFETY: this process has one thread, so no lock is held by somebody who is not there in the child; without
    // CLONE_VM the child has memory of its own, and a stack of zero means a copy of this one's.
    let pid = checked(unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) })?;
    Ok(if pid == 0 { Clone::Child } else { Clone::Parent(i32::try_from(pid).map_err(io::Error::other)?) })
}

/// Ends the process at once, without what others would do at an exit.
pub(crate) fn end(code: i32) -> ! {
    #[expect(unsafe_code, reason = "a copy of the shim must not do what the shim does at its end")]
    // SAFETY: it does not return.
    unsafe {
        libc::_exit(code)
    }
}

/// Becomes another program; comes back only with the reason why not.
pub(crate) fn execute(program: &CStr, arguments: &[CString], variables: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, variables) = (pointers(arguments), pointers(variables));
    #[expect(unsafe_code, reason = "the standard library's form keeps this process's variables")]
    // SAFETY: both lists end with a null pointer, and what they point at lives until the call returns.
    unsafe {
        libc::execve(program.as_ptr(), arguments.as_ptr(), variables.as_ptr());
    }
    io::Error::last_os_error()
}

/// What a program expects of its signals: none is ignored or blocked.
pub(crate) fn reset_signals() {
    // The kernel's structure, with zero for the default. The library's form leaves out two signals that it keeps for itself.
    let default = [0u64; 4];
    #[expect(unsafe_code, reason = "dispositions of signals have no other form")]
    // SAFETY: the kernel reads no more than the structure, and the mask is a local value.
    unsafe {
        for signal in 1..=64 {
            let signal: libc::c_long = signal;
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), size_of::<u64>());
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Any signal, also those without names.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    #[expect(unsafe_code, reason = "real-time signals have no other form")]
    // SAFETY: two numbers.
    checked(unsafe { libc::kill(pid, signal) }.into()).map(|_| ())
}

/// The same to a process by its handle: a number may be another's by now.
pub(crate) fn signal(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    #[expect(unsafe_code, reason = "real-time signals have no other form")]
    // SAFETY: numbers, and no information beside the signal.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            libc::c_long::from(process.as_raw_fd()),
            libc::c_long::from(signal),
            std::ptr::null::<u8>(),
            0,
        )
    };
    checked(sent).map(|_| ())
}

/// All descriptors from `first` on are closed when something is executed.
pub(crate) fn close_on_exec(first: u32) -> io::Result<()> {
    const CLOSE_ON_EXEC: libc::c_long = 4;
    #[expect(unsafe_code, reason = "close_range has no other form")]
    // SAFETY: nothing is closed now, so no owner of a descriptor is cheated.
    let done = unsafe {
        libc::syscall(libc::SYS_close_range, libc::c_long::from(first), libc::c_long::from(u32::MAX), CLOSE_ON_EXEC)
    };
    checked(done).map(|_| ())
}

/// Closes all descriptors from `first` on but these.
pub(crate) fn close_all_but(first: u32, kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let numbers: Result<BTreeSet<u32>, _> = kept.iter().map(|one| u32::try_from(one.as_raw_fd())).collect();
    let (mut ranges, mut from) = (Vec::new(), first);
    for kept in numbers.map_err(io::Error::other)?.range(first..) {
        ranges.push((from, kept.saturating_sub(1)));
        from = kept.saturating_add(1);
    }
    ranges.push((from, u32::MAX));
    for (from, to) in ranges.into_iter().filter(|(from, to)| from <= to) {
        #[expect(unsafe_code, reason = "close_range has no other form")]
        // SAFETY: this process is a copy that executes something else or ends, so no owner of a descriptor runs again.
        let done = unsafe { libc::syscall(libc::SYS_close_range, libc::c_long::from(from), libc::c_long::from(to), 0) };
        checked(done)?;
    }
    Ok(())
}

/// Input, output and errors of the program that is executed next.
pub(crate) fn set_standard_streams(
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    errors: BorrowedFd<'_>,
) -> io::Result<()> {
    for (descriptor, number) in [(input, 0), (output, 1), (errors, 2)] {
        #[expect(unsafe_code, reason = "descriptors with given numbers have no other form here")]
        // SAFETY: the three numbers are nobody's property, and what is put there is open.
        checked(unsafe { libc::dup2(descriptor.as_raw_fd(), number) }.into())?;
    }
    Ok(())
}

/// The end of a terminal that programs use.
pub(crate) fn other_end(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (locked, flags): (libc::c_int, libc::c_int) = (0, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
    #[expect(unsafe_code, reason = "both requests have no other form")]
    // SAFETY: the first reads a number, the second takes one and makes a descriptor, which is new and nobody else's.
    unsafe {
        checked(libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const locked).into())?;
        let end = checked(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags).into())?;
        Ok(OwnedFd::from_raw_fd(i32::try_from(end).map_err(io::Error::other)?))
    }
}

/// The keys of whoever started this process are not the container's.
pub(crate) fn new_keyring() {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    #[expect(unsafe_code, reason = "keyrings have no other form")]
    // SAFETY: a null name asks for a new keyring without one. A kernel without keyrings has none to share.
    let _ = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
}

#[repr(C)]
struct FilterProgram {
    length: u16,
    instructions: *const super::seccomp::Instruction,
}

pub(crate) fn filter_calls(filter: &Filter) -> io::Result<()> {
    const SET_MODE_FILTER: libc::c_long = 1;
    let length = u16::try_from(filter.instructions.len()).map_err(io::Error::other)?;
    let program = FilterProgram { length, instructions: filter.instructions.as_ptr() };
    #[expect(unsafe_code, reason = "seccomp has no other form")]
    // SAFETY: the program and its instructions live until the call returns, and have the kernel's layout.
    let done = unsafe {
        libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, libc::c_long::from(filter.flags), &raw const program)
    };
    checked(done).map(|_| ())
}

#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Attributes of a mount: bits of `MOUNT_ATTR_`.
pub(crate) fn set_mount_attributes(mount: BorrowedFd<'_>, recursive: bool, set: u64, clear: u64) -> io::Result<()> {
    mount_attributes(mount, recursive, &MountAttributes { set, clear, ..Default::default() })
}

/// How mounts that come and go below are shared: bits of `MS_`.
pub(crate) const UNBINDABLE: u64 = 1 << 17;
pub(crate) const PRIVATE: u64 = 1 << 18;
pub(crate) const SLAVE: u64 = 1 << 19;
pub(crate) const SHARED: u64 = 1 << 20;

pub(crate) fn set_mount_propagation(mount: BorrowedFd<'_>, recursive: bool, propagation: u64) -> io::Result<()> {
    mount_attributes(mount, recursive, &MountAttributes { propagation, ..Default::default() })
}

/// Shows the files of a mount that nobody sees yet as those of the users of a namespace: who is 0 on the disk is its root.
pub(crate) fn map_owners(mount: BorrowedFd<'_>, recursive: bool, users: BorrowedFd<'_>) -> io::Result<()> {
    const ID_MAP: u64 = 0x10_0000;
    let user_namespace = u64::try_from(users.as_raw_fd()).map_err(io::Error::other)?;
    mount_attributes(mount, recursive, &MountAttributes { set: ID_MAP, user_namespace, ..Default::default() })
}

fn mount_attributes(mount: BorrowedFd<'_>, recursive: bool, attributes: &MountAttributes) -> io::Result<()> {
    const RECURSIVE: libc::c_long = 0x8000;
    let flags = libc::c_long::from(libc::AT_EMPTY_PATH) | if recursive { RECURSIVE } else { 0 };
    #[expect(unsafe_code, reason = "mount_setattr has no other form")]
    // SAFETY: the path is empty, the structure has the kernel's layout and the length that is told.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::c_long::from(mount.as_raw_fd()),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<MountAttributes>(),
        )
    };
    checked(done).map(|_| ())
}

#[repr(C, align(8))]
#[derive(Default)]
struct LoadProgram {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// A program that decides which devices may be used.
pub(crate) fn load_device_program(program: &[DeviceInstruction]) -> io::Result<OwnedFd> {
    const LOAD: libc::c_long = 5;
    const FOR_DEVICES: u32 = 15;
    let attributes = LoadProgram {
        kind: FOR_DEVICES,
        count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr() as u64,
        licence: c"Apache".as_ptr() as u64,
        ..Default::default()
    };
    #[expect(unsafe_code, reason = "bpf has no other form")]
    // SAFETY: the structure begins as the kernel's, its length is told, and what it points at lives until the call returns.
    let loaded =
        checked(unsafe { libc::syscall(libc::SYS_bpf, LOAD, &raw const attributes, size_of::<LoadProgram>()) })?;
    let loaded = i32::try_from(loaded).map_err(io::Error::other)?;
    #[expect(unsafe_code, reason = "the kernel made a descriptor")]
    // SAFETY: it is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(loaded) })
}

#[repr(C)]
struct AttachProgram {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

pub(crate) fn attach_device_program(group: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    const ATTACH: libc::c_long = 8;
    const DEVICES: u32 = 6;
    const BESIDE_OTHERS: u32 = 2;
    let number = |descriptor: BorrowedFd<'_>| u32::try_from(descriptor.as_raw_fd()).map_err(io::Error::other);
    let attributes = AttachProgram {
        target: number(group.as_fd())?,
        program: number(program)?,
        kind: DEVICES,
        flags: BESIDE_OTHERS,
    };
    #[expect(unsafe_code, reason = "bpf has no other form")]
    // SAFETY: the structure begins as the kernel's, and its length is told.
    checked(unsafe { libc::syscall(libc::SYS_bpf, ATTACH, &raw const attributes, size_of::<AttachProgram>()) })
        .map(|_| ())
}

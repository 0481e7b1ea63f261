//! Processes that outlive the one that started them: found again by a lock they hold, ended by a handle to that very process.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A lock file that names its holder. The kernel frees the lock when the holder dies, however it dies.
pub struct Lock(#[expect(dead_code, reason = "held open for its lock")] File);

impl Lock {
    /// Takes the lock for this process, or says who has it.
    pub fn take(path: &Path) -> Result<Self> {
        Self::take_as(path, std::process::id().cast_signed())
    }

    /// The same for a process that others know by another number than its own.
    pub fn take_as(path: &Path, pid: i32) -> Result<Self> {
        let mut file = open(path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let holder =
                read_pid(&mut file).map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            bail!(
                "a cluster with this folder is already running ({holder} holds {}); stop it with `ferry down`",
                path.display()
            );
        }
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{pid}"))?;
        Ok(Self(file))
    }
}

/// The process that holds a lock file, if one does.
pub fn holder(path: &Path) -> Result<Option<i32>> {
    if !path.exists() {
        return Ok(None);
    }
    let mut file = open(path)?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return Ok(None);
    }
    read_pid(&mut file).map(Some).with_context(|| format!("{} is locked but names no process", path.display()))
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

fn read_pid(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Whether a process is gone by then.
pub fn ends_within(pid: i32, patience: Duration) -> Result<bool> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(true) };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(true) };
    wait(&handle, patience)
}

fn wait(handle: &OwnedFd, patience: Duration) -> Result<bool> {
    let timeout = Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
    Ok(poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout))? > 0)
}

/// Asks a process to end, waits, and ends it by force at the deadline. Returns once it is gone.
pub fn end(pid: i32, patience: Duration) -> Result<()> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(()) };
    // The descriptor pins this very process: a recycled number cannot be hit.
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    end_by(&handle, patience).with_context(|| format!("process {}", pid.as_raw_nonzero()))
}

fn end_by(handle: &OwnedFd, patience: Duration) -> Result<()> {
    for (signal, patience) in [(Signal::TERM, patience), (Signal::KILL, Duration::from_secs(10))] {
        let _ = pidfd_send_signal(handle, signal);
        if wait(handle, patience)? {
            return Ok(());
        }
    }
    bail!("it does not exit, even after SIGKILL")
}

/// A holder writes its number right after it has taken the lock.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(1);

/// Ends whoever holds a lock file, and returns once nobody does; whether anybody did.
pub fn end_holder(path: &Path, patience: Duration) -> Result<bool> {
    let (mut ended, begin) = (false, Instant::now());
    while let Some(number) = holder(path)? {
        let Some(pid) = Pid::from_raw(number) else { break };
        if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
            // Still held: the descriptor is of the process that the file names, not of one that got its number since.
            && holder(path)? == Some(number)
        {
            end_by(&handle, patience)?;
            ended = true;
        } else if !ended && begin.elapsed() > UNKNOWN_PATIENCE {
            bail!("process {number} holds {}, and is none of those that are seen from here", path.display());
        } else {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
    Ok(ended)
}

/// Every watch and every pod costs file descriptors, and a shell gives 1,024 by default. As many as are allowed are taken.
pub fn allow_many_files() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limit.maximum, ..limit };
    // Without them it runs too, with fewer connections.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, most);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_its_holder_and_is_exclusive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert_eq!(holder(&path).unwrap(), None);
        let lock = Lock::take(&path).unwrap();
        assert_eq!(holder(&path).unwrap(), Some(std::process::id().cast_signed()));
        assert!(Lock::take(&path).err().unwrap().to_string().contains("ferry down"));
        drop(lock);
        assert_eq!(holder(&path).unwrap(), None);
    }

    #[test]
    fn a_process_whose_number_an_old_lock_names_is_not_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        // Nobody holds it: the number in it is somebody else's by now.
        std::fs::write(&path, child.id().to_string()).unwrap();
        assert!(!end_holder(&path, Duration::from_secs(10)).unwrap());
        assert!(!ends_within(child.id().cast_signed(), Duration::from_millis(1)).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_holder_that_is_not_seen_from_here_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        // As one in a process namespace of its own.
        let _lock = Lock::take_as(&path, i32::MAX).unwrap();
        let why = end_holder(&path, Duration::from_secs(10)).unwrap_err().to_string();
        assert!(why.contains(&format!("process {} holds", i32::MAX)), "{why}");
    }

    #[test]
    fn a_process_is_ended() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!ends_within(child.id().cast_signed(), Duration::from_millis(1)).unwrap());
        end(child.id().cast_signed(), Duration::from_secs(10)).unwrap();
        assert!(!child.wait().unwrap().success());
    }
}

//! The end of a process that need not be a child.

use anyhow::Result;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;

/// Returns when a process has ended.
pub async fn exited(pid: i32) -> Result<()> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(()) };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::NONBLOCK) else { return Ok(()) };
    #[expect(unsafe_code, reason = "waiting for the end of a process that is no child has no other form")]
    // SAFETY: the descriptor is owned by the `AsyncFd` itself, so it stays open and the same for as long as it is registered.
    let handle = unsafe { AsyncFd::register(handle) }?;
    let _ = handle.readable().await?;
    // A child of ours stays a zombie until it is waited for.
    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
    Ok(())
}

//! Programs of device vendors that are run at the turns of a container's life, with its state on their input.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use serde_json::json;

use super::document::{Document, Hook};

/// The state as the OCI specification words it.
fn state(id: &str, bundle: &Path, status: &str, pid: i32) -> String {
    json!({"ociVersion": "1.0.2", "id": id, "status": status, "pid": pid, "bundle": bundle}).to_string()
}

fn spawn(hook: &Hook, state: &str) -> Result<Child, String> {
    let failed = |error: std::io::Error| format!("hook {}: {error}", hook.path.display());
    let mut command = Command::new(&hook.path);
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    if let [name, rest @ ..] = hook.args.as_slice() {
        std::os::unix::process::CommandExt::arg0(&mut command, name);
        command.args(rest);
    }
    command.envs(hook.env.iter().filter_map(|variable| variable.split_once('=')));
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // One that does not want to know closes its end.
        let _ = input.write_all(state.as_bytes());
    }
    Ok(child)
}

/// Hooks that see the container's namespaces from outside; the container waits for them.
pub(super) fn wait_for_runtime(document: &Document) -> bool {
    !document.hooks.prestart.is_empty() || !document.hooks.create_runtime.is_empty()
}

/// Runs hooks in the container's own process, which waits for nothing else.
pub(super) fn in_container(hooks: &[Hook], id: &str, bundle: &Path) -> Result<(), String> {
    for hook in hooks {
        let mut child = spawn(hook, &state(id, bundle, "created", std::process::id().cast_signed()))?;
        let failed = |error: std::io::Error| format!("hook {}: {error}", hook.path.display());
        let handle = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let handle = handle.map_err(|error| failed(error.into()))?;
        let patience = hook.timeout.and_then(|seconds| i64::try_from(seconds).ok());
        let patience = patience.map(|tv_sec| Timespec { tv_sec, tv_nsec: 0 });
        // It can be read from once the process has ended.
        let ready = rustix::event::poll(&mut [PollFd::new(&handle, PollFlags::IN)], patience.as_ref());
        if ready.map_err(|error| failed(error.into()))? == 0 {
            let _ = child.kill();
            return Err(format!("hook {} did not end in time", hook.path.display()));
        }
        let ended = child.wait().map_err(failed)?;
        if !ended.success() {
            return Err(format!("hook {} failed: {ended}", hook.path.display()));
        }
    }
    Ok(())
}

/// Runs hooks in the shim, whose children are waited for by `wait`.
pub(crate) async fn in_shim<W: Future<Output = i32>>(
    hooks: &[Hook],
    (id, bundle, status, pid): (&str, &Path, &str, i32),
    wait: impl Fn(i32) -> W,
) -> Result<(), String> {
    for hook in hooks {
        let child = spawn(hook, &state(id, bundle, status, pid))?;
        let number = child.id().cast_signed();
        let patience = hook.timeout.map_or(Duration::MAX, Duration::from_secs);
        match tokio::time::timeout(patience, wait(number)).await {
            Ok(0) => {}
            Ok(code) => return Err(format!("hook {} failed with code {code}", hook.path.display())),
            Err(_) => {
                let _ = super::system::kill(number, 9);
                return Err(format!("hook {} did not end in time", hook.path.display()));
            }
        }
    }
    Ok(())
}

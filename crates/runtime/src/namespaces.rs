//! A pod's namespaces: made by this binary executed again, and kept alive by a mount of each.
//!
//! No process has to stay for them, so that an ordinary pod has none but its containers and its shim.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::mount::mount_bind;
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

/// What is wanted; handed over as the helper's one argument.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) folder: PathBuf,
    pub(crate) network: bool,
    pub(crate) ipc: bool,
    pub(crate) uts: bool,
    pub(crate) hostname: String,
    pub(crate) sysctls: BTreeMap<String, String>,
}

/// Makes namespaces and ends. `argument` is what is wanted.
pub fn main(argument: &str) -> ExitCode {
    let made = serde_json::from_str::<Wanted>(argument).map_err(|e| e.to_string()).and_then(|wanted| make(&wanted));
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn make(wanted: &Wanted) -> Result<(), String> {
    let parts = [
        (wanted.network, UnshareFlags::NEWNET, "net"),
        (wanted.ipc, UnshareFlags::NEWIPC, "ipc"),
        (wanted.uts, UnshareFlags::NEWUTS, "uts"),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|(wanted, ..)| *wanted).collect();
    let flags = parts.iter().fold(UnshareFlags::empty(), |all, (_, flag, _)| all | *flag);
    #[expect(unsafe_code, reason = "leaving a namespace has no other form")]
    // SAFETY: only namespaces are left, no file descriptors or memory that other threads would miss.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(|e| format!("cannot make namespaces: {e}"))?;
    if wanted.uts && !wanted.hostname.is_empty() {
        rustix::system::sethostname(wanted.hostname.as_bytes())
            .map_err(|e| format!("cannot set the host name: {e}"))?;
    }
    if wanted.network {
        // Programs of the pod talk to each other over it.
        ferry_bridge::bring_up_loopback().map_err(|error| error.to_string())?;
    }
    for (name, value) in &wanted.sysctls {
        set(name, value).map_err(|e| format!("cannot set sysctl {name}={value}: {e}"))?;
    }
    for (_, _, name) in parts {
        let pin = wanted.folder.join(name);
        std::fs::File::create(&pin).map_err(|e| format!("cannot make {}: {e}", pin.display()))?;
        mount_bind(Path::new("/proc/thread-self/ns").join(name), &pin)
            .map_err(|e| format!("cannot keep the {name} namespace: {e}"))?;
    }
    Ok(())
}

fn set(name: &str, value: &str) -> std::io::Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if !name.chars().all(plain) || name.contains("..") {
        return Err(std::io::Error::other("no name of a sysctl"));
    }
    let path = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
    std::fs::write(Path::new("/proc/sys").join(path), value)
}

//! A pod's namespaces: made by this binary executed again, and kept alive by a mount of each.
//!
//! No process has to stay for them, so that an ordinary pod has none but its containers and its shim.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::mount::mount_bind;
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use crate::container::system::{self, Birth, Clone};
use crate::container::{become_root, trees};
use crate::users::{Users, lines};

const DONE: u8 = b'D';
const FAILED: u8 = b'E';
const LONGEST_REASON: u64 = 4096;

/// What is wanted; handed over as the helper's one argument.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) folder: PathBuf,
    pub(crate) network: bool,
    pub(crate) ipc: bool,
    pub(crate) uts: bool,
    pub(crate) hostname: String,
    pub(crate) sysctls: BTreeMap<String, String>,
    /// A user namespace that owns the others.
    #[serde(default)]
    pub(crate) users: Option<Users>,
    /// Nothing is kept: it is only tried whether files of this folder can be shown as those of the users.
    #[serde(default)]
    pub(crate) probe: Option<PathBuf>,
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
    if let Some(users) = &wanted.users {
        return make_for(users, wanted);
    }
    leave(wanted)?;
    fill(wanted)?;
    keep(wanted, "thread-self")
}

fn parts(wanted: &Wanted) -> impl Iterator<Item = (UnshareFlags, &'static str)> {
    let parts = [
        (wanted.network, UnshareFlags::NEWNET, "net"),
        (wanted.ipc, UnshareFlags::NEWIPC, "ipc"),
        (wanted.uts, UnshareFlags::NEWUTS, "uts"),
        (wanted.users.is_some(), UnshareFlags::NEWUSER, "user"),
    ];
    parts.into_iter().filter(|(wanted, ..)| *wanted).map(|(_, flag, name)| (flag, name))
}

fn leave(wanted: &Wanted) -> Result<(), String> {
    let flags = parts(wanted).fold(UnshareFlags::empty(), |all, (flag, _)| all | flag);
    #[expect(unsafe_code, reason = "leaving a namespace has no other form")]
    // SAFETY: only namespaces are left, no file descriptors or memory that other threads would miss.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(|e| format!("cannot make namespaces: {e}"))
}

/// What the new namespaces have in them from the start.
fn fill(wanted: &Wanted) -> Result<(), String> {
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
    Ok(())
}

/// Keeps the namespaces of a process by a mount of each.
fn keep(wanted: &Wanted, process: &str) -> Result<(), String> {
    for (_, name) in parts(wanted) {
        let pin = wanted.folder.join(name);
        std::fs::File::create(&pin).map_err(|e| format!("cannot make {}: {e}", pin.display()))?;
        mount_bind(Path::new("/proc").join(process).join("ns").join(name), &pin)
            .map_err(|e| format!("cannot keep the {name} namespace: {e}"))?;
    }
    Ok(())
}

/// Whoever makes a user namespace is somebody in it alone. So a copy of this process makes it, and this one gives it its users
/// and keeps it.
fn make_for(users: &Users, wanted: &Wanted) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot make a user namespace: {error}");
    let (mut ours, mut theirs) = UnixStream::pair().map_err(failed)?;
    let pid = match system::clone(Birth::default()).map_err(failed)? {
        Clone::Parent(pid) => pid,
        Clone::Child => {
            drop(ours);
            if let Err(error) = be_inside(wanted, &mut theirs) {
                let _ = theirs.write_all(&[&[FAILED], error.as_bytes()].concat());
            }
            system::end(0)
        }
    };
    drop(theirs);
    heard(&mut ours)?;
    for (file, ranges) in [("uid_map", &users.uids), ("gid_map", &users.gids)] {
        std::fs::write(format!("/proc/{pid}/{file}"), lines(ranges))
            .map_err(|error| format!("cannot give the user namespace its users ({file}): {error}"))?;
    }
    ours.write_all(&[DONE]).map_err(failed)?;
    heard(&mut ours)?;
    if let Some(folder) = &wanted.probe {
        let namespace = std::fs::File::open(format!("/proc/{pid}/ns/user")).map_err(failed)?;
        return trees::try_mapping(folder, namespace.as_fd());
    }
    keep(wanted, &pid.to_string())
}

/// The copy: it ends when the other side has done its part.
fn be_inside(wanted: &Wanted, channel: &mut UnixStream) -> Result<(), String> {
    let gone = |error: std::io::Error| error.to_string();
    leave(wanted)?;
    channel.write_all(&[DONE]).map_err(gone)?;
    channel.read_exact(&mut [0; 1]).map_err(gone)?;
    become_root()?;
    fill(wanted)?;
    channel.write_all(&[DONE]).map_err(gone)?;
    let _ = channel.read(&mut [0; 1]);
    Ok(())
}

fn heard(channel: &mut UnixStream) -> Result<(), String> {
    let mut letter = [0; 1];
    match channel.read(&mut letter) {
        Ok(1) if letter[0] == DONE => Ok(()),
        Ok(1) => {
            let mut why = String::new();
            let _ = channel.take(LONGEST_REASON).read_to_string(&mut why);
            Err(why)
        }
        _ => Err("the process that made the user namespace ended".to_owned()),
    }
}

fn set(name: &str, value: &str) -> std::io::Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if !name.chars().all(plain) || name.contains("..") {
        return Err(std::io::Error::other("no name of a sysctl"));
    }
    std::fs::write(Path::new("/proc/sys").join(ferry_cri::sysctl::path(name)), value)
}

//! Containers, made by this program itself: what the `config.json` of a bundle says becomes a process.
//!
//! The pod's shim makes a copy of itself (`system`), which becomes the container's first process step by step (`init`):
//! it joins the control group and the pod's namespaces, puts its root together (`rootfs`, `devices`), and gives up what
//! the container may not do (`privileges`, `seccomp`). Needs Linux 5.12.

pub(crate) mod cgroup;
mod devices;
mod document;
mod hooks;
mod init;
mod options;
mod privileges;
mod rootfs;
mod seccomp;
pub(crate) mod system;
pub(crate) mod trees;
mod users;

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::{LinkNameSpaceType, ThreadNameSpaceType};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use cgroup::Group;
pub(crate) use document::Hook;
use document::{Document, Process, Resources};
pub(crate) use hooks::in_shim as run_hooks;
pub(crate) use init::Streams;
pub(crate) use privileges::become_root;
use seccomp::Filter;
pub(crate) use system::signal;
use system::{Birth, Clone};

/// No reason for a failure is longer.
const LONGEST_REASON: u64 = 64 * 1024;

/// A container as its bundle describes it.
pub(crate) struct Plan {
    id: String,
    bundle: PathBuf,
    document: Document,
    filter: Option<Filter>,
    pub(crate) group: Group,
}

impl Plan {
    pub(crate) fn read(id: &str, bundle: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(bundle.join("config.json")).map_err(|error| format!("config.json: {error}"))?;
        let document: Document = serde_json::from_slice(&bytes).map_err(|error| format!("config.json: {error}"))?;
        let filter = document.linux.seccomp.as_ref().map(seccomp::compile).transpose()?;
        let group = Group::new(&document.linux.cgroups_path);
        Ok(Self { id: id.to_owned(), bundle: bundle.to_owned(), document, filter, group })
    }

    /// The process namespace of somebody else that the container joins.
    pub(crate) fn joined_processes(&self) -> Option<&Path> {
        self.document.namespace("pid").flatten()
    }

    /// Begins the container's first process. It executes nothing before it is told to. `processes` is the namespace that it
    /// joins, where it joins one.
    pub(crate) fn create(&self, streams: Option<Streams>, processes: Option<File>) -> Result<Begun, String> {
        // systemd makes a group around a process, so that comes first.
        if !self.group.is_scope() {
            self.group.make(&self.document.linux.resources).map_err(|error| error.to_string())?;
        }
        // One with users of its own makes its process namespace as one of them.
        let own_users = self.document.namespace("user").is_some();
        let new = !own_users && self.document.namespace("pid") == Some(None);
        let (other, processes) = if own_users { (None, processes) } else { (processes, None) };
        spawn(new, other.as_ref().map(|file| (file.as_fd(), Target::Namespace)), |channel| {
            let new = init::New {
                id: &self.id,
                bundle: &self.bundle,
                document: &self.document,
                group: &self.group,
                filter: self.filter.as_ref(),
                processes,
                streams,
            };
            init::begin(channel, |channel| init::create(new, channel))
        })
    }

    /// Begins a command in the container, whose first process is `first`.
    pub(crate) fn exec(
        &self,
        first: &OwnedFd,
        process: &serde_json::Value,
        streams: Option<Streams>,
    ) -> Result<Begun, String> {
        let process: Process =
            serde_json::from_value(process.clone()).map_err(|error| format!("the command: {error}"))?;
        spawn(false, Some((first.as_fd(), Target::Process)), |channel| {
            let joining = init::Joining {
                process: &process,
                first: first.as_fd(),
                own_users: self.document.namespace("user").is_some(),
                group: &self.group,
                filter: self.filter.as_ref(),
                streams,
            };
            init::begin(channel, |channel| init::join(joining, channel))
        })
    }

    /// Puts a process that has begun into the container's group, where systemd makes that.
    pub(crate) async fn place(&self, begun: &mut Begun) -> Result<(), String> {
        if !self.group.is_scope() {
            return Ok(());
        }
        match begun.next().await? {
            Step::Unplaced => {}
            _ => return Err("the container's process did not wait for its control group".to_owned()),
        }
        let resources = &self.document.linux.resources;
        let placed = async {
            self.group.begin_scope(begun.pid, resources).await?;
            self.group.make(resources)
        };
        placed.await.map_err(|error| format!("control group: {error}"))?;
        begun.go_on().await
    }

    pub(crate) async fn limit(&self, resources: &serde_json::Value) -> Result<(), String> {
        let resources: Resources = serde_json::from_value(resources.clone()).map_err(|error| error.to_string())?;
        self.group.limit(&resources).await.map_err(|error| error.to_string())
    }

    /// Hooks to be run from outside before the container's root is entered.
    pub(crate) fn runtime_hooks(&self) -> Vec<Hook> {
        let hooks = &self.document.hooks;
        hooks.prestart.iter().chain(&hooks.create_runtime).cloned().collect()
    }

    pub(crate) fn hooks_after_start(&self) -> &[Hook] {
        &self.document.hooks.poststart
    }

    pub(crate) fn hooks_after_end(&self) -> &[Hook] {
        &self.document.hooks.poststop
    }
}

#[derive(Clone, Copy)]
enum Target {
    Namespace,
    Process,
}

/// Makes the process, in the process namespace of another where one is given: this process itself stays where it is, only
/// its next child is born there.
fn spawn(
    new_processes: bool,
    other: Option<(std::os::fd::BorrowedFd<'_>, Target)>,
    child: impl FnOnce(std::os::unix::net::UnixStream),
) -> Result<Begun, String> {
    let failed = |error: std::io::Error| format!("cannot make a process: {error}");
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
    let own = File::open("/proc/self/ns/pid").map_err(failed)?;
    let joined = match other {
        None => Ok(()),
        Some((descriptor, Target::Namespace)) => {
            rustix::thread::move_into_link_name_space(descriptor, Some(LinkNameSpaceType::ProcessID))
        }
        Some((descriptor, Target::Process)) => {
            rustix::thread::move_into_thread_name_spaces(descriptor, ThreadNameSpaceType::PROCESS_ID)
        }
    };
    joined.map_err(|error| format!("cannot join the processes: {error}"))?;
    let cloned = system::clone(Birth { new_processes, sibling: false });
    if let Ok(Clone::Child) = cloned {
        drop(ours);
        child(theirs);
        system::end(1);
    }
    if other.is_some() {
        rustix::thread::move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))
            .map_err(|error| failed(error.into()))?;
    }
    let Clone::Parent(pid) = cloned.map_err(failed)? else { return Err("no process was made".to_owned()) };
    ours.set_nonblocking(true).map_err(failed)?;
    let channel = UnixStream::from_std(ours).map_err(failed)?;
    Ok(Begun { pid, handle: handle_of(pid)?, channel })
}

fn handle_of(pid: i32) -> Result<OwnedFd, String> {
    let pid = Pid::from_raw(pid).ok_or_else(|| "no process was made".to_owned())?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|error| format!("cannot make a process: {error}"))
}

/// A process on its way to its program.
pub(crate) struct Begun {
    pub(crate) pid: i32,
    /// Names the process and never another one, even when its number is given anew.
    pub(crate) handle: OwnedFd,
    channel: UnixStream,
}

/// What the process waits for, or has come to.
pub(crate) enum Step {
    /// It is to be put into its control group.
    Unplaced,
    /// Another process goes on in its place.
    Born,
    Terminal(OwnedFd),
    Hooks,
    Ready,
}

impl Begun {
    /// The next step; an error says why there is none.
    pub(crate) async fn next(&mut self) -> Result<Step, String> {
        let received = self.channel.async_io(Interest::READABLE, || receive(&self.channel)).await;
        match received.map_err(|error| error.to_string())? {
            (Some(init::READY), _) => Ok(Step::Ready),
            (Some(init::HOOKS), _) => Ok(Step::Hooks),
            (Some(init::UNPLACED), _) => Ok(Step::Unplaced),
            (Some(init::BORN), _) => {
                let mut number = [0; 4];
                self.channel.read_exact(&mut number).await.map_err(|error| error.to_string())?;
                self.pid = i32::from_le_bytes(number);
                self.handle = handle_of(self.pid)?;
                Ok(Step::Born)
            }
            (Some(init::TERMINAL), Some(master)) => Ok(Step::Terminal(master)),
            (Some(_), _) => Err(self.reason().await),
            (None, _) => Err("the container's process ended before its program was executed".to_owned()),
        }
    }

    /// Lets the process go on.
    pub(crate) async fn go_on(&mut self) -> Result<(), String> {
        self.channel.write_all(&[1]).await.map_err(|error| error.to_string())
    }

    /// Lets it execute its program.
    pub(crate) async fn execute(mut self) -> Result<(), String> {
        self.go_on().await?;
        let mut first = [0; 1];
        match self.channel.read(&mut first).await {
            // The connection ends with the execution.
            Ok(0) | Err(_) => Ok(()),
            Ok(_) => Err(self.reason().await),
        }
    }

    async fn reason(&mut self) -> String {
        let mut text = Vec::new();
        let _ = (&mut self.channel).take(LONGEST_REASON).read_to_end(&mut text).await;
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// One letter, with a descriptor where one comes along.
fn receive(channel: &UnixStream) -> std::io::Result<(Option<u8>, Option<OwnedFd>)> {
    let (mut letter, mut space) = ([0; 1], [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(channel, &mut [IoSliceMut::new(&mut letter)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(((received.bytes > 0).then_some(letter[0]), descriptor))
}

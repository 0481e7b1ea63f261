//! One container of the pod: made, started, watched to its end.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Shim;
use super::log::{Log, Stream};
use super::memory;
use super::reaper::Reaper;
use super::terminal::Terminal;
use crate::container::{Begun, Hook, Plan, Step, Streams};
use crate::protocol::{Create, Exit, Frame, Kind, Report};

/// Processes that outlived the container's first may hold its pipes; the end is told without them.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);
/// Who reads no output for so long is cut off: the container must not stand still for it.
const READER_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) pid: i32,
    /// Names the first process, even when its number is given to another.
    pub(crate) handle: OwnedFd,
    pub(crate) plan: Plan,
    /// Until it is started.
    pub(crate) begun: RefCell<Option<Begun>>,
    pub(crate) bundle: PathBuf,
    pub(crate) log: Log,
    pub(crate) started_at: Cell<Option<i64>>,
    pub(crate) exit: Cell<Option<Exit>>,
    pub(crate) stdin_once: bool,
    pub(crate) input: RefCell<Option<Rc<Input>>>,
    readers: RefCell<Vec<mpsc::Sender<Frame>>>,
    own_processes: bool,
    memory_events: Vec<PathBuf>,
}

/// Where what is typed goes.
pub(crate) enum Input {
    Pipe(tokio::sync::Mutex<pipe::Sender>),
    Terminal(Rc<Terminal>),
}

impl Input {
    pub(crate) fn pipe(writer: PipeWriter) -> std::io::Result<Self> {
        Ok(Self::Pipe(tokio::sync::Mutex::new(pipe::Sender::from_owned_fd(OwnedFd::from(writer))?)))
    }

    pub(crate) async fn write(&self, data: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.lock().await.write_all(data).await,
            Self::Terminal(terminal) => terminal.write(data).await,
        }
    }

    pub(crate) fn resize(&self, size: crate::protocol::Size) {
        if let Self::Terminal(terminal) = self {
            terminal.resize(size);
        }
    }
}

/// Where output comes from.
pub(crate) enum Source {
    Pipe(pipe::Receiver),
    Terminal(Rc<Terminal>),
}

impl Source {
    pub(crate) fn pipe(reader: PipeReader) -> std::io::Result<Self> {
        Ok(Self::Pipe(pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?))
    }

    /// Zero at the end.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> usize {
        match self {
            Self::Pipe(pipe) => pipe.read(buffer).await.unwrap_or(0),
            Self::Terminal(terminal) => terminal.read(buffer).await,
        }
    }
}

/// Both outputs of a process, and its input where it has one.
pub(super) type Ends = (Vec<(Kind, Source)>, Option<Rc<Input>>);

/// Pipes in place of a terminal: our ends, and those of the process.
pub(super) fn piped(stdin: bool) -> std::io::Result<(Ends, Streams)> {
    let (out, output) = std::io::pipe()?;
    let (error_reader, errors) = std::io::pipe()?;
    let outputs = vec![(Kind::Output, Source::pipe(out)?), (Kind::Errors, Source::pipe(error_reader)?)];
    let (mut input, mut reader) = (None, None);
    if stdin {
        let (end, writer) = std::io::pipe()?;
        reader = Some(OwnedFd::from(end));
        input = Some(Rc::new(Input::pipe(writer)?));
    }
    Ok(((outputs, input), Streams { input: reader, output: output.into(), errors: errors.into() }))
}

/// Waits until a process is ready to execute its program, and takes the terminal that comes meanwhile.
pub(super) async fn until_ready<H: Future<Output = Result<(), String>>>(
    reaper: &Reaper,
    begun: &mut Begun,
    ends: &mut Ends,
    hooks: impl Fn(i32) -> H,
) -> Result<(), String> {
    reaper.expect(begun.pid);
    loop {
        match begun.next().await? {
            Step::Ready => return Ok(()),
            Step::Unplaced => return Err("the process waits for a control group".to_owned()),
            Step::Born => {
                reaper.expect(begun.pid);
                begun.go_on().await?;
            }
            Step::Hooks => {
                hooks(begun.pid).await?;
                begun.go_on().await?;
            }
            Step::Terminal(master) => {
                let terminal = Terminal::new(master).map_err(|e| format!("cannot use the terminal: {e}"))?;
                let terminal = Rc::new(terminal);
                ends.0.push((Kind::Output, Source::Terminal(terminal.clone())));
                ends.1 = Some(Rc::new(Input::Terminal(terminal)));
            }
        }
    }
}

pub(crate) fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

impl Container {
    pub(crate) async fn create(shim: &Rc<Shim>, create: Create) -> Result<(), String> {
        // Asked twice: whoever asked first was killed before it heard the answer.
        if let Ok(known) = shim.find(&create.id) {
            let waits = known.started_at.get().is_none() && known.exit.get().is_none();
            return if waits { Ok(()) } else { Err(format!("container {} is there already", create.id)) };
        }
        let log = Log::open(create.log_path, create.log_limit).map_err(|e| format!("cannot open the log: {e}"))?;
        let plan = Plan::read(&create.id, &create.bundle)?;
        let (mut ends, streams) = if create.tty {
            ((Vec::new(), None), None)
        } else {
            let (ends, streams) = piped(create.stdin).map_err(|e| format!("cannot make pipes: {e}"))?;
            (ends, Some(streams))
        };
        if let Some(pod) = plan.group.pod_memory_events().filter(|_| shim.containers.borrow().is_empty()) {
            shim.kills.begin(&pod);
        }
        let made = async {
            let mut begun = plan.create(streams, processes(shim, &plan)?)?;
            plan.place(&mut begun).await?;
            let hooks = async |pid| {
                let state = (create.id.as_str(), create.bundle.as_path(), "creating", pid);
                crate::container::run_hooks(&plan.runtime_hooks(), state, |pid| shim.reaper.wait(pid)).await
            };
            until_ready(&shim.reaper, &mut begun, &mut ends, hooks).await?;
            Ok(begun)
        };
        let begun = match made.await {
            Ok(begun) => begun,
            Err(error) => {
                let _ = plan.group.take_away().await;
                return Err(error);
            }
        };
        let (outputs, input) = ends;
        let handle = begun.handle.try_clone().map_err(|e| e.to_string())?;
        let pid = begun.pid;
        let container = Rc::new(Self {
            id: create.id,
            pid,
            handle,
            plan,
            begun: RefCell::new(Some(begun)),
            bundle: create.bundle,
            log,
            started_at: Cell::new(None),
            exit: Cell::new(None),
            stdin_once: create.stdin_once,
            input: RefCell::new(input),
            readers: RefCell::default(),
            own_processes: create.own_processes,
            memory_events: create.memory_events,
        });
        shim.containers.borrow_mut().insert(container.id.clone(), container.clone());
        let pumps: Vec<_> = outputs.into_iter().map(|(kind, source)| container.clone().pump(kind, source)).collect();
        let _ = shim.changes.send(container.report());
        let shim = shim.clone();
        tokio::task::spawn_local(async move { container.follow(&shim, pumps).await });
        Ok(())
    }

    pub(crate) async fn run_hooks(&self, shim: &Shim, hooks: &[Hook], status: &str) -> Result<(), String> {
        let state = (self.id.as_str(), self.bundle.as_path(), status, self.pid);
        crate::container::run_hooks(hooks, state, |pid| shim.reaper.wait(pid)).await
    }

    pub(crate) fn report(&self) -> Report {
        Report { id: self.id.clone(), pid: self.pid, started_at: self.started_at.get(), exit: self.exit.get() }
    }

    /// Carries one stream into the log and to those who listen.
    fn pump(self: Rc<Self>, kind: Kind, mut source: Source) -> JoinHandle<()> {
        let mut stream = Stream::new(if kind == Kind::Errors { "stderr" } else { "stdout" });
        tokio::task::spawn_local(async move {
            let mut buffer = vec![0; 32 * 1024];
            loop {
                let length = source.read(&mut buffer).await;
                if length == 0 {
                    break;
                }
                self.log.write(&mut stream, &buffer[..length]);
                self.tell(kind, &buffer[..length]).await;
            }
            self.log.finish(&mut stream);
        })
    }

    async fn tell(&self, kind: Kind, data: &[u8]) {
        let readers = self.readers.borrow().clone();
        if readers.is_empty() {
            return;
        }
        let frame = Frame::new(kind, data.to_vec());
        for reader in readers {
            if reader.send_timeout(frame.clone(), READER_PATIENCE).await.is_err() {
                self.readers.borrow_mut().retain(|known| !known.same_channel(&reader));
            }
        }
    }

    /// The output from now on; ends with the container.
    pub(crate) fn listen(&self) -> mpsc::Receiver<Frame> {
        let (sender, receiver) = mpsc::channel(64);
        if self.exit.get().is_none() {
            self.readers.borrow_mut().push(sender);
        }
        receiver
    }

    fn was_killed_for_memory(&self, shim: &Shim) -> bool {
        let Some(pod) = self.plan.group.pod_memory_events() else {
            return memory::find(&self.memory_events).is_some_and(|count| count > 0);
        };
        let containers = shim.containers.borrow();
        let others = containers.values().filter(|one| one.id != self.id && one.exit.get().is_none());
        shim.kills.in_ended(&self.memory_events, others.map(|one| memory::find(&one.memory_events)), &pod)
    }

    async fn follow(self: Rc<Self>, shim: &Rc<Shim>, pumps: Vec<JoinHandle<()>>) {
        let code = shim.reaper.wait(self.pid).await;
        let at = now();
        let out_of_memory = self.was_killed_for_memory(shim);
        // Where the pod shares its processes, others of the container may still run.
        if !self.own_processes {
            self.plan.group.kill();
        }
        let drained = async {
            for pump in pumps {
                let _ = pump.await;
            }
        };
        let _ = tokio::time::timeout(DRAIN_PATIENCE, drained).await;
        if let Err(error) = self.plan.group.take_away().await {
            eprintln!("shim: the control group of container {} is not taken away: {error}", self.id);
        }
        if let Err(error) = self.run_hooks(shim, self.plan.hooks_after_end(), "stopped").await {
            eprintln!("shim: container {}: {error}", self.id);
        }
        let exit = Exit { code, at, out_of_memory };
        if let Err(error) = write_exit(&self.bundle, &exit) {
            eprintln!("shim: the end of container {} is not written down: {error}", self.id);
        }
        self.exit.set(Some(exit));
        self.input.borrow_mut().take();
        self.readers.borrow_mut().clear();
        let _ = shim.changes.send(self.report());
    }
}

/// The process namespace that a container joins. The number in its path is that of a container's first process; once that has
/// ended, the number may be that of any process of the machine, and the container would see and reach them all.
fn processes(shim: &Shim, plan: &Plan) -> Result<Option<File>, String> {
    let Some(path) = plan.joined_processes() else { return Ok(None) };
    let gone = || "the container to share processes with does not run".to_owned();
    let containers = shim.containers.borrow();
    let is_its = |one: &&Rc<Container>| path == Path::new(&format!("/proc/{}/ns/pid", one.pid));
    let holder = containers.values().filter(|one| one.exit.get().is_none()).find(is_its).ok_or_else(gone)?;
    let file = File::open(path).map_err(|_| gone())?;
    // Until it is waited for, nobody else has its number: if it is there now, it was when the file was opened.
    crate::container::signal(holder.handle.as_fd(), 0).map_err(|_| gone())?;
    Ok(Some(file))
}

/// Found by a Ferry that was away, even when the shim is gone by then.
fn write_exit(bundle: &Path, exit: &Exit) -> std::io::Result<()> {
    let (file, new) = (bundle.join("exit.json"), bundle.join("exit.json.new"));
    std::fs::write(&new, serde_json::to_vec(exit)?)?;
    std::fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::{Notify, broadcast};

    use super::*;

    /// A container's number had been given to a process of the machine by the time it was joined.
    #[test]
    fn nobody_but_a_container_of_the_pod_is_joined() {
        let shim = Shim {
            reaper: Reaper::default(),
            containers: RefCell::default(),
            changes: broadcast::channel(1).0,
            kills: memory::MemoryKills::default(),
            done: Notify::new(),
        };
        let folder = tempfile::tempdir().expect("a folder");
        let read = |namespace: serde_json::Value| {
            let process = json!({"user": {"uid": 0, "gid": 0}, "args": ["true"], "cwd": "/"});
            let linux = json!({"cgroupsPath": "/none", "namespaces": [namespace]});
            let document = json!({"process": process, "root": {"path": "rootfs"}, "linux": linux});
            std::fs::write(folder.path().join("config.json"), document.to_string()).expect("written");
            Plan::read("c", folder.path()).expect("a plan")
        };
        let own = format!("/proc/{}/ns/pid", std::process::id());
        for path in ["/proc/1/ns/pid", "/proc/self/ns/pid", &own] {
            let refused = processes(&shim, &read(json!({"type": "pid", "path": path})));
            assert!(refused.is_err_and(|why| why.contains("does not run")), "{path}");
        }
        assert!(processes(&shim, &read(json!({"type": "pid"}))).is_ok_and(|joined| joined.is_none()));
    }
}

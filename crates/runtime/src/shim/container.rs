//! One container of the pod: made, started, watched to its end.

use std::cell::{Cell, RefCell};
use std::io::{PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Shim;
use super::log::{Log, Stream};
use super::terminal::{Terminal, Waiting};
use crate::protocol::{Create, Exit, Frame, Kind, Report};

/// Processes that outlived the container's first may hold its pipes; the end is told without them.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);
/// Who reads no output for so long is cut off: the container must not stand still for it.
const READER_PATIENCE: Duration = Duration::from_secs(10);
const TERMINAL_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) pid: i32,
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

/// Gives a command pipes in place of a terminal.
pub(super) fn piped(command: &mut std::process::Command, stdin: bool) -> std::io::Result<Ends> {
    let (out, writer) = std::io::pipe()?;
    command.stdout(writer);
    let (errors, writer) = std::io::pipe()?;
    command.stderr(writer);
    let outputs = vec![(Kind::Output, Source::pipe(out)?), (Kind::Errors, Source::pipe(errors)?)];
    let mut input = None;
    if stdin {
        let (reader, writer) = std::io::pipe()?;
        command.stdin(reader);
        input = Some(Rc::new(Input::pipe(writer)?));
    }
    Ok((outputs, input))
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
        let (oci_log, pid_file) = (create.bundle.join("oci.log"), create.bundle.join("pid"));
        let mut outputs: Vec<(Kind, Source)> = Vec::new();
        let mut input = None;
        let made = if create.tty {
            let socket = shim.sockets.join(format!("t{}", crate::short_id()));
            let waiting = Waiting::at(&socket).map_err(|e| format!("cannot wait for a terminal: {e}"))?;
            let command = shim.oci.create(&oci_log, &create.bundle, &pid_file, Some(&socket), &create.id);
            let made = with_terminal(shim.run(command, &oci_log), waiting).await;
            let _ = std::fs::remove_file(&socket);
            made.map(|terminal| {
                let terminal = Rc::new(terminal);
                outputs.push((Kind::Output, Source::Terminal(terminal.clone())));
                input = Some(Rc::new(Input::Terminal(terminal)));
            })
        } else {
            let mut command = shim.oci.create(&oci_log, &create.bundle, &pid_file, None, &create.id);
            (outputs, input) = piped(&mut command, create.stdin).map_err(|e| format!("cannot make pipes: {e}"))?;
            shim.run(command, &oci_log).await
        };
        let pid = made.and_then(|()| read_pid(&pid_file));
        let pid = match pid {
            Ok(pid) => pid,
            Err(error) => {
                let log = create.bundle.join("delete.log");
                let _ = shim.run(shim.oci.delete(&log, &create.id), &log).await;
                return Err(error);
            }
        };
        let container = Rc::new(Self {
            id: create.id,
            pid,
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

    async fn follow(self: Rc<Self>, shim: &Rc<Shim>, pumps: Vec<JoinHandle<()>>) {
        let code = shim.reaper.wait(self.pid).await;
        let at = now();
        let out_of_memory = self.memory_events.iter().any(|file| killed_for_memory(file));
        // Where the pod shares its processes, others of the container may still run.
        let log = self.bundle.join("delete.log");
        if !self.own_processes {
            let _ = shim.run(shim.oci.kill_all(&log, &self.id), &log).await;
        }
        let drained = async {
            for pump in pumps {
                let _ = pump.await;
            }
        };
        let _ = tokio::time::timeout(DRAIN_PATIENCE, drained).await;
        if let Err(error) = shim.run(shim.oci.delete(&log, &self.id), &log).await {
            eprintln!("shim: container {} not taken away: {error}", self.id);
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

/// Runs to the end, and takes the terminal that comes meanwhile.
pub(super) async fn with_terminal(
    run: impl Future<Output = Result<(), String>>,
    waiting: Waiting,
) -> Result<Terminal, String> {
    let receiving = tokio::task::spawn_local(waiting.receive());
    if let Err(error) = run.await {
        receiving.abort();
        return Err(error);
    }
    match tokio::time::timeout(TERMINAL_PATIENCE, receiving).await {
        Ok(Ok(Ok(terminal))) => Ok(terminal),
        Ok(Ok(Err(error))) => Err(error.to_string()),
        _ => Err("no terminal came".to_owned()),
    }
}

pub(super) fn read_pid(file: &Path) -> Result<i32, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("no process: {e}"))?;
    text.trim().parse().map_err(|_| format!("no process: {text:?}"))
}

fn killed_for_memory(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
}

/// Found by a Ferry that was away, even when the shim is gone by then.
fn write_exit(bundle: &Path, exit: &Exit) -> std::io::Result<()> {
    let (file, new) = (bundle.join("exit.json"), bundle.join("exit.json.new"));
    std::fs::write(&new, serde_json::to_vec(exit)?)?;
    std::fs::rename(new, file)
}

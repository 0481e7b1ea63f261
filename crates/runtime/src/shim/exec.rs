//! Commands in a running container, and connections to its own streams.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Shim;
use super::container::{Container, Input, Source, piped, until_ready};
use crate::protocol::{Exec, ExecOutcome, Frame, Kind, read_frame, write_frame};

/// A command may leave others behind that hold its pipes.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);
/// Whoever attaches and closes the input leaves, once the container has said nothing for so long,
const LAST_WORDS: Duration = Duration::from_millis(200);
/// or has said something for so long.
const LONGEST_WORDS: Duration = Duration::from_secs(1);

pub(super) async fn refuse(mut stream: UnixStream, error: String) -> std::io::Result<()> {
    write_frame(&mut stream, &refusal(error)).await
}

fn refusal(error: String) -> Frame {
    Frame::end(&ExecOutcome { code: 255, error: Some(error) })
}

struct Started {
    pid: i32,
    handle: OwnedFd,
    input: Option<Rc<Input>>,
    outputs: Vec<(Kind, Source)>,
}

/// A command that executes nothing yet, so that it can be killed also when it never comes to that.
type Early = Rc<RefCell<Option<OwnedFd>>>;

async fn start(shim: &Shim, exec: &Exec, early: &Early) -> Result<Started, String> {
    let container = shim.find(&exec.id)?;
    if container.exit.get().is_some() {
        return Err(format!("container {} does not run", exec.id));
    }
    let (mut ends, streams) = if exec.tty {
        ((Vec::new(), None), None)
    } else {
        let (ends, streams) = piped(exec.stdin).map_err(|e| format!("cannot make pipes: {e}"))?;
        (ends, Some(streams))
    };
    let mut begun = container.plan.exec(&container.handle, &exec.process, streams)?;
    *early.borrow_mut() = Some(begun.handle.try_clone().map_err(|e| e.to_string())?);
    let pid = begun.pid;
    let handle = begun.handle.try_clone().map_err(|e| e.to_string())?;
    until_ready(&shim.reaper, &mut begun, &mut ends, async |_| Ok(())).await?;
    begun.execute().await?;
    let (outputs, input) = ends;
    Ok(Started { pid, handle, input, outputs })
}

/// Runs a command. When the other side goes away, the command goes on without it.
pub(super) async fn run(shim: &Rc<Shim>, exec: Exec, stream: UnixStream) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let (early, (sender, typed)) = (Early::default(), mpsc::channel(16));
    let listener = Listener(tokio::task::spawn_local(listen(read, early.clone(), sender)));
    let started = start(shim, &exec, &early).await;
    early.borrow_mut().take();
    let Started { pid, handle, input, outputs } = match started {
        Ok(started) => started,
        Err(error) => return write_frame(&mut write, &refusal(error)).await,
    };
    let (frames, mut output) = mpsc::channel::<Frame>(16);
    let typed = tokio::task::spawn_local(async move {
        let mut input = input;
        type_into(typed, &mut input, Some(handle)).await
    });
    let ending = shim.clone();
    tokio::task::spawn_local(async move {
        let pumps: Vec<_> = outputs
            .into_iter()
            .map(|(kind, source)| tokio::task::spawn_local(pump(kind, source, frames.clone())))
            .collect();
        let code = ending.reaper.wait(pid).await;
        let drained = async {
            for pump in &mut pumps.into_iter() {
                let _ = pump.await;
            }
        };
        let _ = tokio::time::timeout(DRAIN_PATIENCE, drained).await;
        let _ = frames.send(Frame::end(&ExecOutcome { code, error: None })).await;
    });
    let mut sent = Ok(());
    while let Some(frame) = output.recv().await {
        let last = frame.kind == Kind::End;
        if sent.is_ok() {
            sent = write_frame(&mut write, &frame).await;
        }
        if last {
            break;
        }
    }
    typed.abort();
    drop(listener);
    sent
}

/// Ends with its connection.
struct Listener(tokio::task::JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Passes on what the other side says. As long as a command executes nothing, it is killed at once when its time is up, or
/// nobody waits for it any more: it may be held up by the container.
async fn listen(mut read: OwnedReadHalf, early: Early, to: mpsc::Sender<Frame>) {
    let kill = || {
        if let Some(process) = &*early.borrow() {
            let _ = crate::container::signal(process.as_fd(), libc::SIGKILL);
        }
    };
    while let Ok(Some(frame)) = read_frame(&mut read).await {
        if frame.kind == Kind::End {
            kill();
        }
        if to.send(frame).await.is_err() {
            return;
        }
    }
    kill();
}

async fn pump(kind: Kind, mut source: Source, to: mpsc::Sender<Frame>) {
    let mut buffer = vec![0; 32 * 1024];
    loop {
        let length = source.read(&mut buffer).await;
        if length == 0 || to.send(Frame::new(kind, buffer[..length].to_vec())).await.is_err() {
            return;
        }
    }
}

/// Carries what the other side types; true when it closed the input in so many words. A frame of kind `End` kills the
/// command: its time is up.
async fn type_into(mut frames: mpsc::Receiver<Frame>, input: &mut Option<Rc<Input>>, process: Option<OwnedFd>) -> bool {
    while let Some(frame) = frames.recv().await {
        match (frame.kind, &*input) {
            (Kind::Input, Some(to)) => {
                let written = to.clone().write(&frame.data).await;
                if written.is_err() {
                    *input = None;
                }
            }
            (Kind::Resize, Some(to)) => {
                if let Ok(size) = serde_json::from_slice(&frame.data) {
                    to.resize(size);
                }
            }
            (Kind::CloseInput, _) => {
                *input = None;
                if process.is_none() {
                    return true;
                }
            }
            (Kind::End, _) => {
                if let Some(process) = &process {
                    let _ = crate::container::signal(process.as_fd(), libc::SIGKILL);
                }
            }
            _ => {}
        }
    }
    false
}

/// Joins a container's own streams until it ends or the other side goes away. Closing the input is leaving, too, unless it closes the
/// container's: its output is then awaited.
pub(super) async fn attach(container: Rc<Container>, stdin: bool, stream: UnixStream) -> std::io::Result<()> {
    let mut output = container.listen();
    let (read, mut write) = stream.into_split();
    let (sender, frames) = mpsc::channel(16);
    let listener = Listener(tokio::task::spawn_local(listen(read, Early::default(), sender)));
    let mut input = container.input.borrow().clone();
    if !stdin && !matches!(input.as_deref(), Some(Input::Terminal(_))) {
        input = None;
    }
    let passes_on = container.stdin_once && !matches!(input.as_deref(), Some(Input::Terminal(_)));
    let once = container.clone();
    let mut typed = tokio::task::spawn_local(async move {
        let closed = type_into(frames, &mut input, None).await;
        if stdin && passes_on {
            once.input.borrow_mut().take();
        }
        closed
    });
    let mut typing = true;
    let mut leaves: Option<Instant> = None;
    loop {
        tokio::select! {
            frame = output.recv() => match frame {
                Some(frame) if leaves.is_none_or(|latest| Instant::now() < latest) => write_frame(&mut write, &frame).await?,
                Some(_) => break left(&mut write).await?,
                None => {
                    let code = container.exit.get().map_or(255, |exit| exit.code);
                    write_frame(&mut write, &Frame::end(&ExecOutcome { code, error: None })).await?;
                    break;
                }
            },
            ended = &mut typed, if typing => {
                typing = false;
                if !ended.unwrap_or(false) {
                    break;
                }
                leaves = (stdin && !passes_on).then(|| Instant::now() + LONGEST_WORDS);
            }
            () = tokio::time::sleep(LAST_WORDS), if leaves.is_some() => break left(&mut write).await?,
        }
    }
    typed.abort();
    drop(listener);
    Ok(())
}

async fn left(write: &mut OwnedWriteHalf) -> std::io::Result<()> {
    write_frame(write, &Frame::end(&ExecOutcome { code: 0, error: None })).await
}

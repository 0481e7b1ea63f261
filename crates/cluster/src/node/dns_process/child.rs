//! The process itself: this program again, with the sockets handed to it.

use std::fs;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferry_tasks::Tasks;
use rustix::thread::{CapabilitySet, CapabilitySets};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

use super::sockets::Sockets;
use super::{ANSWERS, Arguments, HELD, TAKE};
use crate::node::descriptors;
use crate::process::Lock;
use crate::{folders, log, process, signals};

/// Enough for the names of a machine's pods.
const MOST_WORKERS: usize = 4;
/// Somebody may be looking at the lock just now.
const LOCK_TRIES: u32 = 200;
/// For questions that were forwarded.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

pub(super) fn main(argument: &str) -> ExitCode {
    // It outlives whoever started it, and reads what anybody sends it.
    let closed = descriptors::close();
    log::start();
    if let Err(error) = closed {
        tracing::warn!("the DNS process keeps descriptors that it was not handed: {error}");
    }
    match run(argument) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the DNS process ends: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(argument: &str) -> Result<()> {
    let arguments: Arguments = serde_json::from_str(argument).context("this command is only for a node of Ferry's")?;
    folders::keep_private();
    process::allow_many_files();
    // Otherwise it would be called by the link that it was executed from.
    let _ = rustix::thread::set_name(c"ferry-dns");
    drop_capabilities(&[&arguments.data_dir, &arguments.run_dir]);
    let starter = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let sockets = Sockets::receive(&starter).context("no sockets came")?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    runtime.block_on(async {
        let tasks = Tasks::new("dns process");
        let outcome = tokio::select! {
            ended = serve(arguments, starter, sockets, &tasks) => ended,
            told = signals::wait() => told,
        };
        // Every question that has been read is answered: the others wait for the next process.
        tasks.stop(STOP_PATIENCE).await;
        outcome
    })
}

/// It reads what anybody sends it, and needs little: a Corefile may name a low port for its figures, and its folders may be
/// in somebody's home.
fn drop_capabilities(folders: &[&Path]) {
    let _ = rustix::thread::set_no_new_privs(true);
    let mut needed = CapabilitySet::NET_BIND_SERVICE;
    if folders.iter().any(|folder| is_closed(folder)) {
        needed |= CapabilitySet::DAC_OVERRIDE;
    }
    let Ok(have) = rustix::thread::capabilities(None) else { return };
    let sets = CapabilitySets {
        effective: have.effective & needed,
        permitted: have.permitted & needed,
        inheritable: CapabilitySet::empty(),
    };
    if let Err(error) = rustix::thread::set_capabilities(None, sets) {
        tracing::warn!("the DNS process keeps its capabilities: {error}");
    }
}

/// Whether a folder, or one above it, is another user's who does not let everybody in.
fn is_closed(folder: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    folder.ancestors().enumerate().any(|(above, place)| {
        let wanted = if above == 0 { 0o003 } else { 0o001 };
        fs::metadata(place).is_ok_and(|data| data.uid() != own && data.mode() & wanted != wanted)
    })
}

async fn serve(arguments: Arguments, starter: UnixStream, sockets: Sockets, tasks: &Tasks) -> Result<()> {
    let pairs = sockets.try_clone()?.into_pairs();
    let mut fed = ferry_dns::Fed::start(arguments.dns.clone(), pairs, arguments.snapshot(), tasks).await?;
    starter.set_nonblocking(true)?;
    let whole = starter.try_clone()?;
    let (input, mut output) = tokio::net::UnixStream::from_std(starter)?.into_split();
    let mut input = BufReader::new(input);
    output.write_all(ANSWERS.as_bytes()).await?;
    // Whoever was there before answers until now, and has gone when this line comes.
    let mut line = String::new();
    input.read_line(&mut line).await?;
    ensure!(line == TAKE, "whoever started it has gone");
    let _lock = take(&arguments.lock()).await?;
    let listener = listen(&arguments.socket())?;
    fed.observe(tasks);
    output.write_all(HELD.as_bytes()).await?;
    fed.follow(input).await.unwrap_or_else(|error| tracing::warn!("what DNS is told cannot be read: {error}"));
    // The standard input is this stream, too, and stays open: whoever tells something is to learn that nobody listens.
    let _ = whole.shutdown(Shutdown::Both);
    loop {
        tracing::info!("the node's process has gone; DNS answers what it knows");
        drop(output);
        let feeder = accept(&listener, &sockets).await;
        let (input, kept) = feeder.into_split();
        output = kept;
        fed.follow(BufReader::new(input))
            .await
            .unwrap_or_else(|error| tracing::warn!("what DNS is told cannot be read: {error}"));
    }
}

async fn take(path: &Path) -> Result<Lock> {
    let mut tries = 0;
    loop {
        match Lock::take(path) {
            Err(_) if tries < LOCK_TRIES => tries += 1,
            taken => return taken.context("another DNS process of this node runs"),
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
}

fn listen(path: &Path) -> Result<UnixListener> {
    // Left by one that was killed: the lock is ours.
    let _ = fs::remove_file(path);
    UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))
}

/// The node's process that comes back, with copies of the sockets.
async fn accept(listener: &UnixListener, sockets: &Sockets) -> tokio::net::UnixStream {
    loop {
        let accepted = async {
            let stream = listener.accept().await?.0.into_std()?;
            sockets.send(&stream)?;
            tokio::net::UnixStream::from_std(stream)
        };
        match accepted.await {
            Ok(stream) => return stream,
            Err(error) => {
                tracing::warn!("the node's process cannot be told of DNS: {error}");
                tokio::time::sleep(LOCK_PAUSE).await;
            }
        }
    }
}

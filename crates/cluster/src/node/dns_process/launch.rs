//! Starting the DNS process, and finding one again that runs.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::FileType;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::sockets::Sockets;
use super::{ANSWERS, Arguments, COMMAND, HELD, STOP_PATIENCE, TAKE};
use crate::process;

/// On a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(20);
const ADOPT_PATIENCE: Duration = Duration::from_secs(2);
/// The program that this process runs, also where the file has been replaced since.
const PROGRAM: &str = "/proc/self/exe";
/// As the runtime's helpers: one arena, and what is freed goes back soon.
const ALLOCATOR: (&str, &str) =
    ("_RJEM_MALLOC_CONF", "background_thread:false,narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0");

/// A DNS process, and what it takes to replace it.
pub(super) struct Running {
    pub(super) pid: i32,
    pub(super) sockets: Sockets,
    /// Where it is told what it answers.
    pub(super) stream: tokio::net::UnixStream,
}

pub(super) async fn adopt_or_start(arguments: &Arguments) -> Result<Running> {
    let found = {
        let arguments = arguments.clone();
        tokio::task::spawn_blocking(move || find(&arguments)).await?
    };
    let (pid, stream, sockets) = match found {
        Ok(Some(found)) => found,
        Ok(None) => return start(arguments, bind(arguments).await).await,
        Err(error) => {
            tracing::warn!("the DNS process that runs does not answer, and is replaced: {error:#}");
            return start(arguments, bind(arguments).await).await;
        }
    };
    if !is_for(&sockets, arguments) {
        // It may have some of the addresses, and so may these copies.
        drop((stream, sockets));
        return start(arguments, bind(arguments).await).await;
    }
    if !is_same(pid, arguments) {
        tracing::info!("the DNS process is of another build or configuration, and is replaced");
        return start(arguments, Ok(sockets)).await;
    }
    tracing::info!("the DNS process {pid} has answered meanwhile, and goes on");
    stream.set_nonblocking(true)?;
    Ok(Running { pid, sockets, stream: tokio::net::UnixStream::from_std(stream)? })
}

/// The process that runs, with the sockets that it has.
fn find(arguments: &Arguments) -> Result<Option<(i32, UnixStream, Sockets)>> {
    let Some(pid) = process::holder(&arguments.lock())? else { return Ok(None) };
    let stream = UnixStream::connect(arguments.socket())?;
    stream.set_read_timeout(Some(ADOPT_PATIENCE))?;
    let sockets = Sockets::receive(&stream)?;
    Ok(Some((pid, stream, sockets)))
}

fn is_for(sockets: &Sockets, arguments: &Arguments) -> bool {
    sockets.addresses().is_ok_and(|addresses| addresses == arguments.dns.listen)
}

/// Whether a process runs this very program, and was told what it would be told now.
fn is_same(pid: i32, arguments: &Arguments) -> bool {
    let program = |path: &str| fs::metadata(path).map(|file| (file.dev(), file.ino(), file.size(), file.mtime_nsec()));
    let (theirs, ours) = (program(&format!("/proc/{pid}/exe")), program(PROGRAM));
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let wanted = serde_json::to_string(arguments).unwrap_or_default();
    let told = command.split(|byte| *byte == 0).nth(2);
    matches!((theirs, ours), (Ok(theirs), Ok(ours)) if theirs == ours) && told == Some(wanted.as_bytes())
}

async fn bind(arguments: &Arguments) -> io::Result<Sockets> {
    let bound = Sockets::bind(&arguments.dns.listen);
    match bound {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            end(arguments).await.map_err(io::Error::other)?;
            Sockets::bind(&arguments.dns.listen)
        }
        bound => bound,
    }
}

/// Ends the one that has its place.
async fn end(arguments: &Arguments) -> Result<bool> {
    let lock = arguments.lock();
    tokio::task::spawn_blocking(move || process::end_holder(&lock, STOP_PATIENCE)).await?
}

/// Starts a process, ends the one that was there before once the new one answers, and gives it its place.
pub(super) async fn start(arguments: &Arguments, sockets: io::Result<Sockets>) -> Result<Running> {
    let listen = &arguments.dns.listen;
    let sockets =
        sockets.with_context(|| format!("DNS cannot listen on {listen:?} (is another DNS server running there?)"))?;
    let (stream, theirs) = UnixStream::pair()?;
    let pid = spawn(arguments, theirs)?;
    let started = async {
        sockets.send(&stream)?;
        stream.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(stream)?;
        tokio::time::timeout(START_PATIENCE, settle(arguments, &mut stream)).await??;
        anyhow::Ok(stream)
    };
    match started.await {
        Ok(stream) => Ok(Running { pid, sockets, stream }),
        Err(error) => {
            // What it could not start with it would not start with the next time.
            let _ = fs::remove_file(arguments.snapshot());
            let _ = tokio::task::spawn_blocking(move || process::end(pid, Duration::ZERO)).await;
            let _ = super::exited(pid).await;
            Err(error.context("the DNS process does not start"))
        }
    }
}

/// From the first answer of a new process until it has its place.
async fn settle(arguments: &Arguments, stream: &mut tokio::net::UnixStream) -> Result<()> {
    let (input, mut output) = stream.split();
    let mut lines = BufReader::new(input);
    let mut line = String::new();
    lines.read_line(&mut line).await?;
    ensure!(line == ANSWERS, "it ended; its log says why");
    end(arguments).await?;
    output.write_all(TAKE.as_bytes()).await?;
    line.clear();
    lines.read_line(&mut line).await?;
    ensure!(line == HELD, "it ended; its log says why");
    Ok(())
}

/// This program again, in a group of its own so that no terminal's signals reach it.
fn spawn(arguments: &Arguments, stream: UnixStream) -> Result<i32> {
    let child = Command::new(PROGRAM)
        .arg0("ferry")
        .arg(COMMAND)
        .arg(serde_json::to_string(arguments)?)
        .env(ALLOCATOR.0, ALLOCATOR.1)
        .stdin(OwnedFd::from(stream))
        .stdout(Stdio::null())
        .stderr(log(&arguments.log()).context("cannot open the log of DNS")?)
        .process_group(0)
        .spawn()
        .context("cannot start the DNS process")?;
    Ok(child.id().cast_signed())
}

/// Where this process logs, if that is a file or the journal: whoever reads a pipe or a terminal would have to wait for the DNS
/// process, too.
fn log(otherwise: &Path) -> io::Result<Stdio> {
    let own = io::stderr().as_fd().try_clone_to_owned()?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&own)?.st_mode);
    if matches!(kind, FileType::RegularFile | FileType::Socket) {
        return Ok(own.into());
    }
    Ok(fs::OpenOptions::new().create(true).append(true).open(otherwise)?.into())
}

//! The way to a store that a running process has open: a socket beside the data, for the owner of the process and root.
//!
//! One request per connection: a line of words, answered by `ok` and what was asked for, or by `error` and why. A backup is
//! sent as it is; `check` and `history` answer with lines of JSON, the last of which is `end`.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use ferry_store::{EmbeddedStore, Event, EventKind, StoreError, Summary};
use ferry_tasks::Tasks;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::sync::Semaphore;

const NAME: &str = "store.sock";
/// A request is a word and a key.
const LONGEST_REQUEST: u64 = 8 << 10;
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// A receiver that takes nothing for so long is gone.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// Reading everything costs the disk something: not many at once.
const AT_ONCE: usize = 2;

/// The serving end; the file goes with it.
pub struct StoreSocket {
    path: PathBuf,
}

impl Drop for StoreSocket {
    fn drop(&mut self) {
        // Left behind it would do no harm: nobody answers there.
        let _ = fs::remove_file(&self.path);
    }
}

/// A path within the length that sockets allow, whatever the folder's own is.
fn short(folder: &fs::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()))
}

impl StoreSocket {
    /// The store's lock is held, so a file that is there already is left over.
    pub fn open(data_dir: &Path, store: Arc<EmbeddedStore>, tasks: &Tasks) -> Result<Self> {
        let path = data_dir.join(NAME);
        let failed = || format!("cannot open the socket {}", path.display());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).with_context(failed),
            _ => {}
        }
        let folder = fs::File::open(data_dir).with_context(failed)?;
        let listener = tokio::net::UnixListener::bind(short(&folder)).with_context(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).with_context(failed)?;
        let (serving, permits) = (tasks.clone(), Arc::new(Semaphore::new(AT_ONCE)));
        tasks.spawn_critical_once("store-socket", async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (store, permits) = (store.clone(), permits.clone());
                        serving.spawn_until_stopped("store-request", async move {
                            let Ok(_permit) = permits.acquire().await else { return };
                            if let Err(error) = answer(stream, &store).await {
                                tracing::warn!("a request on the store's socket failed: {error:#}");
                            }
                        });
                    }
                    Err(error) => {
                        // Out of descriptors, say: it passes.
                        tracing::warn!("the store's socket: {error}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(Self { path })
    }
}

async fn answer(mut stream: tokio::net::UnixStream, store: &EmbeddedStore) -> Result<()> {
    let peer = stream.peer_cred()?.uid();
    let mut line = String::new();
    let mut limited = tokio::io::BufReader::new((&mut stream).take(LONGEST_REQUEST));
    tokio::time::timeout(REQUEST_PATIENCE, limited.read_line(&mut line)).await.context("no request came")??;
    let mut stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_PATIENCE))?;
    if peer != 0 && peer != rustix::process::geteuid().as_raw() {
        return Ok(writeln!(stream, "error only the server's own user may ask")?);
    }
    let request = line.trim_end_matches('\n');
    tracing::info!("request on the store's socket: {request}");
    let outcome = match request.split_once(' ').unwrap_or((request, "")) {
        ("backup", "") => {
            writeln!(stream, "ok")?;
            // Cut short, it has no end and no checksum: the receiver sees that.
            return Ok(store.backup_to(std::io::BufWriter::with_capacity(1 << 20, stream)).await?);
        }
        ("check", "") => store.check_live().await.map(|found| vec![summary_line(&found)]),
        ("history", key) => {
            writeln!(stream, "ok")?;
            let mut lines = std::io::BufWriter::new(stream.try_clone()?);
            let sent = store.history(key, move |event| writeln!(lines, "{}", event_line(event)).is_ok());
            match sent.await {
                Ok(()) => return Ok(writeln!(stream, "end")?),
                Err(error) => Err(error),
            }
        }
        _ => return Ok(writeln!(stream, "error the request is not understood: is this another version of ferry?")?),
    };
    match outcome {
        Ok(lines) => {
            writeln!(stream, "ok")?;
            for line in lines {
                writeln!(stream, "{line}")?;
            }
            writeln!(stream, "end")?;
        }
        Err(error) => writeln!(stream, "error {error}")?,
    }
    Ok(())
}

/// The asking end, once the server has agreed.
pub struct Answer {
    lines: BufReader<UnixStream>,
}

impl Answer {
    /// None where no process has the store open.
    pub fn of(data_dir: &Path, request: &str) -> Result<Option<Self>> {
        let Ok(folder) = fs::File::open(data_dir) else { return Ok(None) };
        let mut stream = match UnixStream::connect(short(&folder)) {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(error) => {
                let path = data_dir.join(NAME);
                return Err(error).with_context(|| format!("cannot ask the running server at {}", path.display()));
            }
        };
        writeln!(stream, "{request}")?;
        let mut answer = Self { lines: BufReader::with_capacity(1 << 20, stream) };
        match answer.line()?.as_str() {
            "ok" => Ok(Some(answer)),
            other => bail!("the running server says: {}", other.strip_prefix("error ").unwrap_or(other)),
        }
    }

    pub fn bytes(self) -> impl Read {
        self.lines
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line).context("the running server does not answer")?;
        if !line.ends_with('\n') {
            bail!("the running server ended before it had answered");
        }
        Ok(line.trim_end().to_owned())
    }

    /// The next line of JSON; None at the end.
    pub fn next_value(&mut self) -> Result<Option<Value>> {
        let line = self.line()?;
        if line == "end" {
            return Ok(None);
        }
        if let Some(error) = line.strip_prefix("error ") {
            bail!("the running server says: {error}");
        }
        Ok(Some(serde_json::from_str(&line).context("the running server's answer is not understood")?))
    }
}

pub fn summary_line(found: &Summary) -> Value {
    json!({
        "revision": found.revision, "compacted": found.compacted, "objects": found.objects, "records": found.records,
    })
}

pub fn event_line(event: &Event) -> Value {
    let change = match event.kind {
        EventKind::Create => "create",
        EventKind::Update => "update",
        EventKind::Delete => "delete",
    };
    let encoded = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    json!({
        "revision": event.entry.modified, "change": change, "bytes": event.entry.value.len(),
        "lease": event.entry.lease, "value": encoded(&event.entry.value),
    })
}

/// Tells damage and bad input from the rest, for scripts that look at the exit code.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<StoreError>() {
        Some(StoreError::InvalidKey { .. }) => 2,
        Some(StoreError::Corrupt(_)) => 3,
        _ => 1,
    }
}

//! Transactions, all or nothing: elements go straight to the kernel, anything else through one process of `nft`.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::transaction::Transaction;
use crate::watch::Writers;
use crate::writer::Writer;

/// A transaction of a large cluster takes a second or two; beyond this the kernel or the tool is stuck.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum NftError {
    #[error("cannot run `{command}` (is the package nftables installed?): {source}")]
    Start { command: String, source: std::io::Error },
    #[error("cannot talk to `{command}`: {source}")]
    Pipe { command: String, source: std::io::Error },
    #[error("`{command}` refused the transaction: {message}")]
    Refused { command: String, message: String },
    #[error("`{command}` did not finish within a minute")]
    Stuck { command: String },
}

/// The command to run, with its leading arguments.
#[derive(Clone, Debug)]
pub struct Nft {
    command: Vec<String>,
    writers: Writers,
    direct: Arc<Mutex<Direct>>,
}

/// What leads to the kernel without a process.
#[derive(Clone, Debug)]
enum Direct {
    /// Nothing was to be written yet.
    Closed,
    Open(Writer),
    Impossible,
}

impl Nft {
    /// A command of several words may lead to another network than this process is in: then everything goes through it.
    pub fn new(command: Vec<String>) -> Self {
        let direct = if command.len() == 1 { Direct::Closed } else { Direct::Impossible };
        Self { command, writers: Writers::default(), direct: Arc::new(Mutex::new(direct)) }
    }

    /// With a writer to the network that the command is for.
    pub fn with_writer(command: Vec<String>, writer: Writer) -> Self {
        let writers = Writers::default();
        writers.keep(writer.port());
        Self { command, writers, direct: Arc::new(Mutex::new(Direct::Open(writer))) }
    }

    /// None where there is none: this machine or this user may not have the right to it.
    fn writer(&self) -> Option<Writer> {
        let mut direct = self.direct.lock();
        if matches!(*direct, Direct::Closed) {
            *direct = match Writer::open() {
                Ok(writer) => {
                    self.writers.keep(writer.port());
                    Direct::Open(writer)
                }
                Err(error) => {
                    tracing::warn!("packet rules are written through `{}` alone: {error}", self.command.join(" "));
                    Direct::Impossible
                }
            };
        }
        match &*direct {
            Direct::Open(writer) => Some(writer.clone()),
            Direct::Closed | Direct::Impossible => None,
        }
    }

    /// Applies a transaction: straight to the kernel where it is of elements alone, and of a size that can be sent whole.
    pub async fn commit(&self, transaction: &Transaction) -> Result<(), NftError> {
        if transaction.is_elements()
            && let Some(writer) = self.writer()
            && let Some(batch) = transaction.batch(writer.most())
        {
            let written = tokio::task::spawn_blocking(move || writer.write(&batch)).await;
            let refused = |message| NftError::Refused { command: "netlink".to_owned(), message };
            return written.unwrap_or_else(|error| Err(error.to_string())).map_err(refused);
        }
        self.apply(&transaction.script()).await
    }

    pub(crate) fn writers(&self) -> Writers {
        self.writers.clone()
    }

    /// Applies a script as one transaction.
    pub async fn apply(&self, script: &str) -> Result<(), NftError> {
        let command = self.command.join(" ");
        let mut words = self.command.iter();
        let program = words.next().map_or("nft", String::as_str);
        let mut child = Command::new(program)
            .args(words)
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| NftError::Start { command: command.clone(), source })?;
        // Before it has anything to do.
        if let Some(process) = child.id() {
            self.writers.add(process);
        }
        let Some(mut input) = child.stdin.take() else {
            return Err(NftError::Pipe { command, source: std::io::Error::other("no standard input") });
        };
        // Written and read at once: a tool that complains early must not block on a full pipe.
        let conversation = async {
            let write = async {
                let written = input.write_all(script.as_bytes()).await;
                drop(input);
                written
            };
            let (written, output) = tokio::join!(write, child.wait_with_output());
            let output = output?;
            // A tool that refuses stops reading; its complaint says more than the broken pipe.
            if output.status.success() {
                written?;
            }
            Ok::<_, std::io::Error>(output)
        };
        let output = match tokio::time::timeout(DEADLINE, conversation).await {
            Err(_) => return Err(NftError::Stuck { command }),
            Ok(Err(source)) => return Err(NftError::Pipe { command, source }),
            Ok(Ok(output)) => output,
        };
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr);
        let message: String = message.lines().take(6).collect::<Vec<_>>().join(" | ").chars().take(600).collect();
        Err(NftError::Refused { command, message })
    }
}

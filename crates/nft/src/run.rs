//! Running `nft`: one process per transaction, all or nothing.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::watch::Writers;

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
}

impl Nft {
    pub fn new(command: Vec<String>) -> Self {
        Self { command, writers: Writers::default() }
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

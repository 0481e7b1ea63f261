//! Ferry's side of the talk with a pod's shim.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;

use crate::protocol::{LONGEST_LINE, Reply, Report, Request, ShimConfig, read_line, write_line};

/// The program that makes containers may take its time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Where one pod's shim is reached.
#[derive(Clone, Debug)]
pub(crate) struct Shim {
    pub(crate) socket: PathBuf,
}

impl Shim {
    /// Starts the shim of a pod: this binary again, in a session of its own so that no terminal's signals reach it.
    pub(crate) async fn start(&self, binary: &Path, config: &ShimConfig, log: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot start the pod's shim: {error}");
        let errors = std::fs::OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
        let argument = serde_json::to_string(config).map_err(|e| e.to_string())?;
        let mut child = tokio::process::Command::new(binary)
            .arg(crate::SHIM_COMMAND)
            .arg(argument)
            .env(crate::program::ALLOCATOR.0, crate::program::ALLOCATOR.1)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let Some(output) = child.stdout.take() else { return Err("the pod's shim has no output".to_owned()) };
        let mut line = String::new();
        let mut output = BufReader::new(output);
        let ready = tokio::time::timeout(START_PATIENCE, output.read_line(&mut line)).await;
        match ready {
            Ok(Ok(length)) if length > 0 => Ok(()),
            _ => Err(format!("the pod's shim did not start; see {}", log.display())),
        }
    }

    async fn connect(&self, request: &Request) -> Result<UnixStream, String> {
        let gone = |error: std::io::Error| format!("the pod's shim is not reached: {error}");
        let mut stream = UnixStream::connect(&self.socket).await.map_err(gone)?;
        write_line(&mut stream, request).await.map_err(gone)?;
        Ok(stream)
    }

    pub(crate) async fn call(&self, request: &Request) -> Result<(), String> {
        let talk = async {
            let mut stream = self.connect(request).await?;
            let reply: Option<Reply> = read_line(&mut stream).await.map_err(|e| format!("the pod's shim: {e}"))?;
            match reply {
                None => Err("the pod's shim ended".to_owned()),
                Some(Reply { error: Some(error) }) => Err(error),
                Some(_) => Ok(()),
            }
        };
        tokio::time::timeout(PATIENCE, talk).await.unwrap_or_else(|_| Err("the pod's shim does not answer".to_owned()))
    }

    /// A connection for frames.
    pub(crate) async fn stream(&self, request: &Request) -> Result<UnixStream, String> {
        self.connect(request).await
    }

    /// Reports of all containers, then of what changes; ends with the shim.
    pub(crate) async fn watch(&self) -> Result<Reports, String> {
        Ok(Reports(BufReader::new(self.connect(&Request::Watch).await?)))
    }
}

pub(crate) struct Reports(BufReader<UnixStream>);

impl Reports {
    pub(crate) async fn next(&mut self) -> Option<Report> {
        let mut line = Vec::new();
        let read = (&mut self.0).take(LONGEST_LINE).read_until(b'\n', &mut line).await.ok()?;
        if read == 0 || line.last() != Some(&b'\n') {
            return None;
        }
        serde_json::from_slice(&line).ok()
    }
}

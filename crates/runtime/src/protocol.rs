//! What Ferry and a pod's shim say to each other over the shim's socket.
//!
//! A connection begins with one line of JSON, a request. Most are answered with one line. `Watch` is answered with a
//! line for every container and then for every change; `Exec` and `Attach` with frames both ways.

use std::path::PathBuf;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// No request is longer: the longest holds a process of a container, with its environment.
pub(crate) const LONGEST_LINE: u64 = 8 * 1024 * 1024;
const LONGEST_FRAME: usize = 1024 * 1024;

/// How a shim is started; handed over as its one argument.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct ShimConfig {
    pub(crate) socket: PathBuf,
}

/// What the logs of a container may take of the disk.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimit {
    /// Of one file, in bytes.
    pub size: u64,
    /// How many files are kept, with the one that is written.
    pub files: usize,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self { size: 10 << 20, files: 5 }
    }
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Create {
    pub(crate) id: String,
    pub(crate) bundle: PathBuf,
    pub(crate) log_path: Option<PathBuf>,
    /// None from a server that left rotation to whoever asks for it.
    #[serde(default)]
    pub(crate) log_limit: Option<LogLimit>,
    pub(crate) tty: bool,
    pub(crate) stdin: bool,
    pub(crate) stdin_once: bool,
    /// It has a process namespace of its own, so that all of it ends with its first process.
    #[serde(default)]
    pub(crate) own_processes: bool,
    /// The files that tell how often the kernel killed for want of memory.
    pub(crate) memory_events: Vec<PathBuf>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Exec {
    pub(crate) id: String,
    pub(crate) process: serde_json::Value,
    pub(crate) tty: bool,
    pub(crate) stdin: bool,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub(crate) enum Request {
    Create(Create),
    Start {
        id: String,
    },
    Kill {
        id: String,
        signal: i32,
    },
    Update {
        id: String,
        resources: serde_json::Value,
    },
    Reopen {
        id: String,
    },
    Exec(Exec),
    Attach {
        id: String,
        stdin: bool,
    },
    Watch,
    /// A container that has ended is not reported any more.
    Forget {
        id: String,
    },
    Shutdown,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct Reply {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    /// Nanoseconds since 1970.
    pub(crate) at: i64,
    pub(crate) out_of_memory: bool,
}

/// One container, as its shim sees it. An empty id says that all have been told.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) pid: i32,
    #[serde(default)]
    pub(crate) started_at: Option<i64>,
    #[serde(default)]
    pub(crate) exit: Option<Exit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Input = 0,
    Output = 1,
    Errors = 2,
    /// The last frame: a `ExecOutcome`.
    End = 3,
    Resize = 4,
    CloseInput = 5,
}

#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) data: Bytes,
}

/// How a command ended: with a code, or not started at all.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(crate) struct ExecOutcome {
    pub(crate) code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub(crate) struct Size {
    #[serde(rename = "Width")]
    pub(crate) width: u16,
    #[serde(rename = "Height")]
    pub(crate) height: u16,
}

impl Frame {
    pub(crate) fn new(kind: Kind, data: impl Into<Bytes>) -> Self {
        Self { kind, data: data.into() }
    }

    pub(crate) fn end(outcome: &ExecOutcome) -> Self {
        Self::new(Kind::End, serde_json::to_vec(outcome).unwrap_or_default())
    }
}

pub(crate) async fn write_frame(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(5 + frame.data.len());
    bytes.push(frame.kind as u8);
    bytes.extend_from_slice(&u32::try_from(frame.data.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(&frame.data);
    to.write_all(&bytes).await?;
    to.flush().await
}

/// The next frame; none at the end. Not to be dropped half-way.
pub(crate) async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Frame>> {
    let mut head = [0; 5];
    match from.read_exact(&mut head).await {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let kind = match head[0] {
        0 => Kind::Input,
        1 => Kind::Output,
        2 => Kind::Errors,
        3 => Kind::End,
        4 => Kind::Resize,
        5 => Kind::CloseInput,
        other => return Err(std::io::Error::other(format!("a frame of unknown kind {other}"))),
    };
    if length > LONGEST_FRAME {
        return Err(std::io::Error::other("a frame is too long"));
    }
    let mut data = vec![0; length];
    from.read_exact(&mut data).await?;
    Ok(Some(Frame { kind, data: data.into() }))
}

pub(crate) async fn write_line(to: &mut (impl AsyncWrite + Unpin), line: &impl Serialize) -> std::io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    to.write_all(&bytes).await?;
    to.flush().await
}

/// One line, byte by byte: what follows it belongs to somebody else.
pub(crate) async fn read_line<T: for<'a> Deserialize<'a>>(
    from: &mut (impl AsyncRead + Unpin),
) -> std::io::Result<Option<T>> {
    let mut line = Vec::new();
    let mut byte = [0; 1];
    loop {
        if from.read(&mut byte).await? == 0 {
            return Ok(None);
        }
        if byte[0] == b'\n' {
            return Ok(Some(serde_json::from_slice(&line)?));
        }
        if line.len() as u64 >= LONGEST_LINE {
            return Err(std::io::Error::other("a line is too long"));
        }
        line.push(byte[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_and_frames_follow_each_other() {
        let mut sent = Vec::new();
        write_line(&mut sent, &Request::Start { id: "a".into() }).await.expect("written");
        write_frame(&mut sent, &Frame::new(Kind::Input, &b"hello"[..])).await.expect("written");
        write_frame(&mut sent, &Frame::end(&ExecOutcome { code: 3, error: None })).await.expect("written");
        let mut read = &sent[..];
        assert!(matches!(read_line(&mut read).await.expect("read"), Some(Request::Start { id }) if id == "a"));
        let first = read_frame(&mut read).await.expect("read").expect("a frame");
        assert_eq!((first.kind, &first.data[..]), (Kind::Input, &b"hello"[..]));
        let last = read_frame(&mut read).await.expect("read").expect("a frame");
        assert_eq!(serde_json::from_slice::<ExecOutcome>(&last.data).expect("an outcome").code, 3);
        assert!(read_frame(&mut read).await.expect("read").is_none());
    }
}

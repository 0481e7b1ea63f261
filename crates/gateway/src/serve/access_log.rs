//! One line of JSON for each request. Requests never wait for the file: lines that find no room are counted instead.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferry_tasks::Tasks;
use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

const WAITING: usize = 8 << 10;
/// What a client says is told so far: lines that wait for the file are held in memory.
const MOST_TEXT: usize = 2 << 10;

/// The beginning of a text of the client's.
pub fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT)]
}

#[derive(Clone)]
pub struct AccessLog {
    lines: mpsc::Sender<Vec<u8>>,
    lost: Arc<AtomicU64>,
}

#[derive(Serialize)]
pub struct Line<'a> {
    pub time: String,
    pub gateway: &'a str,
    pub client: String,
    pub method: &'a str,
    pub host: &'a str,
    pub path: &'a str,
    pub protocol: &'a str,
    pub status: u16,
    pub bytes: u64,
    pub milliseconds: f64,
    pub route: &'a str,
    pub rule: &'a str,
    pub backend: &'a str,
    pub endpoint: Option<String>,
    /// Of `milliseconds`, how long the backend took from the request to the head of its answer, connecting included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_milliseconds: Option<f64>,
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<&'a str>,
    /// The gateway's own span, and the one that asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<&'a str>,
}

impl AccessLog {
    /// Lines are added to the end of the file.
    pub async fn open(path: &Path, tasks: &Tasks) -> std::io::Result<Self> {
        let mut file = tokio::fs::OpenOptions::new().create(true).append(true).open(path).await?;
        let (lines, mut waiting) = mpsc::channel::<Vec<u8>>(WAITING);
        let name = path.to_owned();
        tasks.spawn_until_stopped("access log", async move {
            let mut batch = Vec::new();
            while waiting.recv_many(&mut batch, 256).await > 0 {
                let bytes = batch.concat();
                batch.clear();
                if let Err(error) = file.write_all(&bytes).await {
                    tracing::warn!("cannot write the access log {}: {error}", name.display());
                }
            }
        });
        Ok(Self { lines, lost: Arc::default() })
    }

    pub fn write(&self, line: &Line<'_>) {
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        if self.lines.try_send(text).is_err() && self.lost.fetch_add(1, Ordering::Relaxed).is_multiple_of(1000) {
            tracing::warn!("lines of the access log are lost: the file takes them too slowly");
        }
    }
}

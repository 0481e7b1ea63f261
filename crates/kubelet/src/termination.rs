//! Why a container ended: the message it left in its termination file, or the end of its log.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use ferry_cri::v1;

use crate::logs::line;
use crate::runtime::{Record, label};

/// The API server takes no longer message.
const LONGEST_MESSAGE: u64 = 4096;
/// With `FallbackToLogsOnError`: the end of the log, whichever is shorter.
const LONGEST_LOG: usize = 2048;
const LOG_LINES: usize = 80;

/// Completes the record of an ended container.
pub(crate) fn explain(status: &v1::ContainerStatus, record: &mut Record) {
    let annotation = |key: &str| status.annotations.get(key).map(String::as_str).unwrap_or_default();
    let path = annotation(label::TERMINATION_MESSAGE_PATH);
    let file = status.mounts.iter().find(|m| !path.is_empty() && m.container_path == path);
    let mut message = file.map(|m| start_of(Path::new(&m.host_path))).unwrap_or_default();
    let fall_back = annotation(label::TERMINATION_MESSAGE_POLICY) == "FallbackToLogsOnError";
    if message.is_empty() && fall_back && record.exit_code != 0 {
        message = end_of_log(Path::new(&status.log_path));
    }
    if !message.is_empty() {
        record.message = if record.message.is_empty() { message } else { format!("{}: {message}", record.message) };
    }
}

fn start_of(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST_MESSAGE).read_to_end(&mut bytes));
    if read.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn end_of_log(path: &Path) -> String {
    let tail = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        // Each line carries a time and a stream, hence more than the message itself.
        file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_LOG as u64 * 4)))?;
        let mut bytes = Vec::new();
        file.take(LONGEST_LOG as u64 * 4).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let Ok(bytes) = tail() else { return String::new() };
    let mut text = Vec::new();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
    let skip = lines.len().saturating_sub(LOG_LINES);
    for raw in lines.into_iter().skip(skip) {
        if let Some(entry) = line::parse(raw) {
            text.extend_from_slice(entry.content);
            if !entry.partial {
                text.push(b'\n');
            }
        }
    }
    let start = text.len().saturating_sub(LONGEST_LOG);
    String::from_utf8_lossy(&text[start..]).into_owned()
}

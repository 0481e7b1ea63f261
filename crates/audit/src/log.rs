//! Events as lines of a file, which is put aside when it is full.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{Backend, Receipt};

/// Where a line's size is not limited by a flag, a file is.
const DEFAULT_MEGABYTES: u64 = 100;
const MEGABYTE: u64 = 1024 * 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Json,
    /// One short line for each event.
    Legacy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogMode {
    /// The answer goes out after its line is in the file.
    #[default]
    Blocking,
    /// The same, and a request whose first line cannot be written is refused.
    BlockingStrict,
}

#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// `-` is the standard output.
    pub path: PathBuf,
    pub format: LogFormat,
    pub mode: LogMode,
    /// Files put aside are deleted after so many days; 0: never.
    pub max_age_days: u32,
    /// So many files put aside are kept; 0: all.
    pub max_backups: usize,
    /// A file is put aside before it outgrows this; 0: 100 megabytes.
    pub max_megabytes: u64,
}

pub struct Log {
    options: LogOptions,
    output: Mutex<Output>,
    lost: AtomicU64,
}

enum Output {
    Standard,
    File { file: File, size: u64 },
}

impl Log {
    pub fn open(options: LogOptions) -> std::io::Result<Self> {
        let output = if options.path == Path::new("-") { Output::Standard } else { open(&options.path)? };
        Ok(Self { options, output: Mutex::new(output), lost: AtomicU64::new(0) })
    }

    /// Several events at once: a line each, in one write.
    pub(crate) fn write_batch(&self, events: &[Bytes]) {
        let lines: Vec<u8> = events.iter().flat_map(|event| self.line(event)).collect();
        if let Err(error) = self.append(&lines) {
            self.failed(events.len(), &error);
        }
    }

    fn line(&self, event: &Bytes) -> Vec<u8> {
        let mut line = match self.options.format {
            LogFormat::Json => event.to_vec(),
            LogFormat::Legacy => legacy(event).into_bytes(),
        };
        line.push(b'\n');
        line
    }

    fn failed(&self, events: usize, error: &std::io::Error) {
        self.lost.fetch_add(events as u64, Ordering::Relaxed);
        tracing::error!("the audit log {} cannot be written: {error}", self.options.path.display());
    }

    fn append(&self, line: &[u8]) -> std::io::Result<()> {
        let mut output = self.output.lock();
        let limit = match self.options.max_megabytes {
            0 => DEFAULT_MEGABYTES * MEGABYTE,
            megabytes => megabytes * MEGABYTE,
        };
        if let Output::File { size, .. } = &*output
            && *size > 0
            && size.saturating_add(line.len() as u64) > limit
        {
            rotate(&self.options)?;
            *output = open(&self.options.path)?;
        }
        match &mut *output {
            Output::Standard => std::io::stdout().write_all(line),
            Output::File { file, size } => {
                file.write_all(line)?;
                *size += line.len() as u64;
                Ok(())
            }
        }
    }
}

fn open(path: &Path) -> std::io::Result<Output> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok(Output::File { file, size })
}

/// `audit.log` becomes `audit-2026-01-02T15-04-05.000.log`; old ones go.
fn rotate(options: &LogOptions) -> std::io::Result<()> {
    let path = &options.path;
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (text(path.file_stem()), text(path.extension()));
    let suffix = if extension.is_empty() { String::new() } else { format!(".{extension}") };
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut now: Zoned = Timestamp::now().to_zoned(TimeZone::UTC);
    let aside = loop {
        let aside = folder.join(format!("{stem}-{}{suffix}", now.strftime("%Y-%m-%dT%H-%M-%S.%3f")));
        if !aside.exists() {
            break aside;
        }
        now = now.saturating_add(SignedDuration::from_millis(1));
    };
    std::fs::rename(path, &aside)?;
    let mut backups: Vec<(String, PathBuf)> = std::fs::read_dir(folder)?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let stamp = name.strip_prefix(&format!("{stem}-"))?.strip_suffix(&suffix)?.to_owned();
            parse_stamp(&stamp).map(|_| (stamp, entry.path()))
        })
        .collect();
    backups.sort();
    backups.reverse();
    let age = SignedDuration::from_hours(24 * i64::from(options.max_age_days));
    let oldest = Timestamp::now().checked_sub(age).unwrap_or(Timestamp::MIN);
    for (index, (stamp, file)) in backups.iter().enumerate() {
        let too_many = options.max_backups > 0 && index >= options.max_backups;
        let too_old = options.max_age_days > 0 && parse_stamp(stamp).is_some_and(|at| at < oldest);
        if (too_many || too_old)
            && let Err(error) = std::fs::remove_file(file)
        {
            tracing::warn!("cannot delete {}: {error}", file.display());
        }
    }
    Ok(())
}

fn parse_stamp(stamp: &str) -> Option<Timestamp> {
    let (date, clock) = stamp.split_once('T')?;
    format!("{date}T{}Z", clock.replace('-', ":")).parse().ok()
}

impl Backend for Log {
    fn write(&self, event: &Bytes) -> Option<Receipt> {
        let outcome = self.append(&self.line(event));
        if let Err(error) = &outcome {
            self.failed(1, error);
        }
        let (sender, receipt) = tokio::sync::oneshot::channel();
        let _ = sender.send(outcome.map_err(|error| error.to_string()));
        self.is_strict().then_some(receipt)
    }

    fn is_strict(&self) -> bool {
        self.options.mode == LogMode::BlockingStrict
    }

    fn name(&self) -> &'static str {
        "log"
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Upstream's format of before there was JSON.
fn legacy(event: &[u8]) -> String {
    let event: Value = serde_json::from_slice(event).unwrap_or_default();
    let text = |pointer: &str| ferry_meta::object::text(&event, pointer).to_owned();
    let or = |value: String, other: &str| if value.is_empty() { other.to_owned() } else { value };
    let groups: Vec<String> = ferry_meta::object::items(&event, "/user/groups")
        .iter()
        .filter_map(Value::as_str)
        .map(|group| format!("{group:?}"))
        .collect();
    let groups = if groups.is_empty() { "<none>".to_owned() } else { groups.join(",") };
    let code = event.pointer("/responseStatus/code").map_or_else(|| "<deferred>".into(), ToString::to_string);
    format!(
        "{} AUDIT: id={:?} stage={:?} ip={:?} method={:?} user={:?} groups={groups:?} as={:?} asgroups=\"<lookup>\" \
         user-agent={:?} namespace={:?} uri={:?} response=\"{code}\"",
        text("/requestReceivedTimestamp"),
        text("/auditID"),
        text("/stage"),
        or(text("/sourceIPs/0"), "<unknown>"),
        text("/verb"),
        or(text("/user/username"), "<none>"),
        or(text("/impersonatedUser/username"), "<self>"),
        text("/userAgent"),
        or(text("/objectRef/namespace"), "<none>"),
        text("/requestURI"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_files_are_put_aside_and_old_ones_deleted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("logs/audit.log");
        let old = folder.path().join("logs/audit-2001-01-01T00-00-00.000.log");
        let other = folder.path().join("logs/audit-notes.log");
        let options =
            LogOptions { path: path.clone(), max_megabytes: 1, max_backups: 2, max_age_days: 1, ..Default::default() };
        let log = Log::open(options).expect("a log");
        std::fs::write(&old, "x").expect("written");
        std::fs::write(&other, "x").expect("written");
        let event = Bytes::from(format!("{{\"a\":\"{}\"}}", "x".repeat(600_000)));
        for _ in 0..5 {
            assert!(log.write(&event).is_none());
        }
        let files: Vec<String> = std::fs::read_dir(folder.path().join("logs"))
            .expect("a folder")
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        // The newest, two put aside, and what is not ours.
        assert_eq!(files.len(), 4, "{files:?}");
        assert!(!old.exists() && other.exists() && path.exists());
        let text = std::fs::read_to_string(&path).expect("a file");
        assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_strict_log_that_cannot_be_written_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let options = LogOptions { path: path.clone(), mode: LogMode::BlockingStrict, ..Default::default() };
        let log = Log::open(options).expect("a log");
        let receipt = log.write(&Bytes::from_static(b"{}")).expect("a receipt");
        assert_eq!(receipt.blocking_recv().expect("sent"), Ok(()));
    }
}

//! When the machine last went down, and when its pods had ended: on disk where upstream's kubelet has it, for after the restart.

use std::path::{Path, PathBuf};

use ferry_metrics::{Kind, Page};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::checkpoint_file;

const FILE: &str = "graceful_node_shutdown_state";
/// What upstream writes for no time.
const NEVER: &str = "0001-01-01T00:00:00Z";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    start_time: String,
    #[serde(default)]
    end_time: String,
}

#[derive(Debug)]
pub(super) struct LastShutdown {
    file: PathBuf,
    times: Mutex<Times>,
}

impl LastShutdown {
    pub(super) fn open(root_dir: &Path) -> Self {
        let file = root_dir.join(FILE);
        let text = checkpoint_file::contents(&file).map_err(|error| error.to_string());
        let parse = |text: String| serde_json::from_str::<Written>(&text).map_err(|error| error.to_string());
        let times = match text.and_then(|text| text.map(parse).transpose()) {
            Ok(None) => Times::default(),
            Ok(Some(written)) => {
                let time = |text: &str| text.parse::<Timestamp>().ok().filter(|_| text != NEVER);
                Times { start: time(&written.start_time), end: time(&written.end_time) }
            }
            Err(why) => {
                tracing::warn!("when the machine last went down is not known: {}: {why}", file.display());
                Times::default()
            }
        };
        Self { file, times: Mutex::new(times) }
    }

    pub(super) fn begins(&self, now: Timestamp) {
        self.put(Times { start: Some(now), end: None });
    }

    pub(super) fn ends(&self, now: Timestamp) {
        let start = self.times.lock().start;
        self.put(Times { start, end: Some(now) });
    }

    /// Blocks: the machine is about to go down, and nothing else is left to do.
    fn put(&self, times: Times) {
        *self.times.lock() = times;
        let time = |time: Option<Timestamp>| time.map_or_else(|| NEVER.to_owned(), |time| time.to_string());
        let written = Written { start_time: time(times.start), end_time: time(times.end) };
        let text = serde_json::to_string(&written).unwrap_or_default();
        if let Err(error) = checkpoint_file::write(&self.file, &text) {
            tracing::warn!("when the machine goes down is not written to {}: {error}", self.file.display());
        }
    }

    /// In the format of Prometheus.
    pub(super) fn metrics(&self) -> String {
        let times = *self.times.lock();
        let seconds = |time: Option<Timestamp>| time.map_or(0, Timestamp::as_second);
        let mut page = Page::new();
        let help = "Last graceful shutdown start time since unix epoch in seconds";
        page.family("kubelet_graceful_shutdown_start_time_seconds", Kind::Gauge, help).sample("", seconds(times.start));
        let help = "Last graceful shutdown end time since unix epoch in seconds";
        page.family("kubelet_graceful_shutdown_end_time_seconds", Kind::Gauge, help).sample("", seconds(times.end));
        page.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(last: &LastShutdown) -> [String; 2] {
        let text = last.metrics();
        ["start", "end"].map(|which| {
            let name = format!("kubelet_graceful_shutdown_{which}_time_seconds ");
            text.lines().find_map(|line| line.strip_prefix(&name)).expect("a sample").to_owned()
        })
    }

    #[test]
    fn the_last_shutdown_is_known_after_the_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let last = LastShutdown::open(folder.path());
        assert_eq!(shown(&last), ["0", "0"]);
        last.begins(Timestamp::from_second(1_800_000_000).expect("a time"));
        assert_eq!(shown(&LastShutdown::open(folder.path())), ["1800000000", "0"]);
        last.ends(Timestamp::from_second(1_800_000_030).expect("a time"));
        for last in [&last, &LastShutdown::open(folder.path())] {
            assert_eq!(shown(last), ["1800000000", "1800000030"]);
        }
        // The next one begins anew.
        last.begins(Timestamp::from_second(1_800_000_100).expect("a time"));
        assert_eq!(shown(&last), ["1800000100", "0"]);
    }

    #[test]
    fn a_file_of_upstreams_kubelet_is_read_and_a_torn_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = r#"{"startTime":"2026-11-19T20:00:00.123456789+01:00","endTime":"0001-01-01T00:00:00Z"}"#;
        std::fs::write(folder.path().join(FILE), text).expect("written");
        assert_eq!(shown(&LastShutdown::open(folder.path())), ["1795114800", "0"]);
        std::fs::write(folder.path().join(FILE), "{").expect("written");
        assert_eq!(shown(&LastShutdown::open(folder.path())), ["0", "0"]);
    }
}

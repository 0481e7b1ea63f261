//! The one way to say that a test cannot run on this machine.
//!
//! Rust's test programs know no skipping: such a test returns and counts as passed. What is written here to the file that
//! `FERRY_SKIPS` names is taken off again in the summary of `make test`, which names each reason and in CI fails for it.

use std::io::Write;
use std::path::PathBuf;

/// What a scenario of a [`Report`](crate::Report) unwinds with when this machine lacks what it needs.
pub(crate) struct Missing(pub(crate) String);

/// Records that the running test checks nothing here, and why. The test returns then.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    record(thread.name().unwrap_or("a test"), reason);
}

/// Ends a scenario of a [`Report`](crate::Report) as skipped.
pub fn cannot_run(reason: &str) -> ! {
    // Not a panic: nobody made a mistake, and its message would be in the way.
    std::panic::resume_unwind(Box::new(Missing(reason.to_owned())))
}

/// The program without the hash that cargo adds: `ferry_proxy`, `e2e`.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit_once('-').map_or(name.clone(), |(name, _)| name.to_owned())
}

pub(crate) fn record(test: &str, reason: &str) {
    println!("skipped: {reason}");
    let Some(file) = std::env::var_os("FERRY_SKIPS") else { return };
    // One write: tests of several programs may add to it at once.
    let line = format!("{}::{test}\t{}\n", program(), reason.replace(['\t', '\n'], " "));
    let written = std::fs::OpenOptions::new().append(true).create(true).open(&file);
    written.and_then(|mut file| file.write_all(line.as_bytes())).expect("the skip is recorded");
}

/// Where `hack/setup.sh` keeps what it fetched.
pub fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/ferry");
    std::env::var_os("FERRY_CACHE").map_or_else(home, PathBuf::from)
}

//! The end of `make test`: what its parts printed, counted, with the name of every failure and the reason of every skip.
//!
//! `hack/test.sh` leaves in a folder the output and the exit status of each part (`NAME.log`, `NAME.status`) and what tests
//! recorded through `ferry_testkit::skip` (`skips`, a name and a reason on each line). A skipped test counts as passed in the
//! program that has it, so that its count is taken off here.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

/// Skips that CI accepts: a name and why, on each line.
const ALLOWED: &str = include_str!("../../hack/allowed-skips.txt");

#[derive(Default)]
pub(crate) struct Summary {
    passed: usize,
    failures: Vec<String>,
    /// The names by reason.
    skipped: BTreeMap<String, Vec<String>>,
}

/// One test program's part of a log.
#[derive(Default)]
struct Program {
    name: String,
    /// The names below the last `failures:`.
    failing: Vec<String>,
    in_list: bool,
    has_result: bool,
}

pub(crate) fn read(folder: &Path, is_ci: bool) -> Result<Summary> {
    let mut parts: Vec<String> = std::fs::read_dir(folder)
        .with_context(|| format!("read {}", folder.display()))?
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".log")?.to_owned()))
        .collect();
    parts.sort();
    let text = |name: String| match std::fs::read(folder.join(&name)) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| format!("read {name}")),
    };
    let mut summary = Summary::default();
    for part in parts {
        summary.add_part(&part, &text(format!("{part}.log"))?, text(format!("{part}.status"))?.trim());
    }
    summary.add_skips(&text("skips".into())?, ALLOWED, is_ci);
    Ok(summary)
}

impl Summary {
    fn add_part(&mut self, part: &str, log: &str, status: &str) {
        let known = self.failures.len();
        let mut program = Program { name: part.to_owned(), has_result: true, ..Program::default() };
        for line in log.lines() {
            if let Some(name) = program_name(line) {
                self.end_program(&program);
                program = Program { name, ..Program::default() };
            } else if let Some([passed, failed, ignored]) = counts(line) {
                self.passed += passed;
                self.failures.extend(program.failing.iter().map(|test| format!("{}::{test}", program.name)));
                let unnamed = failed.saturating_sub(program.failing.len());
                self.failures.extend((0..unnamed).map(|_| format!("{}: a test whose name is not told", program.name)));
                if ignored > 0 {
                    let name = &program.name;
                    self.failures
                        .push(format!("{name}: {ignored} marked #[ignore]; let them record a skip and its reason"));
                }
                program.has_result = true;
            } else if line == "failures:" {
                (program.failing, program.in_list) = (Vec::new(), true);
            } else if let (true, Some(test)) = (program.in_list, line.strip_prefix("    ")) {
                program.failing.push(test.to_owned());
            }
        }
        self.end_program(&program);
        if status != "0" && self.failures.len() == known {
            let status = if status.is_empty() { "no exit status" } else { status };
            self.failures
                .push(format!("{part}: ended with {status} before its tests ran, or after them; see its output"));
        }
    }

    fn end_program(&mut self, program: &Program) {
        if !program.has_result {
            self.failures.push(format!("{}: ended before all of its tests had run", program.name));
        }
    }

    fn add_skips(&mut self, skips: &str, allowed: &str, is_ci: bool) {
        let allowed = allowed.lines().filter(|line| !line.starts_with('#'));
        let allowed: Vec<&str> = allowed.filter_map(|line| line.split_whitespace().next()).collect();
        for line in skips.lines() {
            let (name, reason) = line.split_once('\t').unwrap_or((line, "no reason is told"));
            self.passed = self.passed.saturating_sub(1);
            if is_ci && !allowed.contains(&name) {
                self.failures.push(format!("{name}: skipped, which hack/allowed-skips.txt does not allow: {reason}"));
            } else {
                self.skipped.entry(reason.to_owned()).or_default().push(name.to_owned());
            }
        }
    }

    pub(crate) fn passed_all(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(out, "failed: {failure}")?;
        }
        for (reason, names) in &self.skipped {
            writeln!(out, "skipped: {reason}: {}", names.join(", "))?;
        }
        let skipped: usize = self.skipped.values().map(Vec::len).sum();
        writeln!(out, "{} passed, {} failed, {skipped} skipped", self.passed, self.failures.len())
    }
}

/// The program that cargo says it starts: `ferry_store` of
/// `Running unittests src/lib.rs (/target/debug/deps/ferry_store-0123456789abcdef)`.
fn program_name(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{name} (documentation)"));
    }
    let file = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once("/deps/")?.1;
    Some(file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned())
}

/// Passed, failed and ignored by a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
fn counts(line: &str) -> Option<[usize; 3]> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok());
    Some([count(" passed")?, count(" failed")?, count(" ignored")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "   Compiling ferry-meta v0.1.0 (/src)
     Running unittests src/lib.rs (/target/debug/deps/ferry_meta-87a661aa8dea2a2d)

running 3 tests
test one ... ok
test two ... FAILED

failures:

---- two stdout ----
    assertion failed
failures:
    printed by the test
failures:
    two

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `-p ferry-meta --lib`
     Running tests/e2e/main.rs (/target/debug/deps/e2e-1ef08387611f7985)
thread 'main' panicked
error: test failed, to rerun pass `-p ferry --test e2e`
   Doc-tests ferry_meta

running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn every_failure_is_named_and_counted() {
        let mut summary = Summary::default();
        summary.add_part("workspace", LOG, "101");
        summary.add_part("clients", "test python ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored\n", "0");
        let text = "failed: ferry_meta::two\nfailed: e2e: ended before all of its tests had run\n3 passed, 2 failed, 0 skipped\n";
        assert_eq!(summary.to_string(), text);
        assert!(!summary.passed_all());
    }

    #[test]
    fn parts_that_do_not_build_or_ignore_tests_fail() {
        let mut summary = Summary::default();
        summary.add_part("workspace", "error: could not compile `ferry-meta`\n", "101");
        summary.add_part("clients", "", "");
        summary.add_part("ignored", "test result: ok. 1 passed; 0 failed; 2 ignored\n", "0");
        assert_eq!(summary.failures.len(), 3, "{summary}");
        assert!(summary.failures[0].starts_with("workspace: ended with 101"), "{summary}");
    }

    #[test]
    fn skips_are_taken_off_and_in_ci_must_be_allowed() {
        let skips = "store::a\tno root\nclients::node\tno Node\nstore::b\tno root\n";
        let summarize = |is_ci| {
            let mut summary = Summary::default();
            summary.add_part("all", "test result: ok. 5 passed; 0 failed; 0 ignored\n", "0");
            summary.add_skips(skips, "# names and reasons\nclients::node  it is not everywhere\n", is_ci);
            summary
        };
        let summary = summarize(false);
        assert!(summary.passed_all());
        let text =
            "skipped: no Node: clients::node\nskipped: no root: store::a, store::b\n2 passed, 0 failed, 3 skipped\n";
        assert_eq!(summary.to_string(), text);
        let summary = summarize(true);
        assert_eq!(summary.failures.len(), 2);
        assert!(summary.to_string().ends_with("\n2 passed, 2 failed, 1 skipped\n"), "{summary}");
    }
}

//! What test programs with a `main` of their own print: the lines that Rust's own print, so that one reader counts all of them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use crate::skip::{Missing, record};

/// Counts scenarios and prints how each of them ended.
pub struct Report {
    wanted: Vec<String>,
    passed: usize,
    skipped: usize,
    failed: Vec<String>,
    begin: Instant,
}

impl Report {
    /// `wanted` are parts of the names of those that are to run; none means all.
    pub fn new(wanted: Vec<String>) -> Self {
        Self { wanted, passed: 0, skipped: 0, failed: Vec::new(), begin: Instant::now() }
    }

    /// Takes from the command line what is no flag.
    pub fn from_arguments() -> Self {
        Self::new(std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect())
    }

    pub fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|part| name.contains(part.as_str()))
    }

    /// Runs it; false when it failed.
    pub fn attempt(&mut self, name: &str, scenario: impl FnOnce()) -> bool {
        let begin = Instant::now();
        let end = catch_unwind(AssertUnwindSafe(scenario));
        self.ended(name, begin, end)
    }

    /// What `attempt` does after the scenario, for those that run otherwise; false when it failed.
    pub fn ended(&mut self, name: &str, begin: Instant, end: Result<(), Box<dyn Any + Send>>) -> bool {
        let seconds = begin.elapsed().as_secs_f64();
        match end {
            Ok(()) => {
                println!("test {name} ... ok ({seconds:.1} s)");
                self.passed += 1;
                true
            }
            Err(cause) => match cause.downcast::<Missing>() {
                Ok(missing) => {
                    self.skip(name, &missing.0);
                    true
                }
                Err(cause) => {
                    self.fail(name, &words(cause.as_ref()));
                    false
                }
            },
        }
    }

    /// Counts one that failed, or was not tried because another failed.
    pub fn fail(&mut self, name: &str, why: &str) {
        println!("test {name} ... FAILED");
        println!("    {why}");
        self.failed.push(format!("{name}: {why}"));
    }

    /// Counts one that cannot run here.
    pub fn skip(&mut self, name: &str, reason: &str) {
        println!("test {name} ... skipped");
        record(name, reason);
        self.skipped += 1;
    }

    /// A skipped one counts as passed here, as in Rust's own test programs, and is taken off in the summary of `make test`.
    pub fn finish(self) -> ExitCode {
        if !self.failed.is_empty() {
            println!("\nfailures:\n    {}", self.failed.join("\n    "));
        }
        let result = if self.failed.is_empty() { "ok" } else { "FAILED" };
        println!(
            "\ntest result: {result}. {} passed; {} failed; 0 ignored; {} of the passed were skipped; finished in {:.1}s",
            self.passed + self.skipped,
            self.failed.len(),
            self.skipped,
            self.begin.elapsed().as_secs_f64()
        );
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The first lines of what a scenario ended with: they are shown again at the end, where nobody has to look for them.
fn words(cause: &(dyn Any + Send)) -> String {
    let whole = cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref::<&str>().copied());
    let first: Vec<&str> = whole.unwrap_or("it panicked without a message").lines().take(4).collect();
    first.join(" ").chars().take(400).collect()
}

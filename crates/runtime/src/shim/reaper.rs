//! The end of every process below the shim: its own children, and those it inherits from whoever made them.

use std::cell::RefCell;
use std::collections::VecDeque;

use rustix::process::{WaitOptions, WaitStatus};
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::Notify;

/// Ends that nobody has asked for are kept for a while: a process may end before its number is known.
const KEPT: usize = 1024;

#[derive(Default)]
pub(crate) struct Reaper {
    ended: RefCell<VecDeque<(i32, i32)>>,
    arrived: Notify,
}

impl Reaper {
    /// To be called before the first child: what ends earlier is found by the first look.
    pub(crate) fn signals() -> std::io::Result<Signal> {
        tokio::signal::unix::signal(SignalKind::child())
    }

    /// Reaps for ever.
    pub(crate) async fn run(&self, mut signals: Signal) {
        loop {
            self.reap();
            signals.recv().await;
        }
    }

    fn reap(&self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let mut ended = self.ended.borrow_mut();
            ended.push_back((pid.as_raw_nonzero().get(), code(status)));
            if ended.len() > KEPT {
                ended.pop_front();
            }
            drop(ended);
            self.arrived.notify_waiters();
        }
    }

    /// A new child may have the number of one whose end nobody wanted.
    pub(crate) fn expect(&self, pid: i32) {
        self.ended.borrow_mut().retain(|(known, _)| *known != pid);
    }

    fn take(&self, pid: i32) -> Option<i32> {
        let mut ended = self.ended.borrow_mut();
        let place = ended.iter().position(|(known, _)| *known == pid)?;
        ended.remove(place).map(|(_, code)| code)
    }

    /// The exit code of a process, 128 and the signal's number where one ended it.
    pub(crate) async fn wait(&self, pid: i32) -> i32 {
        loop {
            let arrived = self.arrived.notified();
            if let Some(code) = self.take(pid) {
                return code;
            }
            arrived.await;
        }
    }
}

fn code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(255)
}

//! Graceful node shutdown: systemd's logind is asked to hold a shutdown of the machine back until pods have ended, the
//! least important first. As upstream does it, with its words.

mod logind;
mod plan;
mod times;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::EventType;
use futures::future::join_all;
use tokio::sync::watch;

use crate::context::Context;
use crate::mailboxes::Mailboxes;
use crate::node;
use crate::pod;
use crate::status::WaitReason;
use crate::worker::{EndReason, Mailbox};
use logind::Logind;
pub use plan::ShutdownPeriod;
use times::LastShutdown;

/// What the node's condition says of it.
pub(crate) const STATUS: &str = "node is shutting down";
const ENDED: &str = "Pod was terminated in response to imminent node shutdown.";
const RECONNECT: Duration = Duration::from_secs(1);
const LONGEST_RECONNECT: Duration = Duration::from_secs(60);

/// Where logind is reached, and where it is told how long it may be held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogindPlaces {
    pub bus: PathBuf,
    pub conf: PathBuf,
}

impl Default for LogindPlaces {
    fn default() -> Self {
        Self { bus: "/run/dbus/system_bus_socket".into(), conf: "/etc/systemd/logind.conf.d/99-kubelet.conf".into() }
    }
}

/// Whether the machine is about to go down, and when it last did.
pub(crate) struct ShutdownState {
    on: watch::Sender<bool>,
    last: LastShutdown,
}

impl ShutdownState {
    pub(crate) fn open(root_dir: &Path) -> Self {
        Self { on: watch::Sender::new(false), last: LastShutdown::open(root_dir) }
    }

    pub(crate) fn changes(&self) -> watch::Receiver<bool> {
        self.on.subscribe()
    }

    pub(crate) fn is_on(&self) -> bool {
        *self.on.borrow()
    }

    /// In the format of Prometheus.
    pub(crate) fn metrics(&self) -> String {
        self.last.metrics()
    }

    /// A node that goes down takes no pods.
    pub(crate) fn refusal(&self) -> Option<WaitReason> {
        self.is_on().then(|| WaitReason {
            reason: "NodeShutdown".into(),
            message: "Pod was rejected as the node is shutting down.".into(),
        })
    }

    fn set(&self, on: bool) {
        self.on.send_replace(on);
    }
}

/// Waits for the machine to go down, for ever.
pub(crate) async fn watch(context: Arc<Context>, mailboxes: Mailboxes) {
    let mut wait = RECONNECT;
    loop {
        let began = tokio::time::Instant::now();
        let Err(why) = follow(&context, &mailboxes).await;
        tracing::warn!("a shutdown of this machine is not noticed now: {why}");
        // Without logind there is nobody to wait for: not every second, then.
        wait = if began.elapsed() > LONGEST_RECONNECT { RECONNECT } else { (wait * 2).min(LONGEST_RECONNECT) };
        tokio::time::sleep(wait).await;
    }
}

async fn follow(context: &Arc<Context>, mailboxes: &Mailboxes) -> Result<std::convert::Infallible, String> {
    let settings = &context.config.settings;
    let (mut logind, lock) = Logind::hold(&settings.logind, plan::whole(&settings.shutdown)).await?;
    let mut lock = Some(lock);
    // logind gives no lock while the machine goes down: what was called off while nobody listened is over.
    if context.shutdown.is_on() {
        context.shutdown.set(false);
    }
    loop {
        let goes_down = logind.next().await?;
        let what = if goes_down { "shutdown event" } else { "shutdown cancellation" };
        let message = format!("Shutdown manager detected {what}");
        tracing::warn!("{message}");
        context.recorder.event_for(node::reference(context), EventType::Normal, "NodeShutdown", message);
        context.shutdown.set(goes_down);
        if goes_down {
            context.shutdown.last.begins(context.clock.now());
            end_pods(context, mailboxes).await;
            context.shutdown.last.ends(context.clock.now());
            // The machine goes down once nobody holds it any more.
            drop(lock.take());
        } else {
            lock = Some(logind.inhibit().await?);
        }
    }
}

/// Ends all pods, one group after the other; each group gets its time and no more.
async fn end_pods(context: &Context, mailboxes: &Mailboxes) {
    // Also those that somebody else ends: they have no more time than the machine has.
    let all: Vec<(i32, Arc<Mailbox>)> = mailboxes.unfinished().into_iter().map(|m| (priority(&m), m)).collect();
    for (period, group) in plan::groups(&context.config.settings.shutdown, all) {
        if group.is_empty() {
            continue;
        }
        for mailbox in &group {
            let why = WaitReason { reason: "Terminated".into(), message: ENDED.into() };
            let grace = pod::grace_seconds(&mailbox.pod()).min(period.seconds);
            mailbox.end_for(EndReason { why, disrupts: Some(ENDED.to_owned()) }, grace);
        }
        let ended = join_all(group.iter().map(|mailbox| mailbox.finished()));
        let time = Duration::from_secs(u64::try_from(period.seconds).unwrap_or(0));
        if tokio::time::timeout(time, ended).await.is_err() {
            tracing::warn!(priority = period.priority, "pods have not ended within {} s", period.seconds);
        }
    }
}

fn priority(mailbox: &Mailbox) -> i32 {
    pod::spec(&mailbox.pod()).priority.unwrap_or(0)
}

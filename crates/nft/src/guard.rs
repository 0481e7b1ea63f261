//! Keeps a table of the node, and the rules in chains of others, against whoever flushes them.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ferry_tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::foreign::{self, Passage};
use crate::legacy::{Legacy, LegacyError};
use crate::run::Nft;
use crate::watch::{Pace, Watch};
use crate::{NftError, netlink};

/// The kernel tells nothing of rules of the old kind.
const LOOK_AT_LEGACY: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(5);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is done after the table was written again.
#[derive(Clone)]
pub struct Repaired(pub Arc<dyn Fn() -> Work + Send + Sync>);

impl std::fmt::Debug for Repaired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Repaired")
    }
}

#[derive(Clone, Debug)]
pub struct Guard {
    pub nft: Nft,
    /// The table to keep (family `ip`), and the script that makes it whatever there is.
    pub table: String,
    pub script: String,
    /// Tables that others of the same node keep.
    pub other_tables: Vec<String>,
    /// For tables that nobody watches: whoever flushed this one may have flushed them, too.
    pub repaired: Option<Repaired>,
    pub passage: Passage,
    /// For each family.
    pub legacy: Vec<Legacy>,
}

/// A running guard.
#[derive(Clone, Debug)]
pub struct Guarded {
    problems: watch::Receiver<Vec<String>>,
}

impl Guarded {
    /// What drops packets of pods and could not be helped, in words for people.
    pub fn problems(&self) -> watch::Receiver<Vec<String>> {
        self.problems.clone()
    }
}

/// Why rules in chains of others were not taken out.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error("the packet rules cannot be listed: {0}")]
    List(std::io::Error),
    #[error(transparent)]
    Legacy(#[from] LegacyError),
}

/// Takes the rules out of all chains of others; `apply` runs a script of `nft`. Blocks.
pub fn remove(name: &str, apply: impl FnOnce(&str)) -> Result<(), RemoveError> {
    let chains = netlink::open().and_then(|socket| foreign::chains(&socket, &foreign::mark(name)));
    let chains = chains.map_err(RemoveError::List)?;
    let script: String = chains.iter().map(foreign::forget).collect();
    if !script.is_empty() {
        apply(&script);
    }
    Legacy::both().iter().try_for_each(|legacy| legacy.remove(name))?;
    Ok(())
}

impl Guard {
    /// Writes the table, lets pods through, and keeps both until `tasks` stops.
    pub async fn start(self, tasks: &Tasks) -> Result<Guarded, NftError> {
        let sockets = netlink::open().and_then(|query| Ok((query, Watch::socket()?)));
        let sockets = sockets.map_err(|source| NftError::Pipe { command: "netlink".into(), source })?;
        self.start_with(sockets, tasks).await
    }

    /// With sockets of the network to guard: one for questions, one that is told of changes.
    pub(crate) async fn start_with(
        self,
        (query, told): (OwnedFd, OwnedFd),
        tasks: &Tasks,
    ) -> Result<Guarded, NftError> {
        let watch = Watch::of(told, &self.nft);
        let watch = watch.map_err(|source| NftError::Pipe { command: "netlink".into(), source })?;
        self.nft.apply(&self.script).await?;
        let (sender, problems) = watch::channel(Vec::new());
        let running = Running { guard: self, query: Arc::new(query), problems: sender };
        running.look(true).await;
        tasks.spawn_critical_once("packet rules", running.run(watch));
        Ok(Guarded { problems })
    }
}

struct Running {
    guard: Guard,
    query: Arc<OwnedFd>,
    problems: watch::Sender<Vec<String>>,
}

impl Running {
    async fn run(self, mut watch: Watch) {
        let own: Vec<&str> = self.guard.other_tables.iter().chain([&self.guard.table]).map(String::as_str).collect();
        // Others may change their own tables all the time, which must not delay the repair of ours.
        let (mut repairs, mut looks) = (Pace::default(), Pace::default());
        let (mut at, mut lost): (Option<Instant>, bool) = (None, false);
        let mut legacy = tokio::time::interval(LOOK_AT_LEGACY);
        legacy.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = watch.next() => match changed {
                    Ok(changed) => {
                        let now = Instant::now();
                        if !lost && (changed.is_unknown() || changed.concerns(&self.guard.table)) {
                            lost = true;
                            let due = repairs.next(now);
                            at = Some(at.map_or(due, |at| at.min(due)));
                        } else if changed.concerns_others_than(&own) {
                            at.get_or_insert_with(|| looks.next(now));
                        }
                    }
                    Err(error) => {
                        tracing::warn!("changes of packet rules are not told: {error}");
                        lost = true;
                        tokio::time::sleep(RETRY).await;
                        at.get_or_insert_with(Instant::now);
                    }
                },
                () = until(at) => {
                    at = None;
                    if lost && !self.repair().await {
                        at = Some(Instant::now() + RETRY);
                    } else {
                        lost = false;
                    }
                    self.look(false).await;
                }
                _ = legacy.tick() => self.look(false).await,
            }
        }
    }

    async fn repair(&self) -> bool {
        match self.guard.nft.apply(&self.guard.script).await {
            Ok(()) => {
                tracing::info!("somebody changed table {}: it is written anew", self.guard.table);
                if let Some(Repaired(also)) = &self.guard.repaired {
                    also().await;
                }
                true
            }
            Err(error) => {
                tracing::error!("table {} was changed by somebody and cannot be repaired: {error}", self.guard.table);
                false
            }
        }
    }

    /// Lets pods through wherever packets are dropped by now.
    async fn look(&self, anew: bool) {
        let mut problems = Vec::new();
        let (query, passage) = (self.query.clone(), self.guard.passage.clone());
        let listed = tokio::task::spawn_blocking(move || foreign::chains(&query, &passage.mark())).await;
        match listed {
            Ok(Ok(chains)) => {
                let (script, impossible) = foreign::plan(&chains, &self.guard.passage, anew);
                problems.extend(impossible);
                if !script.is_empty() {
                    match self.guard.nft.apply(&script).await {
                        Ok(()) => tracing::info!("pods are let through where others drop packets: {}", script.trim()),
                        Err(error) => {
                            let dropping = chains.iter().filter(|chain| chain.drops);
                            let names: Vec<String> = dropping.map(foreign::Chain::named).collect();
                            problems.push(format!("{} drops packets of pods: {error}", names.join(", ")));
                        }
                    }
                }
            }
            Ok(Err(error)) => tracing::warn!("the packet rules of others cannot be listed: {error}"),
            Err(_) => {}
        }
        let (legacy, passage) = (self.guard.legacy.clone(), self.guard.passage.clone());
        if let Ok(Err(problem)) = tokio::task::spawn_blocking(move || ensure(&legacy, &passage, anew)).await {
            problems.push(format!("iptables-legacy may drop packets of pods: {problem}"));
        }
        self.problems.send_if_modified(|known| {
            let changed = *known != problems;
            if changed {
                problems.iter().for_each(|problem| tracing::warn!("{problem}"));
            }
            *known = problems;
            changed
        });
    }
}

fn ensure(legacy: &[Legacy], passage: &Passage, anew: bool) -> Result<(), LegacyError> {
    legacy.iter().try_for_each(|legacy| legacy.ensure(passage, anew))
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

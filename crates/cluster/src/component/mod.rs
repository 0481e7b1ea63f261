//! What components that run as processes of their own have in common: health and metrics over HTTPS, identities, elections.

pub mod accounts;
pub mod server;

use std::time::Duration;

use anyhow::{Result, ensure};
use ferry_client::leader::{self, Fence};
use ferry_tasks::Tasks;
use kube::Client;

use crate::cluster::READY;
use crate::signals;

const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// A name for this process among others of its kind.
pub fn identity() -> String {
    format!("{}_{}", crate::config::host_name(), uuid::Uuid::new_v4())
}

/// Runs what `start` starts until a signal comes, and says so when it is ready.
pub async fn run(name: &'static str, start: impl AsyncFnOnce(&Tasks) -> Result<String>) -> Result<()> {
    let tasks = Tasks::new(name);
    let started = tokio::select! {
        started = start(&tasks) => started.map(Some),
        told = signals::wait() => told.map(|()| None),
    };
    let outcome = match started {
        Ok(Some(ready)) => {
            println!("{READY}: {ready}");
            signals::wait().await
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    tasks.stop(STOP_PATIENCE).await;
    outcome
}

/// Runs what `start` starts until a signal comes; with an election only while this process is elected, and to lose it is
/// an error.
pub async fn lead(
    client: Client,
    election: Option<leader::Config>,
    tasks: &Tasks,
    start: impl FnOnce(Tasks, Option<Fence>),
) -> Result<()> {
    let mut kept = true;
    match election {
        None => {
            start(tasks.clone(), None);
            signals::wait().await?;
        }
        Some(election) => {
            let stop = tasks.stopping();
            let election = leader::run(client, election, tasks, |led, fence| start(led, Some(fence)));
            tokio::pin!(election);
            kept = tokio::select! {
                kept = &mut election => kept,
                signal = signals::wait() => {
                    stop.cancel();
                    signal?;
                    election.await
                }
            };
        }
    }
    tasks.stop(STOP_PATIENCE).await;
    ensure!(kept, "leader election lost; start the process again to take part in the election");
    Ok(())
}

//! The scheduler: gives every pod without a node the one that suits it best.
//!
//! - [`model`]: pods and nodes with everything parsed once; the cache that events and own decisions keep.
//! - [`framework`]: the points at which plugins take part; one search for a node, pure over the model.
//! - [`plugins`]: those every cluster knows.
//! - [`config`]: KubeSchedulerConfiguration; [`extender`]: programs beside the scheduler that have a say.
//! - [`devices`]: which devices claims get.
//! - [`queue`]: who is tried next, and who waits for what.
//! - `run`: the loop that owns all of this, and what it does through the API: binding, conditions, events.
//!
//! Must not depend on any server-side crate.

pub mod config;
pub mod devices;
pub mod extender;
pub mod framework;
pub mod listers;
pub mod metrics;
pub mod model;
pub mod nominations;
pub mod plugins;
pub mod queue;
mod run;
#[cfg(test)]
mod testing;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::Informers;
use ferry_tasks::Tasks;
use kube::Client;

pub use config::{Configuration, ProfileError};
pub use extender::Extender;
pub use framework::{Plugin, Profile, Registered};
pub use metrics::Metrics;
pub use model::pod::DEFAULT_SCHEDULER;
pub use run::{Scheduler, Verdicts};

/// How long a bound pod counts although the API server does not tell of it.
const LONGEST_ASSUMPTION: Duration = Duration::from_secs(15 * 60);

/// Which schedulers to run, by the names that pods ask for.
#[derive(Clone)]
pub struct Config {
    pub profiles: Vec<Profile>,
    /// How long a pod that failed waits at first, and at most.
    pub initial_backoff: Duration,
    pub longest_backoff: Duration,
    pub extenders: Vec<Extender>,
}

impl Config {
    /// One profile under the default name with the default plugins.
    pub fn new(client: &Client) -> Self {
        Self {
            profiles: vec![plugins::binding_profile(DEFAULT_SCHEDULER, client)],
            initial_backoff: Duration::from_secs(1),
            longest_backoff: Duration::from_secs(10),
            extenders: Vec::new(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    #[error("two profiles of the scheduler have the name {0:?}")]
    DuplicateProfile(String),
    #[error("the scheduler has no profile")]
    NoProfile,
    #[error("creating profile for scheduler name {name}: {problem}")]
    Profile { name: String, problem: ProfileError },
    #[error("{0}")]
    Configuration(String),
}

/// Starts scheduling, as soon as pods and nodes are known, until `tasks` stops.
pub async fn start(
    config: Config,
    client: Client,
    informers: &Informers,
    tasks: &Tasks,
) -> Result<Scheduler, SchedulerError> {
    let mut profiles = HashMap::new();
    for profile in &config.profiles {
        let name = profile.scheduler_name.clone();
        if profiles.insert(name.clone(), profile.clone()).is_some() {
            return Err(SchedulerError::DuplicateProfile(name));
        }
    }
    if profiles.is_empty() {
        return Err(SchedulerError::NoProfile);
    }
    let settings = run::Settings {
        profiles: Arc::new(profiles),
        initial_backoff: config.initial_backoff,
        longest_backoff: config.longest_backoff,
        extenders: config.extenders.into(),
        longest_assumption: LONGEST_ASSUMPTION,
    };
    Ok(run::start(settings, client, informers, &tasks.child("scheduler")))
}

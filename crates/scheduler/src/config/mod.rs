//! KubeSchedulerConfiguration: read strictly, completed with upstream's defaults, checked with upstream's texts, and
//! turned into profiles.

mod assemble;
pub mod types;
mod validate;

use std::time::Duration;

use kube::Client;
use serde_json::Value;

use crate::extender::Extender;
use crate::plugins::Factory;
use crate::{Config, SchedulerError};
pub use assemble::ProfileError;
pub(crate) use assemble::arguments;
pub use types::{ClientConnection, LeaderElection, PluginConfig, PluginSet, Plugins};

pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
pub const KIND: &str = "KubeSchedulerConfiguration";

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Configuration {
    pub leader_election: LeaderElection,
    pub client_connection: ClientConnection,
    pub percentage_of_nodes_to_score: Option<usize>,
    pub initial_backoff: Duration,
    pub longest_backoff: Duration,
    profiles: Vec<types::Profile>,
    extenders: Vec<types::Extender>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            percentage_of_nodes_to_score: None,
            initial_backoff: Duration::from_secs(1),
            longest_backoff: Duration::from_secs(10),
            profiles: vec![types::Profile::default()],
            extenders: Vec::new(),
        }
    }
}

impl Configuration {
    /// Reads a file's content. The error says everything that is wrong with it.
    pub fn parse(content: Value) -> Result<Self, SchedulerError> {
        let file: types::File =
            serde_json::from_value(content).map_err(|error| SchedulerError::Configuration(strict(&error)))?;
        if file.api_version != API_VERSION || file.kind != KIND {
            let (version, kind) = (&file.api_version, &file.kind);
            let problem = format!(
                "no kind {kind:?} is registered for version {version:?} in scheme; write {KIND} of {API_VERSION}"
            );
            return Err(SchedulerError::Configuration(problem));
        }
        let errors = validate::file(&file);
        if !errors.is_empty() {
            let lines: Vec<String> = errors.iter().map(ferry_meta::FieldError::line).collect();
            let text = if let [one] = lines.as_slice() { one.clone() } else { format!("[{}]", lines.join(", ")) };
            return Err(SchedulerError::Configuration(text));
        }
        let seconds = |value: Option<i64>, default| {
            Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).unwrap_or(default))
        };
        Ok(Self {
            initial_backoff: seconds(file.pod_initial_backoff_seconds, 1),
            longest_backoff: seconds(file.pod_max_backoff_seconds, 10),
            percentage_of_nodes_to_score: percentage(file.percentage_of_nodes_to_score),
            leader_election: file.leader_election,
            client_connection: file.client_connection,
            profiles: file.profiles.unwrap_or_else(|| vec![types::Profile::default()]),
            extenders: file.extenders,
        })
    }

    /// The scheduler it describes. `further` makes plugins that are not part of this crate.
    pub fn build(&self, client: &Client, further: &[Factory]) -> Result<Config, SchedulerError> {
        let ignored: Vec<String> = self
            .extenders
            .iter()
            .flat_map(|extender| &extender.managed_resources)
            .filter(|resource| resource.ignored_by_scheduler)
            .map(|resource| resource.name.clone())
            .collect();
        let mut profiles = Vec::new();
        for profile in &self.profiles {
            let mut made = assemble::profile(profile, &ignored, client, further)?;
            made.percentage_of_nodes =
                percentage(profile.percentage_of_nodes_to_score).or(self.percentage_of_nodes_to_score);
            profiles.push(made);
        }
        let extenders = self.extenders.iter().map(Extender::new).collect::<Result<Vec<_>, _>>()?;
        Ok(Config { profiles, initial_backoff: self.initial_backoff, longest_backoff: self.longest_backoff, extenders })
    }
}

/// Zero lets it depend on the number of nodes.
fn percentage(value: Option<i64>) -> Option<usize> {
    value.and_then(|value| usize::try_from(value).ok()).filter(|value| *value > 0)
}

/// The decoder's words as upstream puts them.
pub(crate) fn strict(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((field, _)) => format!("strict decoding error: unknown field {field:?}"),
        None => format!("strict decoding error: {text}"),
    }
}

#[cfg(test)]
mod tests;

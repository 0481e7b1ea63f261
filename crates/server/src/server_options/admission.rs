//! Admission: which plug-ins run, and their configuration.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use ferry_admission::Chain;
use ferry_meta::object::{items, text};
use serde_json::Value;

use super::read_document;
use crate::configuration;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Admission")]
pub struct AdmissionOptions {
    /// Admission plug-ins to enable in addition to the default ones, such as EventRateLimit.
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plug-ins to disable.
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// A file with an AdmissionConfiguration.
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
}

impl AdmissionOptions {
    pub fn select(&self, chain: Chain) -> Result<Chain> {
        let configuration = match &self.admission_control_config_file {
            Some(path) => of_plugins(path).with_context(|| path.display().to_string())?,
            None => HashMap::new(),
        };
        let (enabled, disabled) = (&self.enable_admission_plugins, &self.disable_admission_plugins);
        Ok(chain.select(enabled, disabled, &configuration)?)
    }
}

/// By the plug-in's name. A path in the file is relative to the file.
fn of_plugins(path: &Path) -> Result<HashMap<String, Value>> {
    let file = configuration::read(path, "AdmissionConfiguration")?;
    ensure!(
        text(&file, "/kind") == "AdmissionConfiguration",
        "it is no AdmissionConfiguration of apiserver.config.k8s.io/v1"
    );
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut all = HashMap::new();
    for plugin in items(&file, "/plugins") {
        let other = text(plugin, "/path");
        let own = match plugin.get("configuration").filter(|value| !value.is_null()) {
            Some(own) => own.clone(),
            // A name without a configuration says nothing, and must be one all the same.
            None if other.is_empty() => Value::Null,
            None => read_document(&folder.join(other))?,
        };
        let name = text(plugin, "/name");
        let kind = match name {
            "EventRateLimit" => Some(configuration::EVENT_RATE_LIMIT),
            "PodSecurity" => Some("PodSecurityConfiguration"),
            _ => None,
        };
        if let Some(kind) = kind {
            configuration::check(kind, &own).with_context(|| format!("the configuration of {name}"))?;
        }
        ensure!(all.insert(name.to_owned(), own).is_none(), "plugins: {name:?} is there twice");
    }
    Ok(all)
}

//! Admission: which plug-ins run, and their configuration.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use ferry_admission::Chain;
use ferry_meta::object::{items, text};
use serde_json::Value;

use super::read_document;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Admission")]
pub struct AdmissionOptions {
    /// Plug-ins to run besides those that run anyway, such as EventRateLimit.
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Plug-ins not to run.
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// The configuration of plug-ins: a file with an AdmissionConfiguration.
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
}

impl AdmissionOptions {
    pub fn select(&self, chain: Chain) -> Result<Chain> {
        let configuration = match &self.admission_control_config_file {
            Some(path) => configuration(path).with_context(|| path.display().to_string())?,
            None => HashMap::new(),
        };
        chain
            .select(&self.enable_admission_plugins, &self.disable_admission_plugins, &configuration)
            .map_err(|why| anyhow!("{why}"))
    }
}

/// By the plug-in's name. A path in the file is relative to the file.
fn configuration(path: &Path) -> Result<HashMap<String, Value>> {
    let file = read_document(path)?;
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
            None if other.is_empty() => continue,
            None => read_document(&folder.join(other))?,
        };
        all.insert(text(plugin, "/name").to_owned(), own);
    }
    Ok(all)
}

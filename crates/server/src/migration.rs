//! What says in the data folder where a migration is, and where the state went.

use std::path::Path;
use std::{fs, io};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::pki::write_private;

/// Which engine the state of a cluster is moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MigrateTo {
    Etcd,
    Embedded,
}

/// There while the state is in the etcd of a server, and then before any other place.
const MEMBER: &str = "server.json";

/// Makes what was renamed, made or removed in a folder durable.
pub fn sync(folder: &Path) -> Result<()> {
    fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(|| format!("cannot sync {}", folder.display()))
}

/// There while a migration is not finished.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Journal {
    pub to: MigrateTo,
    /// Whether the etcd is none that Ferry runs.
    pub external: bool,
}

/// There once the state is in an etcd that Ferry does not run: a server that is started without its address would begin with
/// nothing.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Moved {
    pub etcd_servers: Vec<String>,
    pub etcd_prefix: String,
}

/// A file of the data folder that says something by being there.
pub trait Note: Serialize + DeserializeOwned {
    const NAME: &'static str;

    fn read(data_dir: &Path) -> Result<Option<Self>> {
        let path = data_dir.join(Self::NAME);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| format!("{} is damaged", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn write(&self, data_dir: &Path) -> Result<()> {
        write_private(&data_dir.join(Self::NAME), &serde_json::to_string_pretty(self)?)?;
        sync(data_dir)
    }

    fn remove(data_dir: &Path) -> Result<()> {
        let path = data_dir.join(Self::NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => sync(data_dir),
        }
    }
}

impl Note for Journal {
    const NAME: &'static str = "migration.json";
}

impl Note for Moved {
    const NAME: &'static str = "moved.json";
}

/// Fails where a server must not use the embedded store of a folder: it is not whole, or not where the state is.
pub fn refuse_unfinished(data_dir: &Path) -> Result<()> {
    if let Some(moved) = Moved::read(data_dir)? {
        bail!(
            "the state of this cluster was moved to the etcd at {}; start it with --etcd-servers={} (`ferry store migrate --to \
             embedded` brings it back)",
            moved.etcd_servers.join(","),
            moved.etcd_servers.join(",")
        );
    }
    let half_made = Journal::read(data_dir)?.is_some_and(|journal| matches!(journal.to, MigrateTo::Embedded));
    if half_made && !data_dir.join(MEMBER).exists() {
        bail!("a migration to the embedded store was cut off; give the same `ferry store migrate` again first");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_the_clusters_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        refuse_unfinished(data).unwrap();
        Journal { to: MigrateTo::Etcd, external: false }.write(data).unwrap();
        refuse_unfinished(data).unwrap();
        Journal { to: MigrateTo::Embedded, external: true }.write(data).unwrap();
        assert!(refuse_unfinished(data).unwrap_err().to_string().contains("was cut off"));
        Journal::remove(data).unwrap();
        Journal::remove(data).unwrap();
        Moved { etcd_servers: vec!["http://a:1".into()], etcd_prefix: "/registry".into() }.write(data).unwrap();
        assert!(refuse_unfinished(data).unwrap_err().to_string().contains("--etcd-servers=http://a:1"));
        Moved::remove(data).unwrap();
        refuse_unfinished(data).unwrap();
    }
}

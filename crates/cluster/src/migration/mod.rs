//! `ferry store migrate`: the state of a cluster from the embedded store to an etcd, and back.
//!
//! The source is only read, and set aside at the end. `migration.json` in the data folder says what is being made: whatever
//! cuts a migration off, the same command given again finds out from it whether to begin anew or to finish.

mod external;
mod member;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ferry_server::migration::{Journal, MigrateTo, Moved, Note, sync};
use ferry_server::state::store_folder;
use ferry_store::migration::{Digest, Past, digest};
use ferry_store::{EmbeddedStore, StoppedStore};
use jiff::Timestamp;

use crate::options::MigrateOptions;
use crate::process::{self, Lock};
use crate::{folders, quorum};

/// What this run finds that an earlier one left.
enum Left {
    Nothing,
    /// It had done everything but tidy up, which is done now.
    Finished,
}

pub fn run(data_dir: &Path, options: &MigrateOptions) -> Result<()> {
    let run_dir = std::path::absolute(&options.run_dir)?;
    ensure!(data_dir.is_dir(), "there is no folder {}; give the cluster's own with --data-dir", data_dir.display());
    if let Some(pid) = process::holder(&run_dir.join("ferry.lock"))? {
        bail!("the server of this folder runs (process {pid}); stop it first with `ferry down`");
    }
    // Nor may it be started meanwhile.
    folders::prepare(&run_dir)?;
    let _lock = Lock::take(&run_dir.join("ferry.lock"))?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match (options.to, options.etcd.etcd_servers.is_empty()) {
            (MigrateTo::Etcd, true) => member::to_etcd(data_dir, options).await,
            (MigrateTo::Etcd, false) => external::to_etcd(data_dir, options).await,
            (MigrateTo::Embedded, true) => member::to_embedded(data_dir, &run_dir, options).await,
            (MigrateTo::Embedded, false) => external::to_embedded(data_dir, options).await,
        }
    })
}

/// Keeps what is not in use any more, under a name that says so. Nothing of a source is ever removed.
fn set_aside(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stamp = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let free = (0..).map(|number| match number {
        0 => path.with_file_name(format!("{name}-before-{stamp}")),
        number => path.with_file_name(format!("{name}-before-{stamp}-{number}")),
    });
    let kept: PathBuf = free.into_iter().find(|kept| !kept.exists()).context("no name is free")?;
    fs::rename(path, &kept).with_context(|| format!("cannot rename {}", path.display()))?;
    println!("kept the previous data in {}", kept.display());
    sync(path.parent().unwrap_or(Path::new("/")))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Sees to what an earlier run left: a copy that was not finished goes, a source that is not in use any more is set aside.
fn settle(data_dir: &Path) -> Result<Left> {
    let Some(journal) = Journal::read(data_dir)? else { return Ok(Left::Nothing) };
    let (store, member) = (store_folder(data_dir), quorum::record::data(data_dir));
    // Each copy counts from the moment in which the one file is there, or is gone, that says where the state is.
    let in_etcd = quorum::Record::read(data_dir)?.is_some() || Moved::read(data_dir)?.is_some();
    let finished = match (journal.to, in_etcd) {
        (MigrateTo::Etcd, true) => {
            set_aside(&store)?;
            true
        }
        // What a migration to another etcd has made so far is there.
        (MigrateTo::Etcd, false) if journal.external => false,
        (MigrateTo::Etcd, false) => {
            // One that was cut off may have left an etcd that still runs in there.
            quorum::process::end_left(data_dir, data_dir)?;
            remove(&member)?;
            false
        }
        (MigrateTo::Embedded, true) => {
            remove(&store)?;
            false
        }
        (MigrateTo::Embedded, false) if journal.external => {
            remove(&store)?;
            false
        }
        (MigrateTo::Embedded, false) => {
            set_aside(&member)?;
            true
        }
    };
    Journal::remove(data_dir)?;
    Ok(if finished { Left::Finished } else { Left::Nothing })
}

/// The embedded store of a folder, held so that nobody opens it.
fn source(data_dir: &Path) -> Result<(StoppedStore, Digest)> {
    ensure!(
        store_folder(data_dir).is_dir(),
        "{} holds no store; give the cluster's folder with --data-dir",
        data_dir.display()
    );
    let store = StoppedStore::open(&store_folder(data_dir))?;
    let found = digest(&store)?;
    Ok((store, found))
}

/// Makes the embedded store of a past, and reads all of it again.
fn import(data_dir: &Path, past: &dyn Past) -> Result<Digest> {
    let folder = store_folder(data_dir);
    EmbeddedStore::import(&folder, past)?;
    let (wanted, copy) = (digest(past)?, digest(&StoppedStore::open(&folder)?)?);
    ensure!(wanted == copy, "the copy in {} is not what it was made of ({copy:?}, not {wanted:?})", folder.display());
    Ok(copy)
}

fn told(found: &Digest, revision: u64) -> String {
    format!("{} objects and {} changes up to revision {revision}, each checked", found.objects, found.changes)
}

//! To and from an etcd that Ferry does not run.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ferry_server::encryption;
use ferry_server::migration::{Journal, MigrateTo, Moved, Note};
use ferry_server::state::{StorageBackend, store_folder};
use ferry_store::etcd::{DatabaseFile, Replay, leases_left, snapshot};
use ferry_store::migration::{Past, compare};
use ferry_store::{EtcdOptions, EtcdStore, Range, Store};
use ferry_tasks::Tasks;

use super::{Left, import, settle, source, told};
use crate::backup::Temporary;
use crate::options::MigrateOptions;
use crate::quorum::Record;
use crate::signals;

/// Where API servers say that they are there, with a lease that ends when they do not say it again.
const SERVERS: &str = "/registry/masterleases/";
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(500);
/// A request of a migration may wait behind many others.
const DEADLINE: Duration = Duration::from_secs(60);

fn etcd_options(options: &MigrateOptions) -> Result<EtcdOptions> {
    let etcd = StorageBackend::etcd_options(&options.etcd)?.context("give --etcd-servers")?;
    Ok(EtcdOptions { deadline: DEADLINE, compaction_interval: None, ..etcd })
}

/// Fails while API servers stand on the etcd.
async fn refuse_servers(etcd: &EtcdStore) -> Result<()> {
    let begin = Instant::now();
    loop {
        let found = etcd.range(Range { prefix: SERVERS.into(), ..Range::default() }).await?;
        if found.entries.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            let names: Vec<&str> = found.entries.iter().map(|entry| entry.key.trim_start_matches(SERVERS)).collect();
            bail!("API servers run on this etcd ({}); stop them first", names.join(", "));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub async fn to_etcd(data_dir: &Path, options: &MigrateOptions) -> Result<()> {
    let etcd = etcd_options(options)?;
    ensure!(Record::read(data_dir)?.is_none(), "the state of the cluster in {} is in etcd already", data_dir.display());
    let moved = Moved { etcd_servers: etcd.endpoints.clone(), etcd_prefix: etcd.prefix.clone() };
    if let Some(before) = Moved::read(data_dir)? {
        ensure!(
            Journal::read(data_dir)?.is_some() && before.etcd_servers == moved.etcd_servers,
            "the state of the cluster in {} is in the etcd at {} already",
            data_dir.display(),
            before.etcd_servers.join(",")
        );
        if store_folder(data_dir).exists() {
            Replay::new(&etcd, &source(data_dir)?.0)?.finish().await?;
        }
    }
    if let Left::Finished = settle(data_dir)? {
        println!("finished what an earlier run had begun: the state is in etcd");
        return Ok(());
    }
    let (store, found) = source(data_dir)?;
    let target = EtcdStore::connect(etcd.clone(), &Tasks::new("migration")).await?;
    let replay = Replay::new(&etcd, &store)?;
    Journal { to: MigrateTo::Etcd, external: true }.write(data_dir)?;
    let told_at = std::cell::Cell::new(Instant::now());
    let tell = |reached: u64, newest: u64| {
        if told_at.get().elapsed() > PATIENCE {
            told_at.set(Instant::now());
            println!("revision {reached} of {newest}");
        }
    };
    let copied = async {
        replay.run(tell).await?;
        compare(&store, &*target).await?;
        Ok(())
    };
    signals::unless_told(copied).await?;
    moved.write(data_dir)?;
    replay.finish().await?;
    let revision = store.outline()?.revision;
    drop(store);
    settle(data_dir)?;
    println!("moved {} to the etcd at {}", told(&found, revision), etcd.endpoints.join(","));
    let keys = data_dir.join("pki");
    let own = keys.join("encryption.json");
    let encryption = if own.exists() && !encryption::is_given(&keys) {
        format!(" --encryption-provider-config={}", own.display())
    } else {
        String::new()
    };
    println!("start it with `ferry up --etcd-servers={}{encryption}`", etcd.endpoints.join(","));
    Ok(())
}

pub async fn to_embedded(data_dir: &Path, options: &MigrateOptions) -> Result<()> {
    let etcd = etcd_options(options)?;
    ensure!(
        Record::read(data_dir)?.is_none(),
        "the state of the cluster in {} is in an etcd that Ferry runs; leave out --etcd-servers",
        data_dir.display()
    );
    settle(data_dir)?;
    ensure!(
        !store_folder(data_dir).exists(),
        "{} already holds a store; give a folder without one with --data-dir",
        data_dir.display()
    );
    let source = EtcdStore::connect(etcd.clone(), &Tasks::new("migration")).await?;
    refuse_servers(&source).await?;
    let folder = Temporary::beside(&data_dir.join("migration"))?;
    let past = signals::unless_told(save(&etcd, &source, &folder)).await?;
    Journal { to: MigrateTo::Embedded, external: true }.write(data_dir)?;
    let found = import(data_dir, &past)?;
    let revision = past.outline()?.revision;
    // Whoever wrote meanwhile would lose it.
    refuse_servers(&source).await?;
    let newest = source.revision().await?;
    ensure!(newest == revision, "somebody wrote to etcd meanwhile (revision {newest}, not {revision}); try again");
    Moved::remove(data_dir)?;
    Journal::remove(data_dir)?;
    println!(
        "moved {} to the embedded store; start it with `ferry up`, without --etcd-servers and with the same \
         --encryption-provider-config",
        told(&found, revision)
    );
    Ok(())
}

/// A snapshot of a member that has everything: one that lags behind the others is not asked again.
async fn save(etcd: &EtcdOptions, source: &EtcdStore, folder: &Temporary) -> Result<DatabaseFile> {
    let newest = source.revision().await?;
    let mut last = None;
    for (number, endpoint) in etcd.endpoints.iter().enumerate() {
        let file = folder.file(&format!("database-{number}"));
        match snapshot::save(endpoint, etcd.tls.as_ref(), &file).await {
            Ok(_) => {
                let past = DatabaseFile::open(&file, &etcd.prefix)?;
                let revision = past.outline()?.revision;
                if revision >= newest {
                    let leases = past.leases()?.into_keys().collect();
                    return Ok(past.with_leases_left(leases_left(etcd, leases).await?));
                }
                last = Some(format!("{endpoint} is at revision {revision}, not {newest}"));
            }
            Err(error) => last = Some(format!("{endpoint}: {error}")),
        }
    }
    bail!("no etcd gives a snapshot of everything: {}", last.unwrap_or_default())
}

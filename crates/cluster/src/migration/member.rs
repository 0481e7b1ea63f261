//! To an etcd that Ferry runs, as the first server of a cluster, and back from one that is the only server.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use ferry_server::migration::{Journal, MigrateTo, Note, refuse_unfinished, sync};
use ferry_server::state::store_folder;
use ferry_store::etcd::{DatabaseFile, leases_left, snapshot, write_database};
use ferry_store::migration::{Past, compare, digest};
use ferry_store::{EtcdOptions, EtcdStore};
use ferry_tasks::Tasks;

use super::{Left, import, set_aside, settle, source, told};
use crate::backup::Temporary;
use crate::options::MigrateOptions;
use crate::quorum::flags::Flags;
use crate::quorum::recover::{self, Server};
use crate::quorum::{Record, process, record};
use crate::{config, signals};

const PREFIX: &str = "/registry";
const STARTED: &str = "start it with `ferry up`";

pub async fn to_etcd(data_dir: &Path, options: &MigrateOptions) -> Result<()> {
    if let Left::Finished = settle(data_dir)? {
        println!("finished what an earlier run had begun: the state is in etcd; {STARTED}");
        return Ok(());
    }
    if Record::read(data_dir)?.is_some() {
        bail!("the state of the cluster in {} is in etcd already", data_dir.display());
    }
    refuse_unfinished(data_dir)?;
    ensure!(
        !record::data(data_dir).exists(),
        "{} is there already, and no migration made it; move it away first",
        record::data(data_dir).display()
    );
    let (store, found) = source(data_dir)?;
    let server = Server {
        name: options.node_name.clone().unwrap_or_else(config::host_name),
        address: options
            .node_ip
            .or_else(config::default_address)
            .context("this machine's address is not known; give it with --node-ip")?,
        client_port: options.member.etcd_client_port,
        peer_port: options.member.etcd_peer_port,
        etcd_binary: options.member.etcd_binary.clone(),
    };
    // Fails before anything is made where it cannot go on.
    process::program(server.etcd_binary.as_deref())?;
    Journal { to: MigrateTo::Etcd, external: false }.write(data_dir)?;
    let place = |database: &Path| {
        write_database(&store, PREFIX, database)?;
        let copy = digest(&DatabaseFile::open(database, PREFIX)?)?;
        ensure!(copy == found, "the database is not what it was made of ({copy:?}, not {found:?})");
        Ok(())
    };
    let check = async |options: EtcdOptions| -> Result<()> {
        let options = EtcdOptions { compaction_interval: None, ..options };
        let etcd = EtcdStore::connect(options, &Tasks::new("migration")).await?;
        compare(&store, &*etcd).await?;
        Ok(())
    };
    let made = recover::from_database(data_dir, &server, (Flags::new(), None), place, check);
    if let Err(error) = signals::unless_told(made).await {
        // Nothing half-made stays: the store is what it was.
        settle(data_dir)?;
        return Err(error);
    }
    let revision = store.outline()?.revision;
    drop(store);
    set_aside(&store_folder(data_dir))?;
    Journal::remove(data_dir)?;
    println!(
        "moved {} to the etcd of the server {} at {}; {STARTED}",
        told(&found, revision),
        server.name,
        server.address
    );
    Ok(())
}

pub async fn to_embedded(data_dir: &Path, run_dir: &Path, options: &MigrateOptions) -> Result<()> {
    if let Left::Finished = settle(data_dir)? {
        println!("finished what an earlier run had begun: the state is in the embedded store; {STARTED}");
        return Ok(());
    }
    let known = match Record::read(data_dir)? {
        Some(known) if known.witness => Record::of_server(data_dir)?,
        Some(known) => known,
        None if store_folder(data_dir).exists() => {
            bail!("the state of the cluster in {} is in the embedded store already", data_dir.display())
        }
        None => Record::must_read(data_dir)?,
    };
    ensure!(
        !store_folder(data_dir).exists(),
        "{} is there already, and no migration made it; move it away first",
        store_folder(data_dir).display()
    );
    let program = process::program(options.member.etcd_binary.as_deref())?;
    let others = snapshot::client_urls(&record::database(data_dir))?;
    let others: Vec<String> = others.into_iter().filter(|url| *url != known.client_url()).collect();
    ensure!(
        others.is_empty(),
        "this cluster has other servers ({}), and the embedded store is for one; remove them first with `ferry server remove`",
        others.join(", ")
    );
    Journal { to: MigrateTo::Embedded, external: false }.write(data_dir)?;
    let folder = Temporary::beside(&data_dir.join("migration"))?;
    let file = folder.file("database");
    process::end_left(data_dir, run_dir)?;
    process::check_ports(&known)?;
    // etcd itself brings its file up to its log.
    let past = recover::run_alone(program, &known, [data_dir, run_dir], &[], async |etcd| {
        snapshot::save(&known.client_url(), etcd.tls.as_ref(), &file).await?;
        let past = DatabaseFile::open(&file, PREFIX)?;
        let leases = past.leases()?.into_keys().collect();
        Ok(past.with_leases_left(leases_left(&etcd, leases).await?))
    })
    .await?;
    let found = import(data_dir, &past)?;
    // From here on the embedded store is the cluster's.
    let kept = record::path(data_dir).with_extension("json-before-migration");
    fs::rename(record::path(data_dir), &kept).context("cannot rename server.json")?;
    sync(data_dir)?;
    set_aside(&record::data(data_dir))?;
    Journal::remove(data_dir)?;
    let revision = past.outline()?.revision;
    println!("moved {} to the embedded store; {STARTED}", told(&found, revision));
    if known.joined || known.restored {
        println!("flags of its API server that came from elsewhere are in {}; give them to `ferry up`", kept.display());
    }
    Ok(())
}

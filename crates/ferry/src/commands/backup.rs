//! `ferry store backup` and `restore`, for both engines: a cluster in one file, once or regularly, and a new cluster from it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ferry_cluster::backup::keys::{self, Keys};
use ferry_cluster::backup::{self, Backup, Engine, Header, Temporary, rotation};
use ferry_cluster::config;
use ferry_cluster::folders;
use ferry_cluster::quorum::recover::{self, Server};
use ferry_cluster::quorum::{Record, record};
use ferry_server::state::store_folder;
use ferry_server::store_socket::{Answer, summary_line};
use ferry_store::etcd::snapshot;
use ferry_store::{EmbeddedStore, StoreError, Summary};
use jiff::Timestamp;

use super::store::{must_be_there, say, told};
use crate::arguments::{BackupOptions, RestoreOptions};

pub fn run(data_dir: &Path, options: &BackupOptions) -> Result<()> {
    let passphrase = options.passphrase_file.as_deref().map(keys::passphrase).transpose()?;
    let Some(folder) = &options.dir else {
        let file = options.file.as_deref().context("give a FILE, or a folder with --dir")?;
        take(data_dir, file, passphrase.as_deref())?;
        return options.upload.as_deref().map_or(Ok(()), |command| rotation::upload(command, file));
    };
    loop {
        let done = into_folder(data_dir, folder, options, passphrase.as_deref());
        let Some(every) = options.every else { return done };
        // The next one may be luckier: whoever looks after backups sees the lines, and the age of the newest.
        if let Err(error) = done {
            eprintln!("ferry: {error:#}");
        }
        std::thread::park_timeout(every.max(Duration::from_secs(1)));
    }
}

fn into_folder(data_dir: &Path, folder: &Path, options: &BackupOptions, passphrase: Option<&[u8]>) -> Result<()> {
    let file = rotation::next(folder, Timestamp::now())?;
    take(data_dir, &file, passphrase)?;
    if let Some(command) = &options.upload {
        rotation::upload(command, &file)?;
    }
    // Last: while new ones cannot be made or taken elsewhere, no old one goes.
    if let Some(count) = options.keep {
        for old in rotation::keep(folder, count.into())? {
            say(&format!("removed {}", old.display()))?;
        }
    }
    Ok(())
}

fn take(data_dir: &Path, file: &Path, passphrase: Option<&[u8]>) -> Result<()> {
    // Where both are there the cluster is in etcd, as it is for `ferry run`.
    let record = Record::read(data_dir)?;
    if record.is_none() {
        must_be_there(data_dir)?;
    }
    let sealed = |passphrase: &[u8]| Keys::collect(data_dir, record.as_ref())?.seal(passphrase);
    let keys = passphrase.map(sealed).transpose()?;
    let header = |engine| Header { engine, taken: Timestamp::now().to_string(), keys: keys.clone() };
    let found = match &record {
        Some(record) => {
            let folder = Temporary::beside(file)?;
            let state = folder.file("state");
            let found = snapshot_of(record, data_dir, &state)?;
            backup::write(file, &header(Engine::Etcd), &state)?;
            found
        }
        None if keys.is_some() => {
            let folder = Temporary::beside(file)?;
            let state = folder.file("state");
            let found = embedded(data_dir, &state)?;
            backup::write(file, &header(Engine::Embedded), &state)?;
            told(&summary_line(&found))
        }
        None => told(&summary_line(&embedded(data_dir, file)?)),
    };
    let without =
        if keys.is_some() { "" } else { "; without the cluster's keys: give --passphrase-file, or keep pki/ yourself" };
    say(&format!("wrote {}: {found}{without}", file.display()))
}

fn embedded(data_dir: &Path, file: &Path) -> Result<Summary> {
    Ok(match Answer::of(data_dir, "backup")? {
        Some(answer) => ferry_store::receive(answer.bytes(), file)
            .context("the running server did not send a whole backup, or it could not be kept")?,
        None => EmbeddedStore::backup_folder(&store_folder(data_dir), file)?,
    })
}

/// What this server's etcd has, or another's when it is away.
fn snapshot_of(record: &Record, data_dir: &Path, file: &Path) -> Result<String> {
    let (tls, options) = (record::client_tls(data_dir)?, record.options(data_dir)?);
    let mut last = None;
    for endpoint in &options.endpoints {
        match runtime()?.block_on(snapshot::save(endpoint, Some(&tls), file)) {
            Ok(found) => return Ok(format!("revision {}, {} changes kept, of etcd", found.revision, found.changes)),
            Err(error) => last = Some((endpoint, error)),
        }
    }
    match last {
        Some((endpoint, error)) => {
            Err(error).with_context(|| format!("no etcd of the cluster gives a snapshot, not {endpoint} either"))
        }
        None => bail!("no etcd of the cluster is known"),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Looks at a backup of either kind.
pub fn check(file: &Path) -> Result<String> {
    let Some(backup) = Backup::open(file)? else {
        return Ok(told(&summary_line(&ferry_store::read_backup(file)?)));
    };
    let folder = Temporary::beside(file)?;
    let state = folder.file("state");
    backup.extract(&state)?;
    let found = match backup.header.engine {
        Engine::Embedded => told(&summary_line(&ferry_store::read_backup(&state)?)),
        Engine::Etcd => {
            let found = snapshot::examine(&state)?;
            format!("revision {}, {} changes kept, of etcd", found.revision, found.changes)
        }
    };
    let with = if backup.header.keys.is_some() { "with" } else { "without" };
    Ok(format!("{found}, {with} the cluster's keys, taken {}", backup.header.taken))
}

pub fn restore(data_dir: &Path, options: &RestoreOptions) -> Result<()> {
    let file = &options.file;
    ensure!(file.exists(), "there is no file {}", file.display());
    let folder = store_folder(data_dir);
    let backup = Backup::open(file)?;
    recover::check_new(data_dir)?;
    let Some(backup) = backup else {
        let found = into_store(file, &folder)?;
        return say(&format!("restored {}: {found}", folder.display()));
    };
    let keys = match (&backup.header.keys, options.passphrase_file.as_deref()) {
        (Some(sealed), Some(path)) => Some(sealed.open(&keys::passphrase(path)?)?),
        (Some(_), None) => {
            bail!("{} holds the cluster's keys; give its passphrase with --passphrase-file", file.display())
        }
        (None, Some(_)) => bail!("{} holds no keys, so that there is nothing for --passphrase-file", file.display()),
        (None, None) => None,
    };
    let own_keys = data_dir.join("pki");
    match keys {
        // What is removed when this fails is what this made.
        Some(_) => ensure!(
            std::fs::read_dir(&own_keys).map_or(true, |mut files| files.next().is_none()),
            "{} holds the keys of a cluster already; give a new folder with --data-dir",
            data_dir.display()
        ),
        None => ensure!(
            own_keys.join("ca.key").exists(),
            "{} holds no keys of the cluster; put the folder pki/ of its data folder into {} first",
            file.display(),
            data_dir.display()
        ),
    }
    folders::prepare(data_dir)?;
    let outcome =
        keys.as_ref().map(|keys| keys.unpack(data_dir)).transpose().and_then(|flags| match backup.header.engine {
            Engine::Embedded => {
                let temporary = Temporary::beside(&data_dir.join("restore"))?;
                let state = temporary.file("state");
                backup.extract(&state)?;
                into_store(&state, &folder)
            }
            Engine::Etcd => {
                let settings = keys.as_ref().and_then(|keys| keys.settings.clone());
                of_etcd(data_dir, options, &backup, flags.unwrap_or_default(), settings)
            }
        });
    match outcome {
        Ok(found) => say(&format!("restored {}: {found}; start it with `ferry up`", data_dir.display())),
        Err(error) => {
            // Nothing half-made stays: the same command can be given again.
            let _ = std::fs::remove_dir_all(record::data(data_dir));
            if keys.is_some() {
                let _ = std::fs::remove_dir_all(own_keys);
            }
            Err(error)
        }
    }
}

/// Makes an embedded store of its backup; nothing half-made stays. The folder is not there yet.
fn into_store(file: &Path, folder: &Path) -> Result<String> {
    let restored = EmbeddedStore::restore(file, folder).inspect_err(|error| {
        // Unless it is another process that makes it.
        if !matches!(error, StoreError::Locked(_)) {
            let _ = std::fs::remove_dir_all(folder);
        }
    });
    Ok(told(&summary_line(&restored?)))
}

fn of_etcd(
    data_dir: &Path,
    options: &RestoreOptions,
    backup: &Backup,
    flags: ferry_cluster::quorum::flags::Flags,
    settings: Option<ferry_cluster::fleet::settings::Settings>,
) -> Result<String> {
    let address = options.node_ip.or_else(config::default_address);
    let server = Server {
        name: options.node_name.clone().unwrap_or_else(config::host_name),
        address: address.context("this machine's address is not known; give it with --node-ip")?,
        client_port: options.member.etcd_client_port,
        peer_port: options.member.etcd_peer_port,
        etcd_binary: options.member.etcd_binary.clone(),
    };
    let mut found = None;
    let place = |database: &Path| {
        backup.extract(database)?;
        found = Some(snapshot::examine(database)?);
        Ok(())
    };
    runtime()?.block_on(recover::from_database(data_dir, &server, (flags, settings), place, async |_| Ok(())))?;
    let revision = found.map_or(0, |found| found.revision);
    Ok(format!("revision {revision}, as the server {} at {} of a new cluster", server.name, server.address))
}

//! A new cluster of one server: from a snapshot, or from what the last server has when most of the others are lost for good.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ferry_server::state::store_folder;
use ferry_store::etcd::{Members, has_quorum, member_status, snapshot};
use ferry_store::{EtcdOptions, EtcdTls};
use jiff::Timestamp;

use super::flags::Flags;
use super::process::{self, Etcd};
use super::record::{self, Record, url};
use crate::fleet::settings::Settings;
use crate::fleet::token::random_word;
use crate::process::Lock;
use crate::{folders, process as processes, signals};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
/// How long the other servers are asked: they may be about to elect a leader, or be slow.
const ASKED: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Who the server of a new cluster is.
pub struct Server {
    pub name: String,
    pub address: IpAddr,
    pub client_port: u16,
    pub peer_port: u16,
    pub etcd_binary: Option<PathBuf>,
}

/// Fails where the folder holds the state of a cluster.
pub fn check_new(data_dir: &Path) -> Result<()> {
    let taken = [store_folder(data_dir), record::data(data_dir), record::path(data_dir)];
    ensure!(
        !taken.iter().any(|path| path.exists()),
        "{} already holds a store; give a new folder with --data-dir",
        data_dir.display()
    );
    Ok(())
}

/// Makes a database that `place` puts where it is told that of a new cluster with this one server, with the flags and settings
/// of the cluster it was of. The keys are in the folder already. It counts once `check` finds it good.
pub async fn from_database(
    data_dir: &Path,
    server: &Server,
    (flags, settings): (Flags, Option<Settings>),
    place: impl FnOnce(&Path) -> Result<()>,
    check: impl AsyncFnOnce(EtcdOptions) -> Result<()>,
) -> Result<()> {
    let program = process::program(server.etcd_binary.as_deref())?;
    folders::prepare(data_dir)?;
    let record = Record {
        name: server.name.clone(),
        address: server.address,
        client_port: server.client_port,
        peer_port: server.peer_port,
        initial_cluster: vec![format!("{}={}", server.name, url(server.address, server.peer_port))],
        joined: false,
        endpoints: vec![url(server.address, server.client_port)],
        settings,
        flags: Some(flags),
        restored: true,
        witness: false,
    };
    process::end_left(data_dir, data_dir)?;
    process::check_ports(&record)?;
    let folder = record::data(data_dir).join("member/snap");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::set_permissions(record::data(data_dir), std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    let database = folder.join("db");
    place(&database)?;
    let known = snapshot::client_urls(&database)?.into_iter().collect();
    let tls = record::client_tls(data_dir)?;
    signals::unless_told(refuse_quorum(known, &tls, "stop them first: there would be two of it")).await?;
    snapshot::forget_members(&database)?;
    // Its log begins with this database, and etcd does not know that: members that come later would be sent the log alone.
    // So it is made to write down at once that everything before is in the database.
    // And it is another cluster than the one in the backup, also for members of that one that come back: they have the same
    // certificates, and would be believed. The token counts when the cluster is made, and never again.
    let token = format!("--initial-cluster-token={}", random_word(32)?);
    let more = ["--snapshot-count=1", token.as_str()];
    let written = || {
        let mut files = fs::read_dir(&folder).into_iter().flatten().flatten();
        files.any(|file| file.path().extension().is_some_and(|end| end == "snap"))
    };
    let ready = async |etcd| {
        while !written() {
            tokio::time::sleep(PAUSE).await;
        }
        check(etcd).await
    };
    run_alone(program, &record, [data_dir, data_dir], &more, ready).await?;
    record.write(data_dir)
}

/// Makes this server the only one of its cluster. Refused while most of the servers are there.
pub async fn from_last_server(data_dir: &Path, run_dir: &Path, etcd_binary: Option<&Path>) -> Result<()> {
    let mut record = Record::of_server(data_dir)?;
    if let Some(pid) = processes::holder(&run_dir.join("ferry.lock"))? {
        bail!("this server runs (process {pid}); stop it first: what it would write meanwhile is lost");
    }
    // Nor may it be started meanwhile.
    folders::prepare(run_dir)?;
    let _lock = Lock::take(&run_dir.join("ferry.lock"))?;
    let program = process::program(etcd_binary)?;
    // Those who came since this server started are known to its etcd alone.
    let known =
        snapshot::client_urls(&record::database(data_dir)).context("it is not known who the other servers are")?;
    let all = record.endpoints.iter().cloned().chain(known).collect();
    let advice = "nothing needs to be recovered (`ferry server list`, `ferry server remove`)";
    refuse_quorum(all, &record::client_tls(data_dir)?, advice).await?;
    process::end_left(data_dir, run_dir)?;
    process::check_ports(&record)?;
    let kept = data_dir.join(format!("etcd-before-{}", Timestamp::now().strftime("%Y%m%dT%H%M%SZ")));
    copy(&record::data(data_dir), &kept).with_context(|| format!("cannot keep a copy in {}", kept.display()))?;
    println!("kept the previous data in {}", kept.display());
    record.initial_cluster = vec![format!("{}={}", record.name, record.peer_url())];
    record.restored |= record.joined;
    (record.joined, record.endpoints) = (false, vec![record.client_url()]);
    run_alone(program, &record, [data_dir, run_dir], &["--force-new-cluster"], async |_| Ok(())).await?;
    record.write(data_dir)
}

/// A write that most servers agree on would be lost on the others.
async fn refuse_quorum(endpoints: BTreeSet<String>, tls: &EtcdTls, advice: &str) -> Result<()> {
    let asked = endpoints.iter().map(|endpoint| async move {
        let end = Instant::now() + ASKED;
        loop {
            let found = has_quorum(endpoint, Some(tls)).await;
            if matches!(found, Ok(true)) {
                bail!("most servers of the cluster are there, {endpoint} says; {advice}");
            }
            if Instant::now() >= end {
                return found.map(drop).with_context(|| {
                    format!("a server at {endpoint} is up and does not report whether a majority of the servers is")
                });
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    });
    futures::future::try_join_all(asked).await.map(drop)
}

/// Runs etcd with these flags for as long as `work` takes, which begins when it is a cluster of its own. The second folder is the
/// one for its number.
pub async fn run_alone<T>(
    program: PathBuf,
    record: &Record,
    [data_dir, run_dir]: [&Path; 2],
    more: &[&str],
    work: impl AsyncFnOnce(EtcdOptions) -> Result<T>,
) -> Result<T> {
    let authority = record::authority(data_dir)?;
    authority.leaf(&record.leaf(), Timestamp::now())?;
    let tls = record::client_tls(data_dir)?;
    let etcd = Etcd::new(program, record, data_dir, run_dir, None)?;
    let log = etcd.log().to_owned();
    let ready = async {
        loop {
            let led = member_status(&record.client_url(), Some(&tls)).await.is_ok_and(|status| status.leader != 0);
            if led {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let options = EtcdOptions { tls: Some(tls.clone()), ..EtcdOptions::new(vec![record.client_url()]) };
        let members = Members::new(&options)?.list().await?;
        ensure!(members.len() == 1, "etcd still knows {} members", members.len());
        Ok::<EtcdOptions, anyhow::Error>(options)
    };
    let outcome = etcd.run_while(more, async {
        let ready = tokio::time::timeout(PATIENCE, ready).await;
        work(ready.unwrap_or_else(|_| bail!("etcd is not ready after {PATIENCE:?}"))?).await
    });
    outcome.await.with_context(|| format!("etcd's log is {}", log.display()))
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

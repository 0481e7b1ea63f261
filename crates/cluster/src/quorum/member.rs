//! From the data folder to a member that votes, and to the store behind it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ferry_server::certificate_rotation::Renewals;
use ferry_server::state::{StorageBackend, store_folder};
use ferry_store::StoreError;
use ferry_store::etcd::api::rpc::Member;
use ferry_store::etcd::{Members, member_status, snapshot};
use ferry_tasks::Tasks;

use super::flags;
use super::process::{self, Etcd, Removed};
use super::record::{self, Record, url};
use super::witness;
use crate::config::ClusterConfig;
use crate::fleet::settings::Settings;

/// How long the others are waited for: after a power cut they come back one by one.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

/// Whether this machine is, or is to be, a server with a member.
pub fn is_wanted(config: &ClusterConfig) -> Result<bool> {
    Ok(config.member.cluster_init || Record::read(&config.node.data_dir)?.is_some())
}

/// Which member this machine is; a new cluster's first one where that is asked for. Nothing is written.
pub fn record(config: &ClusterConfig) -> Result<Record> {
    let data_dir = &config.node.data_dir;
    if let Some(record) = Record::read(data_dir)? {
        ensure!(
            !record.witness,
            "{} is the folder of the witness {}; give a server another one with --data-dir",
            data_dir.display(),
            record.name
        );
        ensure!(
            record.address == config.node.node_ip && record.name == config.node.node_name,
            "this machine is the server {} at {}, not {} at {}; give its own with --node-name and --node-ip",
            record.name,
            record.address,
            config.node.node_name,
            config.node.node_ip
        );
        return Ok(record);
    }
    ensure!(
        !store_folder(data_dir).exists(),
        "{} holds a cluster whose state is in a store of its own; --cluster-init is for a new cluster",
        data_dir.display()
    );
    witness::refuse_as_server(&config.node.node_name)?;
    let (address, name) = (config.node.node_ip, config.node.node_name.clone());
    let (client_port, peer_port) = (config.member.etcd_client_port, config.member.etcd_peer_port);
    let initial_cluster = vec![format!("{name}={}", url(address, peer_port))];
    let endpoints = vec![url(address, client_port)];
    let settings = Some(Settings::of(&config.node.cluster));
    Ok(Record {
        name,
        address,
        client_port,
        peer_port,
        initial_cluster,
        joined: false,
        endpoints,
        settings,
        flags: None,
        restored: false,
        witness: false,
    })
}

/// A member that votes.
pub struct Started {
    /// Where the cluster's state is.
    pub state: StorageBackend,
    /// Tells when the others took this server out of the cluster.
    pub removed: Removed,
}

pub const REMOVED: &str = "this server was removed from the cluster; to make it one again, remove its data with \
                           `ferry down --purge` and join it with `ferry join --server`";

/// What is said to a machine that the others took out.
pub fn removed_text(record: &Record) -> &'static str {
    if record.witness { witness::REMOVED } else { REMOVED }
}

/// Where a member of this machine is, and how it is run.
pub struct Own<'a> {
    pub data_dir: &'a Path,
    pub run_dir: &'a Path,
    pub etcd_binary: Option<&'a Path>,
    pub quota: Option<u64>,
}

/// Starts the member of a server and waits until it votes. The member runs until `tasks` stops.
pub async fn start(config: &ClusterConfig, renewals: &Renewals, tasks: &Tasks) -> Result<Started> {
    let mut record = record(config)?;
    record.flags = Some(record.flags_with(flags::given_to_server(&config.command_line)?));
    let own = Own {
        data_dir: &config.node.data_dir,
        run_dir: &config.node.run_dir,
        etcd_binary: config.member.etcd_binary.as_deref(),
        quota: config.member.etcd_quota_backend_bytes,
    };
    start_member(record, &own, renewals, tasks).await
}

/// The same with or without a server beside it.
pub async fn start_member(mut record: Record, own: &Own<'_>, renewals: &Renewals, tasks: &Tasks) -> Result<Started> {
    let (data_dir, run_dir) = (own.data_dir, own.run_dir);
    let program = process::program(own.etcd_binary)?;
    process::end_left(data_dir, run_dir)?;
    process::check_ports(&record)?;
    // Made before etcd reads it, and made anew in time; etcd reads it with each handshake.
    renewals.leaf_of(record::authority(data_dir)?, record.leaf())?;
    let etcd = Etcd::new(program, &record, data_dir, run_dir, own.quota)?;
    let log = etcd.log().to_owned();
    record.write(data_dir)?;
    let mut removed = etcd.start(record.clone(), data_dir.to_owned(), tasks)?;
    let removed_text = removed_text(&record);
    let ready = async {
        answers(&record, data_dir).await?;
        if record.joined {
            promoted(&record, data_dir).await?;
        }
        // Whoever came since is somebody to ask, too.
        let members = Members::new(&record.options(data_dir)?)?;
        record.endpoints = listed(|| members.list()).await?.into_iter().flat_map(|member| member.client_urls).collect();
        record.write(data_dir)?;
        Ok::<StorageBackend, anyhow::Error>(StorageBackend::of_member(record.options(data_dir)?))
    };
    let waited = tokio::select! {
        waited = tokio::time::timeout(PATIENCE, ready) => waited,
        Ok(()) = &mut removed => bail!(removed_text),
    };
    let state = waited
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the etcd of this machine is not ready after {PATIENCE:?}")))
        .with_context(|| {
            format!(
                "cannot reach the cluster's state: is a majority of its servers up? etcd's log is {}",
                log.display()
            )
        })?;
    Ok(Started { state, removed })
}

/// Whether the others know this server no longer, asked when its etcd has ended. False where none of them answers.
pub async fn is_removed(record: &Record, data_dir: &Path) -> bool {
    let mut record = record.clone();
    // Those who came since this server started are known to its etcd alone.
    record.endpoints.extend(snapshot::client_urls(&record::database(data_dir)).unwrap_or_default());
    record.endpoints.sort();
    record.endpoints.dedup();
    let Ok(others) = record.others(data_dir) else { return false };
    match others.list().await {
        Ok(members) => !members.iter().any(|member| member.peer_urls.contains(&record.peer_url())),
        Err(_) => false,
    }
}

/// Says from time to time what is waited for.
struct Waiting(Instant);

impl Waiting {
    fn new() -> Self {
        Self(Instant::now())
    }

    async fn pause(&mut self, why: impl std::fmt::Display) {
        if self.0.elapsed() > Duration::from_secs(5) {
            self.0 = Instant::now();
            tracing::warn!("waiting for the etcd of this server: {why}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns once the member of this machine says something.
async fn answers(record: &Record, data_dir: &Path) -> Result<()> {
    let tls = record::client_tls(data_dir)?;
    let mut waiting = Waiting::new();
    loop {
        match member_status(&record.client_url(), Some(&tls)).await {
            Ok(status) if status.leader != 0 => return Ok(()),
            Ok(_) => waiting.pause("no leader is elected").await,
            Err(error) => waiting.pause(error).await,
        }
    }
}

/// The members, as the cluster sees them. One that was just let vote takes part in every decision, but learns last that it may: until
/// then it refuses what it is asked, and the others may wait for it. It must not give up, for it would leave them without a majority.
async fn listed<F: Future<Output = ferry_store::Result<Vec<Member>>>>(ask: impl Fn() -> F) -> Result<Vec<Member>> {
    let mut waiting = Waiting::new();
    loop {
        match ask().await {
            Ok(members) => return Ok(members),
            Err(error @ StoreError::Unavailable(_)) => waiting.pause(error).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes the member one that votes, as soon as it has caught up.
async fn promoted(record: &Record, data_dir: &Path) -> Result<()> {
    let others = record.others(data_dir)?;
    loop {
        let step = async {
            let members = others.list().await?;
            let Some(own) = members.iter().find(|member| member.peer_urls.contains(&record.peer_url())) else {
                bail!(removed_text(record));
            };
            if own.is_learner {
                others.promote(own.id).await?;
            }
            Ok::<(), anyhow::Error>(())
        };
        match step.await {
            Ok(()) => return Ok(()),
            Err(error) if error.downcast_ref::<StoreError>().is_some() => {
                tracing::debug!("not promoted yet: {error:#}");
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    async fn answered(answers: Vec<ferry_store::Result<Vec<Member>>>) -> Result<Vec<Member>> {
        let answers = RefCell::new(answers.into_iter());
        listed(|| std::future::ready(answers.borrow_mut().next().expect("nobody asks on"))).await
    }

    /// What a member says that the leader lets vote, and that has not read so in its own log yet.
    #[tokio::test]
    async fn a_member_that_was_just_let_vote_does_not_give_up() {
        let learner = || Err(StoreError::Unavailable("etcd: etcdserver: rpc not supported for learner".into()));
        let members = vec![Member { id: 7, ..Member::default() }];
        assert_eq!(answered(vec![learner(), learner(), Ok(members.clone())]).await.unwrap(), members);
        let damaged = answered(vec![Err(StoreError::Corrupt("no members".into()))]).await.unwrap_err();
        assert!(damaged.to_string().contains("no members"), "{damaged}");
    }
}

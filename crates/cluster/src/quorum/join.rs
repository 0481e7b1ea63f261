//! `ferry join --server`: from an address and a token to a server of the cluster.
//!
//! Each step can be repeated: a join that was cut off goes on from there when the same command is given again.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ferry_server::state;
use ferry_store::StoreError;
use ferry_store::etcd::Members;
use ferry_store::etcd::api::rpc::Member;

use super::handover::{Handover, Receiver};
use super::record::{self, Record, url};
use super::token::ServerToken;
use super::witness;
use crate::fleet::discover::Cluster;
use crate::folders;
use crate::options::MemberFlags;

const PAUSE: Duration = Duration::from_millis(300);
/// How long an etcd that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The machine that is to be a member.
pub struct Machine {
    pub data_dir: PathBuf,
    pub name: String,
    pub address: IpAddr,
    pub receiver: Receiver,
}

/// Fails where the folder is another cluster's, or this machine is another thing already.
pub fn check_folder(data_dir: &Path, ca: &str, receiver: Receiver) -> Result<()> {
    ensure!(
        !state::store_folder(data_dir).exists(),
        "{} holds a cluster of its own; give this server another folder with --data-dir, or remove the cluster with `ferry down --purge`",
        data_dir.display()
    );
    let own = std::fs::read_to_string(data_dir.join("pki/ca.crt")).unwrap_or_default();
    ensure!(
        own.is_empty() || own == ca,
        "{} holds the keys of another cluster; give this server another folder with --data-dir",
        data_dir.display()
    );
    if let Some(record) = Record::read(data_dir)? {
        let is = if record.witness { Receiver::Witness } else { Receiver::Server };
        ensure!(
            is == receiver,
            "{} is the folder of the {} {}; give another one with --data-dir",
            data_dir.display(),
            if record.witness { "witness" } else { "server" },
            record.name
        );
    }
    Ok(())
}

/// Gets what the cluster hands over, and checks that it is this cluster's.
pub async fn fetch(client: &kube::Client, cluster: &Cluster, token: &ServerToken) -> Result<Handover> {
    let handover = Handover::fetch(client, token).await?;
    let trusted = token.join.trusted_ca(handover.ca())?;
    ensure!(trusted == cluster.ca && trusted == handover.ca(), "what the cluster hands over is of another cluster");
    handover.settings.checked().context("the cluster's settings")?;
    Ok(handover)
}

/// Makes this machine a member of the cluster's etcd that does not vote yet; what was agreed is on disk at the end.
pub async fn enter(machine: &Machine, flags: &MemberFlags, handover: &Handover) -> Result<()> {
    match (machine.receiver, handover.receiver()) {
        (Receiver::Server, Receiver::Witness) => bail!("this token is for a witness; use it with `ferry witness join`"),
        (Receiver::Witness, Receiver::Server) => bail!(
            "this token hands over all keys of the cluster, and is for a server; make one with `ferry token create --witness`"
        ),
        (Receiver::Server, _) => witness::refuse_as_server(&machine.name)?,
        (Receiver::Witness, _) => {}
    }
    let data_dir = &machine.data_dir;
    folders::prepare(data_dir)?;
    let flags_of_server = handover.unpack(data_dir)?;
    let (name, address) = (machine.name.clone(), machine.address);
    let (client_port, peer_port) = (flags.etcd_client_port, flags.etcd_peer_port);
    let mut record = Record {
        name,
        address,
        client_port,
        peer_port,
        initial_cluster: Vec::new(),
        joined: true,
        endpoints: handover.endpoints.clone(),
        settings: Some(handover.settings.clone()),
        flags: Some(flags_of_server),
        restored: false,
        witness: machine.receiver == Receiver::Witness,
    };
    let members = record.others(data_dir)?;
    let before = take_part(&members, &record, record::data(data_dir).exists()).await?;
    record.initial_cluster = before.iter().flat_map(initial(&record)).collect();
    record.endpoints = before.iter().flat_map(|member| member.client_urls.clone()).collect();
    record.endpoints.push(url(address, client_port));
    record.endpoints.sort();
    record.endpoints.dedup();
    record.write(data_dir)
}

/// `name=url` of a member; one that never started has no name yet, and any will do.
fn initial(own: &Record) -> impl Fn(&Member) -> Vec<String> + '_ {
    move |member| {
        let is_own = member.peer_urls.contains(&own.peer_url());
        let name = match (is_own, member.name.is_empty()) {
            (true, _) => own.name.clone(),
            (false, true) => format!("member-{:x}", member.id),
            (false, false) => member.name.clone(),
        };
        member.peer_urls.iter().map(|url| format!("{name}={url}")).collect()
    }
}

/// Whether the cluster may answer otherwise in a moment.
fn is_passing(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_) | StoreError::Undecided(_))
}

/// Returns the members with this one among them. Others that join are waited for: etcd takes one at a time.
async fn take_part(members: &Members, own: &Record, has_data: bool) -> Result<Vec<Member>> {
    let mut told = false;
    let mut waiting = |why: StoreError| {
        if !std::mem::replace(&mut told, true) {
            println!("          waiting for the cluster to take another server: {why}");
        }
    };
    let mut away_since = None;
    loop {
        let there = match members.list().await {
            Ok(there) => there,
            // The member that was asked has lost sight of the others: one that was just promoted still starts, or one was killed.
            Err(error) if is_passing(&error) && away_since.get_or_insert_with(Instant::now).elapsed() < PATIENCE => {
                waiting(error);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error).context("the etcd of the cluster cannot be reached"),
        };
        away_since = None;
        let peer = own.peer_url();
        ensure!(
            !there.iter().any(|member| member.name == own.name && !member.peer_urls.contains(&peer)),
            "the cluster has a server called {} already; give this one another name with --node-name, or remove the other first (`ferry server remove {}`)",
            own.name,
            own.name
        );
        let known = there.iter().find(|member| member.peer_urls.contains(&peer));
        if let Some(other) = known.filter(|member| !member.name.is_empty() && member.name != own.name) {
            // Perhaps an address that several machines have, such as that of a virtual machine behind NAT.
            bail!(
                "{peer} is the address of the server {}; give this one its own with --node-ip, or remove the other first (`ferry server remove {}`)",
                other.name,
                other.name
            );
        }
        match known.map(|member| (member.id, member.name.is_empty())) {
            // Cut off before it ever started, or with its data still there: it goes on.
            Some((_, never_started)) if never_started || has_data => return Ok(there),
            // One whose data is lost has lost what it promised to others, too, and has to come anew.
            known => {
                let (outcome, failed) = match known {
                    Some((id, _)) => (members.remove(id).await, "cannot replace the member whose data is lost"),
                    None => (members.add_learner(&peer).await.map(drop), "the cluster cannot add another server"),
                };
                match outcome {
                    Ok(()) => {}
                    // Not yet, or nobody knows: another one joins, or the cluster is changing. The list tells next time.
                    Err(error) if is_passing(&error) => {
                        waiting(error);
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(error) => return Err(error).context(failed),
                }
            }
        }
    }
}

//! The third voice of a site with two servers: a machine that runs a member of the cluster's etcd and nothing else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ferry_server::certificate_rotation::Renewals;
use ferry_tasks::Tasks;

use super::handover::Receiver;
use super::join::{self, Machine};
use super::member::{self, Own};
use super::process;
use super::record::{self, Record};
use super::token::ServerToken;
use crate::fleet::discover;
use crate::fleet::join::{Hops, with_token};
use crate::options::MemberFlags;
use crate::signals;

const STOP_PATIENCE: Duration = Duration::from_secs(20);
/// Servers may join at the same time, one after the other.
const JOIN_PATIENCE: Duration = Duration::from_secs(300);
/// What its name begins with: etcd knows its members by their names, and by nothing else that they are.
const PREFIX: &str = "witness-";

pub const REMOVED: &str = "this witness was removed from the cluster; remove its data with `ferry witness leave`";

/// The name of the member on a machine.
pub fn name(machine: &str) -> Result<String> {
    let name = format!("{PREFIX}{machine}");
    let reasons = ferry_meta::names::dns1123_subdomain(&name);
    ensure!(reasons.is_empty(), "--node-name {machine:?} is not a valid machine name: {}", reasons.join("; "));
    Ok(name)
}

pub fn is_called_one(member: &str) -> bool {
    member.starts_with(PREFIX)
}

/// A server of such a name would be taken for a witness.
pub fn refuse_as_server(name: &str) -> Result<()> {
    ensure!(
        !is_called_one(name),
        "names with {PREFIX:?} in front are for witnesses; give this server another name with --node-name"
    );
    Ok(())
}

/// Makes this machine a member that does not vote yet.
pub async fn enter(machine: &Machine, address: &str, token: &str, flags: &MemberFlags) -> Result<()> {
    let token: ServerToken = token.parse()?;
    process::program(flags.etcd_binary.as_deref())?;
    let hops = Hops::new();
    let steps = async {
        let cluster = discover::discover(address, &token.join).await?;
        hops.done(&format!("found the cluster at {} and know it by its CA", cluster.server));
        join::check_folder(&machine.data_dir, &cluster.ca, Receiver::Witness)?;
        let handover = join::fetch(&with_token(&cluster, &token.join)?, &cluster, &token).await?;
        join::enter(machine, flags, &handover).await
    };
    let told = || format!("the cluster did not answer within {JOIN_PATIENCE:?}; the same command continues from there");
    signals::unless_told(async { tokio::time::timeout(JOIN_PATIENCE, steps).await.with_context(told)? }).await?;
    hops.done(&format!("{} is a member of the cluster's etcd that does not vote yet", machine.name));
    Ok(())
}

fn witness(data_dir: &Path) -> Result<Record> {
    Record::read(data_dir)?.filter(|record| record.witness).with_context(|| {
        format!("{} is not the folder of a witness; make it one with `ferry witness join`", data_dir.display())
    })
}

/// Runs the member until this process is told to stop, or the servers took the witness out.
pub async fn serve(data_dir: &Path, run_dir: &Path, etcd_binary: Option<PathBuf>, quota: Option<u64>) -> Result<()> {
    let record = witness(data_dir)?;
    let tasks = Tasks::new("witness");
    let renewals = Renewals::new(record::authority(data_dir)?);
    let own = Own { data_dir, run_dir, etcd_binary: etcd_binary.as_deref(), quota };
    let work = async {
        let started = member::start_member(record, &own, &renewals, &tasks).await?;
        renewals.start(&tasks);
        println!("the witness votes");
        if started.removed.await.is_ok() {
            bail!(REMOVED);
        }
        // Its group stops, and this process is told.
        std::future::pending::<Result<()>>().await
    };
    let outcome = tokio::select! {
        failed = work => failed,
        told = signals::wait() => told,
    };
    tasks.stop(STOP_PATIENCE).await;
    outcome
}

/// Takes the witness out of the cluster, and removes what it has of it.
pub async fn leave(data_dir: &Path, run_dir: &Path) -> Result<()> {
    let record = witness(data_dir)?;
    process::end_left(data_dir, run_dir)?;
    let others = record.others(data_dir)?;
    let members = others.list().await.context(
        "the cluster's etcd does not answer; if the cluster is gone for good, delete the witness's data with `ferry down --purge`",
    )?;
    if let Some(own) = members.iter().find(|member| member.peer_urls.contains(&record.peer_url())) {
        others.remove(own.id).await.context("cannot remove the witness now")?;
    }
    for folder in [record::data(data_dir), data_dir.join("pki")] {
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
    }
    // Last: a command that was cut off can be given again.
    std::fs::remove_file(record::path(data_dir)).context("cannot remove server.json")?;
    println!("{} left the cluster", record.name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_is_known_by_its_name_and_no_server_has_one_like_it() {
        assert!(is_called_one(&name("three").unwrap()) && !is_called_one("three"));
        assert!(refuse_as_server("three").is_ok() && refuse_as_server("witness-three").is_err());
        let error = name("Third_Machine").unwrap_err().to_string();
        assert!(error.contains("--node-name"), "{error}");
    }
}

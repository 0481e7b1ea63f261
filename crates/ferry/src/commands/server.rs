//! `ferry server`: the servers of a cluster, by their etcd members.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ferry_cluster::quorum::record::{self, Record};
use ferry_cluster::quorum::{recover, witness};
use ferry_store::StoreError;
use ferry_store::etcd::api::rpc::{Member, StatusResponse};
use ferry_store::etcd::{Members, member_status, snapshot};

use crate::arguments::{ServerCommand, ServerCommandOptions};

/// What etcd says while it does not see enough members for a change.
const UNHEALTHY: &str = "unhealthy cluster";
const NO_SPACE: &str = "database space exceeded";
const NO_QUORUM: &str = "most servers are away";
/// So slow that clients notice.
const SLOW: Duration = Duration::from_millis(150);
const REMOVE_PATIENCE: Duration = Duration::from_secs(15);

pub fn run(options: &ServerCommandOptions) -> Result<()> {
    let data_dir = std::path::absolute(&options.data_dir)?;
    let known = Record::must_read(&data_dir)?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let members = Members::new(&known.options(&data_dir)?)?;
        match &options.command {
            ServerCommand::Recover { run_dir, etcd_binary } => {
                let run_dir = std::path::absolute(run_dir)?;
                recover::from_last_server(&data_dir, &run_dir, etcd_binary.as_deref()).await?;
                println!(
                    "this server is the only one of the cluster; start it with `ferry up`. The others must not come back as they \
                     were: remove their data with `ferry down --purge`, and let them join again"
                );
                Ok(())
            }
            ServerCommand::Defragment => defragment(&members, &record::client_tls(&data_dir)?).await,
            ServerCommand::List => list(&members, &record::client_tls(&data_dir)?).await,
            ServerCommand::Remove { name } => {
                let member = find(&members, name).await?;
                refuse_last(&members.list().await?, &member)?;
                remove(&members, member.id).await.with_context(|| format!("the server {name} cannot be removed"))?;
                println!(
                    "removed the server {name}: it stops by itself where it runs; remove its data there with `ferry down --purge`, \
                     and its node with `ferry node remove {name}`"
                );
                Ok(())
            }
            ServerCommand::Promote { name } => {
                let member = find(&members, name).await?;
                if !member.is_learner {
                    println!("the server {name} votes already");
                    return Ok(());
                }
                members.promote(member.id).await.with_context(|| format!("the server {name} cannot be promoted"))?;
                println!("the server {name} votes now");
                Ok(())
            }
        }
    })
}

/// One after the other, the one that leads last: a member answers nothing meanwhile, and the others must be enough.
async fn defragment(members: &Members, tls: &ferry_store::EtcdTls) -> Result<()> {
    let mut all = Vec::new();
    for member in members.list().await.context("the cluster's etcd does not answer")? {
        let Some(url) = member.client_urls.first().cloned() else { continue };
        let status = member_status(&url, Some(tls)).await;
        let before =
            status.with_context(|| format!("{} does not answer; with one server away none is touched", member.name))?;
        all.push((before.leader == member.id, member, url, before.db_size));
    }
    all.sort_by_key(|(leads, ..)| *leads);
    for (_, member, url, before) in &all {
        snapshot::defragment(url, Some(tls)).await.with_context(|| format!("{} is not defragmented", member.name))?;
        let after =
            member_status(url, Some(tls)).await.with_context(|| format!("{} does not come back", member.name))?;
        println!("{}: {:.1} MB, now {:.1} MB", member.name, *before as f64 / 1e6, after.db_size as f64 / 1e6);
    }
    for (id, alarm) in members.alarms().await? {
        if alarm == "NOSPACE" {
            members.disarm(id).await.context("the alarm cannot be taken back")?;
            println!("took back the alarm that etcd is full");
        }
    }
    Ok(())
}

async fn find(members: &Members, name: &str) -> Result<Member> {
    let all = members.list().await.context("the cluster's etcd does not answer")?;
    match all.iter().find(|member| member.name == name || format!("{:x}", member.id) == name) {
        Some(member) => Ok(member.clone()),
        None => {
            let known: Vec<&str> = all.iter().map(|member| member.name.as_str()).collect();
            bail!("there is no server {name}; there are {}", known.join(", "))
        }
    }
}

/// etcd is asked again for a while where it counts a server as away: one that just came is for its first seconds.
async fn remove(members: &Members, id: u64) -> Result<()> {
    let begin = Instant::now();
    loop {
        match members.remove(id).await {
            Err(StoreError::Unavailable(why)) if why.contains(UNHEALTHY) && begin.elapsed() < REMOVE_PATIENCE => {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            done => return Ok(done?),
        }
    }
}

/// etcd would take itself apart.
fn refuse_last(all: &[Member], member: &Member) -> Result<()> {
    let voters = all.iter().filter(|other| !other.is_learner).count();
    ensure!(
        member.is_learner || voters > 1,
        "{} is the only server that votes; without it there is no cluster",
        member.name
    );
    Ok(())
}

async fn list(members: &Members, tls: &ferry_store::EtcdTls) -> Result<()> {
    let quorum = members.list().await;
    let has_quorum = quorum.is_ok();
    // Without a quorum a member still tells what it knows.
    let all = match quorum {
        Ok(all) => all,
        Err(_) => members.known().await.context("the cluster's etcd does not answer")?,
    };
    let alarms = members.alarms().await;
    println!("{:<20} {:<32} {:<9} {:<9} {:>9}  STATE", "NAME", "ADDRESS", "ROLE", "ETCD", "SIZE");
    for member in all {
        let status = match member.client_urls.first() {
            Some(url) => member_status(url, Some(tls)).await.map_err(|error| error.to_string()),
            None => Err("it has not started yet".to_owned()),
        };
        // Without a name it never started; its number names it.
        let name = if member.name.is_empty() { format!("{:x}", member.id) } else { member.name.clone() };
        let address = member.peer_urls.first().map_or("", |url| url.trim_start_matches("https://"));
        let raised = alarms.iter().flatten().filter(|(id, _)| *id == member.id).map(|(_, alarm)| alarm.as_str());
        let (version, size) = match &status {
            Ok(status) => (status.version.clone(), format!("{:.1} MB", status.db_size as f64 / 1e6)),
            Err(_) => ("-".into(), "-".into()),
        };
        let state = state(&status, &raised.collect::<Vec<_>>());
        println!("{name:<20} {address:<32} {:<9} {version:<9} {size:>9}  {state}", role(&member, status.as_ref().ok()));
    }
    let writes = if has_quorum { members.write_time().await } else { Err(StoreError::Unavailable(NO_QUORUM.into())) };
    if let Some(problem) = write_problem(&writes) {
        println!("\n{problem}");
    }
    Ok(())
}

/// What holds up every write of the cluster, if anything does.
fn write_problem(writes: &Result<Duration, StoreError>) -> Option<String> {
    match writes {
        Err(StoreError::Unavailable(why)) if why.contains(NO_SPACE) => Some(
            "etcd is full and takes no writes: delete what is not needed, wait for the next compaction (five minutes), then \
             `ferry server defragment`"
                .into(),
        ),
        Err(error) => Some(format!(
            "no write is possible now: {error}. Start the servers that are away; where most are lost for good, `ferry server recover` \
             on one that is left"
        )),
        Ok(taken) if *taken >= SLOW => Some(format!(
            "a write takes {} ms: the disks of most servers are slow, or busy with something else (etcd expects 10 ms)",
            taken.as_millis()
        )),
        Ok(_) => None,
    }
}

fn role(member: &Member, status: Option<&StatusResponse>) -> &'static str {
    match status {
        _ if member.is_learner => "learner",
        _ if witness::is_called_one(&member.name) => "witness",
        Some(status) if status.leader == member.id => "leader",
        _ => "follower",
    }
}

fn state(status: &Result<StatusResponse, String>, alarms: &[&str]) -> String {
    match status {
        Err(why) => format!("unreachable: {why}"),
        Ok(_) if !alarms.is_empty() => format!("alarm: {}", alarms.join(", ")),
        Ok(status) if status.leader == 0 => "without a leader".into(),
        Ok(status) if !status.errors.is_empty() => status.errors.join(", "),
        Ok(_) => "healthy".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_up_writes_is_said_with_what_to_do() {
        let unavailable = |why: &str| Err(StoreError::Unavailable(why.to_owned()));
        for (writes, expected) in [
            (unavailable("etcdserver: mvcc: database space exceeded"), "ferry server defragment"),
            (unavailable(NO_QUORUM), "ferry server recover"),
            (Ok(Duration::from_millis(230)), "230 ms"),
        ] {
            let said = write_problem(&writes).unwrap_or_default();
            assert!(said.contains(expected), "{said}");
        }
        assert_eq!(write_problem(&Ok(Duration::from_millis(12))), None);
    }
}

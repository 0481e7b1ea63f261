//! `ferry node simulate`: nodes without containers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferry_cluster::{kubeconfig, labels, log, signals};
use ferry_simulator::{Config, Timing};
use ferry_tasks::Tasks;

use crate::arguments::SimulateOptions;

const STOP_PATIENCE: Duration = Duration::from_secs(5);

pub fn run(options: &SimulateOptions) -> Result<()> {
    let config = check(options)?;
    log::start();
    // One thread carries ten thousand nodes, and leaves the other cores to what is measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = kubeconfig::client(options.kubeconfig.as_deref(), "kubelet").await?;
        let tasks = Tasks::new("simulator");
        let count = config.nodes;
        let simulation = ferry_simulator::start(config, client, &tasks);
        tokio::select! {
            () = simulation.registered() => println!("{count} nodes are registered"),
            stopped = signals::wait() => return stopped,
        }
        signals::wait().await?;
        tasks.stop(STOP_PATIENCE).await;
        Ok(())
    })
}

fn check(options: &SimulateOptions) -> Result<Config> {
    let known = Config::default();
    ensure!(
        options.name_prefix.chars().next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
            && options.name_prefix.len() <= 50
            && options.name_prefix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
        "--name-prefix {:?} cannot begin a node's name: lower-case letters, digits and dashes, 50 at most",
        options.name_prefix
    );
    let mut capacity = known.capacity;
    capacity.extend(labels::pairs("capacity", &options.capacity)?);
    Ok(Config {
        nodes: options.nodes,
        name_prefix: options.name_prefix.clone(),
        zones: options.zones,
        labels: labels::pairs("label", &options.label)?,
        taints: options.taint.iter().map(|text| labels::taint("taint", text)).collect::<Result<_>>()?,
        capacity,
        first_address: options.first_address,
        timing: Timing {
            start: duration("start-delay", &options.start_delay)?,
            ready: duration("ready-delay", &options.ready_delay)?,
            stop: duration("stop-delay", &options.stop_delay)?,
        },
        lease_period: duration("lease-period", &options.lease_period)?,
        ..known
    })
}

fn duration(flag: &str, text: &str) -> Result<Duration> {
    ferry_simulator::duration(text)
        .with_context(|| format!("--{flag} {text:?} is not a duration; use the form 200ms, 3s or 2m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_and_pairs_are_read() {
        let read = labels::taint("taint", "a/b=c:NoExecute").unwrap();
        assert_eq!((read.key.as_str(), read.value.as_deref(), read.effect.as_str()), ("a/b", Some("c"), "NoExecute"));
        assert_eq!(labels::taint("taint", "key:NoSchedule").unwrap().value, None);
        assert!(
            labels::taint("taint", "key").is_err()
                && labels::taint("taint", "=v:NoSchedule").is_err()
                && labels::taint("taint", "k=v:Never").is_err()
        );
        assert!(labels::pairs("label", &["x".into()]).unwrap_err().to_string().contains("--label"));
    }
}

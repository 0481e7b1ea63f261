//! A server with an etcd member of its own: several of them are a control plane that lives while most of them do.
//!
//! The first is made by `ferry up --cluster-init`, the others join it with a token for servers. Each keeps in its data folder
//! which member it is; from then on `ferry run` starts that member first.

pub mod flags;
pub mod handover;
pub mod join;
pub mod member;
pub mod process;
pub mod record;
pub mod recover;
pub mod token;
pub mod witness;

pub use record::Record;

use std::path::Path;

use anyhow::{Result, ensure};

use crate::command_line::CommandLine;
use crate::fleet::settings::Settings;
use crate::options::ClusterOptions;

/// The options, with what is the same on all servers of the cluster: a server that joined has that from there. Fails where the
/// command line says something else.
pub fn with_known_settings(options: &ClusterOptions, line: &CommandLine) -> Result<ClusterOptions> {
    let mut options = options.clone();
    let data_dir = std::path::absolute(&options.node.folders.data_dir)?;
    let record = Record::read(&data_dir)?;
    let given = flags::given_to_server(line)?;
    if let Some(record) = &record {
        if let (true, Some(known)) = (record.joined, &record.flags) {
            flags::check_same(&given, known)?;
        }
        if record.joined || record.restored {
            options.server = flags::options(&record.flags_with(given))?;
        }
    }
    if let Some(Record { settings: Some(settings), .. }) = record {
        check_settings(&line.given(&SETTINGS.map(str::to_owned)), &settings, &data_dir)?;
        options.cluster_cidr = settings.cluster_cidr;
        options.service_cluster_ip_range = settings.service_cidr;
        options.cluster_domain = settings.cluster_domain;
        if let Some(network) = settings.network {
            options.pod_network = network.mode.parse()?;
            options.dns_port = network.dns_port;
            options.pause_image = network.pause_image;
            options.load_balancer_range = network.load_balancer_range.as_deref().map(str::parse).transpose()?;
        }
    }
    Ok(options)
}

/// Flags that a cluster keeps as they were when it was made.
const SETTINGS: [&str; 7] = [
    "cluster-cidr",
    "service-cluster-ip-range",
    "cluster-domain",
    "pod-network",
    "dns-port",
    "load-balancer-range",
    "pause-image",
];

fn check_settings(given: &flags::Flags, settings: &Settings, data_dir: &Path) -> Result<()> {
    let network = settings.network.as_ref();
    for (flag, values) in given {
        let known = match flag.as_str() {
            "cluster-cidr" => Some(settings.cluster_cidr.clone()),
            "service-cluster-ip-range" => Some(settings.service_cidr.clone()),
            "cluster-domain" => Some(settings.cluster_domain.clone()),
            "pod-network" => network.map(|network| network.mode.clone()),
            "dns-port" => network.map(|network| network.dns_port.to_string()),
            "load-balancer-range" => {
                network.map(|network| network.load_balancer_range.clone().unwrap_or_else(|| "none".to_owned()))
            }
            _ => network.map(|network| network.pause_image.clone()),
        };
        let Some(known) = known else { continue };
        ensure!(
            values.last() == Some(&known),
            "--{flag} of the cluster in {} is {known}, on all of its servers, and cannot be changed",
            data_dir.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_cluster_stay() {
        let settings = Settings {
            cluster_cidr: "10.244.0.0/16".into(),
            service_cidr: "10.96.0.0/16".into(),
            cluster_domain: "cluster.local".into(),
            cluster_dns: "10.96.0.10".into(),
            network: None,
        };
        let check = |flag: &str, value: &str| {
            check_settings(&[(flag.to_owned(), vec![value.to_owned()])].into(), &settings, Path::new("/data"))
        };
        check("cluster-cidr", "10.244.0.0/16").unwrap();
        let error = check("service-cluster-ip-range", "10.97.0.0/16").unwrap_err().to_string();
        assert!(error.contains("--service-cluster-ip-range of the cluster in /data is 10.96.0.0/16"), "{error}");
        // Nothing of Ferry's is known of it.
        check("dns-port", "1").unwrap();
    }
}

//! The file of `ferry cluster create --config`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

pub const API_VERSION: &str = "ferry.dev/v1alpha1";
pub const KIND: &str = "Cluster";

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    pub servers: Vec<MachineFile>,
    #[serde(default)]
    pub nodes: Vec<MachineFile>,
    /// By registry: whom to ask first.
    #[serde(default)]
    pub registry_mirrors: BTreeMap<String, String>,
    #[serde(default)]
    pub networking: Networking,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Networking {
    pub pod_network: Option<String>,
    pub pod_subnet: Option<String>,
    pub service_subnet: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MachineFile {
    pub labels: BTreeMap<String, String>,
    /// `key=value:Effect`.
    pub taints: Vec<String>,
    pub port_mappings: Vec<PortMapping>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    #[serde(rename = "UDP")]
    Udp,
}

/// A port of the host that leads to one of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PortMapping {
    pub host_port: u16,
    pub port: u16,
    #[serde(default)]
    pub protocol: Protocol,
    /// All of the host's addresses when not given.
    #[serde(default)]
    pub host_address: Option<Ipv4Addr>,
}

impl File {
    /// So many servers and nodes without anything special.
    pub fn plain(servers: usize, nodes: usize) -> Self {
        let machines = |count| vec![MachineFile::default(); count];
        Self { servers: machines(servers), nodes: machines(nodes), ..Self::default() }
    }

    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("--config: cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("--config {}", path.display()))
    }

    fn parse(text: &[u8]) -> Result<Self> {
        let (value, duplicates) = ferry_schema::yaml::parse_value(text).map_err(|error| anyhow!("{error}"))?;
        if let Some(twice) = duplicates.first() {
            return Err(anyhow!("{twice}"));
        }
        let file: Self = serde_json::from_value(value)?;
        ensure!(
            file.api_version == API_VERSION && file.kind == KIND,
            "apiVersion must be {API_VERSION} and kind {KIND}, not {:?} and {:?}",
            file.api_version,
            file.kind
        );
        for machine in file.servers.iter().chain(&file.nodes) {
            for mapping in &machine.port_mappings {
                ensure!(mapping.host_port != 0 && mapping.port != 0, "a mapped port must be 1 to 65535");
            }
            for taint in &machine.taints {
                crate::labels::taint("taints", taint)?;
            }
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_strictly() {
        let text = "
apiVersion: ferry.dev/v1alpha1
kind: Cluster
servers: [{portMappings: [{hostPort: 8080, port: 30080}]}]
nodes:
- {labels: {disk: ssd}, taints: ['dedicated=db:NoSchedule']}
- {}
registryMirrors: {docker.io: 'http://127.0.0.1:5000'}
networking: {podNetwork: vxlan}
";
        let file = File::parse(text.as_bytes()).unwrap();
        assert_eq!((file.servers.len(), file.nodes.len()), (1, 2));
        assert_eq!(file.nodes[0].labels["disk"], "ssd");
        assert_eq!(file.servers[0].port_mappings[0].protocol, Protocol::Tcp);
        let head = "apiVersion: ferry.dev/v1alpha1\nkind: Cluster\n";
        for (bad, expected) in [
            ("kind: Cluster\n".to_owned(), "apiVersion"),
            ("apiVersion: v1\nkind: Cluster\n".into(), "must be ferry.dev/v1alpha1"),
            (format!("{head}node: []\n"), "unknown field `node`"),
            (format!("{head}nodes: [{{taints: [x]}}]\n"), "taints"),
            (format!("{head}nodes: [{{portMappings: [{{hostPort: 0, port: 1}}]}}]\n"), "1 to 65535"),
            (format!("{head}nodes: [{{portMappings: [{{hostPort: 70000, port: 1}}]}}]\n"), "70000"),
            (format!("{head}kind: Cluster\n"), "kind"),
            ("- a".into(), "invalid length"),
        ] {
            let message = format!("{:#}", File::parse(bad.as_bytes()).unwrap_err());
            assert!(message.contains(expected), "{bad}: {message}");
        }
    }
}

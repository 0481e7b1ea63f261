//! A request of the CNI protocol, and the configuration that comes with it.

use std::net::IpAddr;
use std::path::PathBuf;

use ferry_semantics::cidr;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::BridgeError;

/// What a runtime asks for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `ADD`, `DEL`, `CHECK`, `GC` or `STATUS`.
    pub command: String,
    pub container_id: String,
    pub namespace: PathBuf,
    pub interface: String,
    /// `K8S_POD_NAMESPACE=…;K8S_POD_NAME=…` and others.
    pub arguments: String,
    pub configuration: Value,
}

impl Request {
    /// `namespace/name` of the pod, as people know it.
    pub(crate) fn pod(&self) -> String {
        let of = |key: &str| {
            let mut pairs = self.arguments.split(';').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).map_or("", |(_, value)| value)
        };
        format!("{}/{}", of("K8S_POD_NAMESPACE"), of("K8S_POD_NAME"))
    }
}

/// The network of a node, as its configuration file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    pub bridge: String,
    /// The largest packet of pods; 0 leaves it to the kernel.
    #[serde(default)]
    pub mtu: u32,
    /// The node's ranges of pod addresses: one of each family at most.
    pub ranges: Vec<String>,
    /// Where is kept who has which address.
    pub state: PathBuf,
    /// The program that writes packet rules.
    pub nft: PathBuf,
}

impl Settings {
    pub(crate) fn networks(&self) -> Result<Vec<IpNet>, BridgeError> {
        let wrong = || BridgeError::Configuration(format!("ranges {:?}: one of each family at most", self.ranges));
        let parsed: Option<Vec<IpNet>> =
            self.ranges.iter().map(|text| cidr::parse(text).map(|net| net.trunc())).collect();
        let networks = parsed.ok_or_else(wrong)?;
        let fits = match networks.as_slice() {
            [_] => true,
            [one, other] => one.addr().is_ipv4() != other.addr().is_ipv4(),
            _ => false,
        };
        // A gateway, a pod, and what IPv4 sets aside.
        let roomy = networks.iter().all(|network| cidr::size(network) >= 4);
        if fits && roomy { Ok(networks) } else { Err(wrong()) }
    }
}

/// The address of the bridge in a range: its first.
pub(crate) fn gateway(network: &IpNet) -> Option<IpAddr> {
    cidr::nth(network, 1)
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Configuration {
    #[serde(flatten)]
    pub(crate) settings: Settings,
    #[serde(default)]
    pub(crate) runtime_config: RuntimeConfig,
    #[serde(default)]
    pub(crate) prev_result: Option<Value>,
    #[serde(default, rename = "cni.dev/valid-attachments")]
    pub(crate) valid_attachments: Vec<Attachment>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Attachment {
    #[serde(rename = "containerID")]
    pub(crate) container_id: String,
    pub(crate) ifname: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RuntimeConfig {
    pub(crate) port_mappings: Vec<HostPort>,
    pub(crate) bandwidth: Bandwidth,
}

/// containerd writes these names, and those of `Bandwidth`, in Go's way: with a capital first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostPort {
    #[serde(alias = "HostPort")]
    pub(crate) host_port: u16,
    #[serde(alias = "ContainerPort")]
    pub(crate) container_port: u16,
    #[serde(default, alias = "Protocol")]
    pub(crate) protocol: String,
    /// Empty: all addresses of the node; `0.0.0.0` or `::`: all of one family.
    #[serde(default, rename = "hostIP", alias = "HostIP")]
    pub(crate) host_ip: String,
}

/// Bits a second; 0 is without bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Bandwidth {
    #[serde(alias = "IngressRate")]
    pub(crate) ingress_rate: u64,
    #[serde(alias = "EgressRate")]
    pub(crate) egress_rate: u64,
}

impl Configuration {
    pub(crate) fn read(value: &Value) -> Result<Self, BridgeError> {
        let read: Self =
            serde_json::from_value(value.clone()).map_err(|error| BridgeError::Configuration(error.to_string()))?;
        for port in &read.runtime_config.port_mappings {
            let known = matches!(port.protocol(), "tcp" | "udp" | "sctp");
            if !known || (!port.host_ip.is_empty() && port.host_ip.parse::<IpAddr>().is_err()) {
                return Err(BridgeError::Configuration(format!("{port:?} is no port of the node")));
            }
        }
        Ok(read)
    }
}

impl HostPort {
    pub(crate) fn protocol(&self) -> &str {
        match self.protocol.as_str() {
            "" | "TCP" => "tcp",
            "UDP" => "udp",
            "SCTP" => "sctp",
            other => other,
        }
    }

    /// The one address of the node that it is bound to.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.host_ip.parse().ok().filter(|address: &IpAddr| !address.is_unspecified())
    }

    /// Whether it is served for addresses of that family.
    pub(crate) fn is_for(&self, family: &IpAddr) -> bool {
        let own: Option<IpAddr> = self.host_ip.parse().ok();
        own.is_none_or(|own| own.is_ipv4() == family.is_ipv4())
    }

    /// Whether both cannot be served on one node.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let apart = |one: IpAddr, other: IpAddr| {
            one.is_ipv4() != other.is_ipv4() || (one != other && !one.is_unspecified() && !other.is_unspecified())
        };
        let addresses = (self.host_ip.parse().ok(), other.host_ip.parse().ok());
        let is_apart = matches!(addresses, (Some(one), Some(other)) if apart(one, other));
        self.host_port == other.host_port && self.protocol() == other.protocol() && !is_apart
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_read_as_every_runtime_writes_them() {
        let plain = json!({
            "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1"}],
            "bandwidth": {"ingressRate": 1, "egressRate": 2},
        });
        let capital = json!({
            "portMappings": [{"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": "192.0.2.1"}],
            "bandwidth": {"IngressRate": 1, "IngressBurst": 1, "EgressRate": 2, "EgressBurst": 1},
        });
        let read = |value| serde_json::from_value::<RuntimeConfig>(value).expect("it is read");
        let (plain, capital) = (read(plain), read(capital));
        assert_eq!(plain.port_mappings, capital.port_mappings);
        assert_eq!(plain.bandwidth, capital.bandwidth);
        assert_eq!((plain.port_mappings[0].host_port, plain.bandwidth.egress_rate), (8080, 2));
    }
}

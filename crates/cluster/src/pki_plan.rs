//! Which certificates a cluster has, and for whom.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Result;
use ferry_server::pki::{Leaf, Pair, Use, write_private};
use serde_json::json;

use crate::config::{ClusterConfig, NodeConfig};
use crate::ranges::Ranges;

/// The API server's own certificate: every name and address it is reached by.
pub fn serving(host: &str, advertise: &[IpAddr], service_cidr: &Ranges, domain: &str) -> Leaf {
    let mut names: Vec<String> =
        ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned).to_vec();
    names.push(format!("kubernetes.default.svc.{domain}"));
    names.push(host.to_owned());
    let mut addresses = vec![Ipv4Addr::LOCALHOST.into()];
    addresses.extend(service_cidr.nth(1));
    let others: Vec<IpAddr> = advertise.iter().copied().filter(|address| !addresses.contains(address)).collect();
    addresses.extend(others);
    leaf("apiserver", "kube-apiserver", &[], Use::Server { names, addresses })
}

/// What the API server shows to kubelets when it forwards logs and exec. It has the rights that a kubelet asks for and no
/// others: whoever stands in for a kubelet gets nothing more by it.
pub fn kubelet_client() -> Leaf {
    leaf("apiserver-kubelet-client", ferry_auth::KUBELET_CLIENT, &[], Use::Client)
}

/// The kubelet's own certificate.
pub fn kubelet_serving(config: &NodeConfig) -> Leaf {
    let usage = Use::Server { names: vec![config.node_name.clone()], addresses: config.node_ips.clone() };
    leaf("kubelet", &format!("system:node:{}", config.node_name), &["system:nodes"], usage)
}

/// Who the cluster's administrator is.
pub fn administrator() -> Leaf {
    leaf("admin", "kubernetes-admin", &["system:masters"], Use::Person)
}

fn leaf(name: &str, common_name: &str, organizations: &[&str], usage: Use) -> Leaf {
    Leaf {
        name: name.to_owned(),
        common_name: common_name.to_owned(),
        organizations: organizations.iter().map(|o| (*o).to_owned()).collect(),
        usage,
    }
}

/// A kubeconfig for the cluster's administrator, readable by root alone.
pub fn write_kubeconfig(ca: &str, admin: &Pair, config: &ClusterConfig) -> Result<()> {
    use base64::Engine;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let address = if config.bind_address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { config.bind_address };
    let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "ferry", "cluster": {
            "server": format!("https://{host}:{}", config.secure_port),
            "certificate-authority-data": encode(ca),
        }}],
        "users": [{ "name": "ferry-admin", "user": {
            "client-certificate-data": encode(&admin.certificate),
            "client-key-data": encode(&admin.key),
        }}],
        "contexts": [{ "name": "ferry", "context": { "cluster": "ferry", "user": "ferry-admin" } }],
        "current-context": "ferry",
    });
    write_private(&config.kubeconfig(), &format!("{document:#}\n"))
}

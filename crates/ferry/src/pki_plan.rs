//! Which certificates a cluster has, and for whom.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::Result;
use serde_json::json;

use crate::certificate_rotation::Renewals;
use crate::config::{Cidr, ClusterConfig, NodeConfig};
use crate::pki::{Leaf, Pair, Pki, Use, write_private};
use crate::server_options::{AuthenticationOptions, OwnProxy};

/// The API server's own certificate: every name and address it is reached by.
pub fn serving(host: &str, advertise: IpAddr, service_cidr: Cidr, domain: &str) -> Leaf {
    let mut names: Vec<String> =
        ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned).to_vec();
    names.push(format!("kubernetes.default.svc.{domain}"));
    names.push(host.to_owned());
    let mut addresses = vec![Ipv4Addr::LOCALHOST.into(), service_cidr.address(1).into()];
    if !addresses.contains(&advertise) {
        addresses.push(advertise);
    }
    leaf("apiserver", "kube-apiserver", &[], Use::Server { names, addresses })
}

/// What the API server shows to kubelets when it forwards logs and exec. It has the rights that a kubelet asks for and no
/// others: whoever stands in for a kubelet gets nothing more by it.
pub fn kubelet_client() -> Leaf {
    leaf("apiserver-kubelet-client", ferry_auth::KUBELET_CLIENT, &[], Use::Client)
}

/// What the API server shows to servers behind it, and how those know it.
pub struct FrontProxy {
    pub identity: ferry_apiserver::FrontProxy,
    pub known_by: OwnProxy,
}

const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// The administrator's certificate, or one that a CA of its own signs: whoever holds any other certificate of the cluster
/// cannot speak for others. Either is renewed while the process runs.
pub fn front_proxy(pki: &Pki, options: &AuthenticationOptions, renewals: &Renewals) -> Result<FrontProxy> {
    if let (Some(certificate), Some(key)) = (&options.proxy_client_cert_file, &options.proxy_client_key_file) {
        let current = renewals.files(certificate.clone(), key.clone())?;
        return Ok(FrontProxy { identity: ferry_apiserver::FrontProxy(current), known_by: OwnProxy::default() });
    }
    let own = Arc::new(pki.below("front-proxy")?);
    let known_by = OwnProxy { ca: own.ca_certificate().to_owned(), name: FRONT_PROXY_CLIENT.to_owned() };
    let current = renewals.leaf_of(own, leaf("client", FRONT_PROXY_CLIENT, &[], Use::Client))?;
    Ok(FrontProxy { identity: ferry_apiserver::FrontProxy(current), known_by })
}

/// The kubelet's own certificate.
pub fn kubelet_serving(config: &NodeConfig) -> Leaf {
    let usage = Use::Server { names: vec![config.node_name.clone()], addresses: vec![config.node_ip] };
    leaf("kubelet", &format!("system:node:{}", config.node_name), &["system:nodes"], usage)
}

/// Who the cluster's administrator is.
pub fn administrator() -> Leaf {
    leaf("admin", "kubernetes-admin", &["system:masters"], Use::Client)
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

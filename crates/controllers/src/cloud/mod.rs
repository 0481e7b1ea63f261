//! What a cloud does for a cluster, behind one interface: load balancers, addresses of nodes, routes. The built-in
//! provider has no cloud: it gives LoadBalancer Services the addresses of the nodes themselves.

pub(crate) mod service;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, NodeAddress, Service};

/// A provider of what lies outside the cluster. Calls must not block; what takes long answers `Pending`.
pub trait Provider: Send + Sync {
    fn name(&self) -> &str;

    /// Makes the Service reachable through these nodes, or tells where it is reachable already.
    fn ensure_load_balancer(&self, service: &Service, nodes: &[Arc<Node>]) -> Result<Ensured, String>;

    /// Takes away what `ensure_load_balancer` made; called until it succeeds.
    fn delete_load_balancer(&self, service: &Service) -> Result<(), String>;

    /// Addresses the provider knows of a node, beyond those the kubelet tells. None leaves them as they are.
    fn node_addresses(&self, _node: &Node) -> Option<Vec<NodeAddress>> {
        None
    }

    /// Sends what is for a node's pods to the node. True when the network needs no route for it.
    fn ensure_route(&self, _node: &Node, _pod_cidr: &str) -> Result<bool, String> {
        Ok(true)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ensured {
    Ready(Vec<LoadBalancerIngress>),
    /// Ask again.
    Pending,
}

/// The provider of a cluster without a cloud.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local;

impl Provider for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn ensure_load_balancer(&self, service: &Service, nodes: &[Arc<Node>]) -> Result<Ensured, String> {
        let families: Vec<&str> =
            service.spec.iter().flat_map(|spec| spec.ip_families.iter().flatten()).map(String::as_str).collect();
        let fits = |address: &str| {
            let family = if address.contains(':') { "IPv6" } else { "IPv4" };
            families.is_empty() || families.contains(&family)
        };
        let of = |node: &Node, kind: &str| {
            let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
            let chosen = addresses.filter(|known| known.type_ == kind && fits(&known.address));
            chosen.map(|known| known.address.clone()).collect::<Vec<_>>()
        };
        let mut found: Vec<String> = nodes
            .iter()
            .flat_map(|node| {
                let outside = of(node, "ExternalIP");
                if outside.is_empty() { of(node, "InternalIP") } else { outside }
            })
            .collect();
        found.sort();
        found.dedup();
        let ingress =
            |ip| LoadBalancerIngress { ip: Some(ip), ip_mode: Some("VIP".into()), ..LoadBalancerIngress::default() };
        Ok(Ensured::Ready(found.into_iter().map(ingress).collect()))
    }

    fn delete_load_balancer(&self, _service: &Service) -> Result<(), String> {
        Ok(())
    }
}

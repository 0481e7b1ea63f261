//! What a cloud does for a cluster, behind one interface: load balancers, addresses of nodes, routes. The built-in
//! provider has no cloud: it gives LoadBalancer Services the addresses of the nodes themselves, or those of a pool.

pub(crate) mod address_pool;
pub(crate) mod instance;
pub(crate) mod lifecycle;
pub(crate) mod pool;
pub(crate) mod ports;
pub(crate) mod route;
pub(crate) mod service;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, NodeAddress, Service};

pub use address_pool::{AddressPool, AddressPoolError};
pub use pool::Pool;

/// A provider of what lies outside the cluster. Calls must not block; what takes long answers `Pending`.
pub trait Provider: Send + Sync {
    fn name(&self) -> &str;

    /// Makes the Service reachable through these nodes, or tells where it is reachable already. `services` are all of the
    /// cluster, for providers whose addresses several Services share.
    fn ensure_load_balancer(
        &self,
        service: &Service,
        nodes: &[Arc<Node>],
        services: &[Arc<Service>],
    ) -> Result<Ensured, String>;

    /// Takes away what `ensure_load_balancer` made; called until it succeeds.
    fn delete_load_balancer(&self, service: &Service) -> Result<(), String>;

    /// What became of the machine that a node is. Without a cloud it is always there, and nothing more is known of it.
    fn instance(&self, _node: &Node) -> Result<Instance, String> {
        Ok(Instance::Running(Machine::default()))
    }

    /// Whether pods are only reached through routes that the provider makes.
    fn has_routes(&self) -> bool {
        false
    }

    /// Sends what is for a range of pods to the node.
    fn ensure_route(&self, _node: &str, _pod_cidr: &str) -> Result<(), String> {
        Ok(())
    }

    /// Takes away what `ensure_route` made.
    fn delete_route(&self, _node: &str, _pod_cidr: &str) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Instance {
    Running(Machine),
    /// It is there, and switched off.
    Stopped,
    /// There is none any more: its node goes too.
    Gone,
}

/// What a provider tells of a machine; what it leaves out stays as the kubelet has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    pub provider_id: Option<String>,
    pub instance_type: Option<String>,
    pub zone: Option<String>,
    pub region: Option<String>,
    pub addresses: Option<Vec<NodeAddress>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ensured {
    Ready(Vec<LoadBalancerIngress>),
    /// Reachable there alone, or nowhere, until something else changes; `why` is for its owner.
    Limited {
        ingress: Vec<LoadBalancerIngress>,
        /// Of the Event.
        reason: &'static str,
        why: String,
    },
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

    fn ensure_load_balancer(
        &self,
        service: &Service,
        nodes: &[Arc<Node>],
        services: &[Arc<Service>],
    ) -> Result<Ensured, String> {
        let (nodes, reasons) = ports::divide(service, nodes, services);
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
        let ingress = found.into_iter().map(ingress).collect();
        Ok(match reasons.is_empty() {
            true => Ensured::Ready(ingress),
            false => Ensured::Limited { ingress, reason: "PortNotAvailable", why: ports::sentence(reasons) },
        })
    }

    fn delete_load_balancer(&self, _service: &Service) -> Result<(), String> {
        Ok(())
    }
}

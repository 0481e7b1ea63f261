//! The loop that keeps the kernel as planned: it looks again when a node's addresses or ranges change, and when somebody
//! changes links, addresses or routes of this machine.

use std::net::IpAddr;
use std::time::Duration;

use ferry_client::{Informer, Informers};
use ferry_semantics::backoff::Backoff;
use ferry_tasks::Tasks;
use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use k8s_openapi::api::core::v1::Node;
use rtnetlink::packet_core::NetlinkMessage;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::SocketAddr;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::sync::Notify;

use crate::plan::{Member, Plan, plan};
use crate::wireguard::{self, PrivateKey};
use crate::{Kernel, Mode, NetworkError, node};

/// What changed together is looked at together.
const GATHER: Duration = Duration::from_millis(20);
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LAST: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    /// The address by which others know this node; the device that has it carries the packets.
    pub node_ip: IpAddr,
    pub mode: Mode,
    /// The name of the VXLAN device, at most 15 characters.
    pub device: String,
    /// The same of WireGuard's.
    pub wireguard_device: String,
    /// This node's key, where the mode is WireGuard.
    pub private_key: Option<PrivateKey>,
}

type Messages = UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>;

/// Keeps the routes to other nodes until the group stops; what is there then stays, for the pods go on.
pub fn start(config: Config, informers: &Informers, tasks: &Tasks) -> Result<(), NetworkError> {
    let groups = [
        MulticastGroup::Link,
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv6Route,
    ];
    let (connection, handle, messages) = new_multicast_connection(&groups).map_err(NetworkError::Socket)?;
    let tasks = tasks.child("network");
    tasks.spawn_critical_once("netlink", connection);
    let kernel = Kernel::new(handle, &config.device);
    let nodes = informers.of::<Node>();
    let changed = std::sync::Arc::new(Notify::new());
    let wake = changed.clone();
    nodes.on_change(move |change| {
        let is_news = match change.old() {
            Some(old) => {
                node::member(old) != node::member(change.object()) || matches!(change, ferry_client::Change::Deleted(_))
            }
            None => true,
        };
        if is_news {
            wake.notify_one();
        }
    });
    let wireguard = config.private_key.clone().map(|key| wireguard::Device::new(&config.wireguard_device, key, &tasks));
    tasks.spawn_critical_once("routes", run(Network { config, kernel, wireguard }, nodes, changed, messages));
    Ok(())
}

struct Network {
    config: Config,
    kernel: Kernel,
    wireguard: Option<wireguard::Device>,
}

async fn run(mut network: Network, nodes: Informer<Node>, changed: std::sync::Arc<Notify>, mut messages: Messages) {
    nodes.synced().await;
    let mut told = Vec::new();
    let mut pause = Backoff::new(RETRY_FIRST, RETRY_LAST);
    loop {
        match network.look(&nodes).await {
            Ok((plan, changes)) => {
                pause.reset();
                if changes > 0 {
                    tracing::info!(
                        changes,
                        routes = plan.routes.len(),
                        "the network between nodes was brought up to date"
                    );
                }
                if plan.unreachable != told {
                    for (node, reason) in &plan.unreachable {
                        tracing::warn!(node, "pods of another node cannot be reached: {reason}");
                    }
                    told = plan.unreachable;
                }
            }
            Err(error) => {
                tracing::warn!("the network between nodes is not as it should be: {error}");
                tokio::time::sleep(pause.next_delay()).await;
                continue;
            }
        }
        tokio::select! {
            () = changed.notified() => {}
            message = messages.next() => if message.is_none() { return },
        }
        tokio::time::sleep(GATHER).await;
        // What this loop itself changed is told to it, too; the next look finds nothing to do.
        while messages.try_recv().is_ok() {}
    }
}

impl Network {
    async fn look(&mut self, nodes: &Informer<Node>) -> Result<(Plan, usize), NetworkError> {
        let Self { config, kernel, .. } = self;
        let members: Vec<Member> = nodes.list().iter().map(|node| node::member(node)).collect();
        let Some(own) = members.iter().find(|member| member.name == config.node_name) else {
            return Ok((Plan::default(), 0));
        };
        // The address and the key that the node was started with count, whatever its object says yet.
        let mut own = own.clone();
        if !own.addresses.contains(&config.node_ip) {
            own.addresses.insert(0, config.node_ip);
        }
        own.public_key = config.private_key.as_ref().map(PrivateKey::public);
        let underlay = kernel.underlay(config.node_ip).await?;
        let plan = plan(config.mode, &own, &underlay, &members);
        let changes = self.apply(&plan).await?;
        Ok((plan, changes))
    }

    async fn apply(&mut self, plan: &Plan) -> Result<usize, NetworkError> {
        let (wireguard, changes) = match (&plan.wireguard, &mut self.wireguard) {
            (Some(wanted), Some(device)) => {
                let (index, changes) = device.ensure(&self.kernel, wanted).await?;
                (Some(index), changes)
            }
            // Left by a run with another mode.
            _ => (None, self.kernel.remove_link(&self.config.wireguard_device).await?),
        };
        Ok(changes + self.kernel.apply(plan, wireguard).await?)
    }
}

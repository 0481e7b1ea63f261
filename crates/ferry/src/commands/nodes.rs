//! `ferry node list`, `drain` and `remove`: the cluster's nodes, as an administrator sees them.

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};
use ferry_auth::REMOVED_NODES;
use ferry_client::{Api, write};
use ferry_cluster::fleet::drain::{Drain, cordon};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::commands::object;
use crate::fleet_options::{DrainOptions, NodeListOptions};

const LEASES: &str = "kube-node-lease";

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

pub fn list(options: &NodeListOptions) -> Result<()> {
    block_on(async {
        let client = object::client(options.kubeconfig.as_deref()).await?;
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.context("cannot list nodes")?;
        let leases = Api::<Lease>::namespaced(client, LEASES).list(&ListParams::default()).await;
        let leases = leases.context("cannot list the nodes' leases")?.items.into_iter();
        let beats: HashMap<String, Timestamp> =
            leases.filter_map(|lease| Some((lease.metadata.name?, lease.spec?.renew_time?.0))).collect();
        let mut rows = vec![["NAME", "STATUS", "ADDRESS", "PODS", "HEARTBEAT", "VERSION"].map(str::to_owned)];
        let now = Timestamp::now();
        rows.extend(nodes.items.iter().map(|node| row(node, &beats, now)));
        print!("{}", table(&rows));
        Ok(())
    })
}

fn row(node: &Node, beats: &HashMap<String, Timestamp>, now: Timestamp) -> [String; 6] {
    let name = node.metadata.name.clone().unwrap_or_default();
    let (spec, status) = (node.spec.clone().unwrap_or_default(), node.status.as_ref());
    let mut standing = if is_ready(node) { "Ready" } else { "NotReady" }.to_owned();
    if spec.unschedulable == Some(true) {
        standing.push_str(",SchedulingDisabled");
    }
    let addresses = status.and_then(|status| status.addresses.as_ref());
    let address = addresses.into_iter().flatten().find(|known| known.type_ == "InternalIP");
    let beat = beats.get(&name).map(|beat| format!("{} s ago", now.duration_since(*beat).as_secs().max(0)));
    let version = status.and_then(|status| status.node_info.as_ref()).map(|info| info.kubelet_version.clone());
    let shown = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
    let address = address.map(|known| known.address.clone());
    [name, standing, shown(address), shown(spec.pod_cidr), shown(beat), shown(version)]
}

/// Columns as wide as what is in them.
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
            format!("{cell:<width$}")
        });
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    text
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

impl DrainOptions {
    fn drain(&self) -> Drain {
        Drain {
            force: self.force,
            delete_emptydir_data: self.delete_emptydir_data,
            grace_period: u32::try_from(self.grace_period).ok(),
            timeout: (!self.timeout.is_zero()).then_some(self.timeout),
        }
    }
}

pub fn drain(options: &DrainOptions) -> Result<()> {
    block_on(async {
        let client = object::client(options.kubeconfig.as_deref()).await?;
        cordon(&client, &options.node).await?;
        options.drain().run(&client, &options.node).await?;
        println!("drained {}", options.node);
        Ok(())
    })
}

pub fn remove(options: &DrainOptions) -> Result<()> {
    block_on(async {
        let client = object::client(options.kubeconfig.as_deref()).await?;
        let name = options.node.as_str();
        let nodes: Api<Node> = Api::all(client.clone());
        let node = nodes.get_opt(name).await.context("cannot read the node")?;
        let node = node.with_context(|| format!("the cluster has no node called {name}"))?;
        refuse_server(&client, &node).await?;
        if is_ready(&node) {
            cordon(&client, name).await?;
            options.drain().run(&client, name).await?;
            println!("drained {name}");
        } else {
            ensure!(
                options.force,
                "{name} is not Ready, so that nobody can see its pods end; they are made again elsewhere once it is removed. \
                 When its machine is certainly off, give --force"
            );
        }
        // Before the Node goes: a kubelet that runs would make it again.
        distrust(&client, name).await?;
        forget(nodes.delete(name, &DeleteParams::default()).await, "the Node")?;
        let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
        forget(leases.delete(name, &DeleteParams::default()).await, "its lease")?;
        withdraw_requests(client.clone(), name).await?;
        // What was signed meanwhile is refused, too.
        distrust(&client, name).await?;
        println!("removed {name}; its certificates are refused from now on");
        Ok(())
    })
}

fn forget(deleted: kube::Result<()>, what: &str) -> Result<()> {
    match deleted {
        Err(error) if !write::is_not_found(&error) => bail!("cannot delete {what}: {}", write::short(&error)),
        _ => Ok(()),
    }
}

/// A server's own node does not reach it by a certificate, and would come back at once.
async fn refuse_server(client: &Client, node: &Node) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let servers = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let slices = slices.list(&servers).await.context("cannot list the API servers")?.items;
    let servers = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).flat_map(|one| &one.addresses);
    let own = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let own: Vec<&str> = own.map(|known| known.address.as_str()).collect();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    for server in servers {
        ensure!(
            !own.contains(&server.as_str()),
            "{name} is the node of an API server ({server}); stop that with `ferry down` there"
        );
    }
    Ok(())
}

/// Certificates that the node has are refused from now on; `ferry join` gets newer ones.
async fn distrust(client: &Client, name: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), REMOVED_NODES.0);
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let failed = || format!("cannot write that the certificates of {name} are refused");
    let change = Patch::Merge(json!({ "data": { name: now } }));
    match maps.patch(REMOVED_NODES.1, &PatchParams::default(), &change).await {
        Err(error) if write::is_not_found(&error) => {}
        written => return written.map(|_| ()).with_context(failed),
    }
    let first = ConfigMap {
        metadata: ObjectMeta { name: Some(REMOVED_NODES.1.to_owned()), ..ObjectMeta::default() },
        data: Some([(name.to_owned(), now)].into()),
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &first).await.map(|_| ()).with_context(failed)
}

/// What the node asked for and did not get yet it does not get any more.
async fn withdraw_requests(client: Client, name: &str) -> Result<()> {
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let (kubelet, all) = (format!("system:node:{name}"), ListParams::default());
    for request in requests.list(&all).await.context("cannot list certificate requests")?.items {
        if request.spec.username.as_deref() == Some(&kubelet) {
            let name = request.metadata.name.unwrap_or_default();
            forget(requests.delete(&name, &DeleteParams::default()).await, "a certificate request of the node")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_shown_in_columns() {
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "a" },
            "spec": { "podCIDR": "10.244.1.0/24", "unschedulable": true },
            "status": {
                "addresses": [{ "type": "Hostname", "address": "a" }, { "type": "InternalIP", "address": "192.0.2.1" }],
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        }))
        .unwrap();
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        let beats = HashMap::from([("a".to_owned(), "2026-01-01T00:00:07Z".parse().unwrap())]);
        let known = row(&node, &beats, now);
        assert_eq!(known, ["a", "Ready,SchedulingDisabled", "192.0.2.1", "10.244.1.0/24", "3 s ago", "-"]);
        let unknown = row(&Node::default(), &beats, now);
        assert_eq!(unknown, ["", "NotReady", "-", "-", "-", "-"]);
        let text = table(&[["NAME", "X"].map(str::to_owned), ["longer", "y"].map(str::to_owned)]);
        assert_eq!(text, "NAME     X\nlonger   y\n");
    }
}

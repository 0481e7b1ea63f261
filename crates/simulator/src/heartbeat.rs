//! Signs of life of all nodes by one task: leases in five bursts over their period, full statuses every ten minutes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{Api, Informer, write};
use ferry_tasks::Tasks;
use futures::{StreamExt, stream};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::IgnoredAny;
use serde_json::json;

use crate::{Config, nodes};

const NAMESPACE: &str = "kube-node-lease";
const DURATION_SECONDS: i32 = 40;
/// Into so many parts a period is cut, one batch of nodes for each.
const SLOTS: usize = 5;
/// Each write waits for the disk, and many wait for it together.
const AT_ONCE: usize = 256;
const STATUS_PERIOD: Duration = Duration::from_secs(600);

pub(crate) fn start(config: &Arc<Config>, client: &Client, nodes: &Informer<Node>, tasks: &Tasks) {
    let (config, client, nodes) = (config.clone(), client.clone(), nodes.clone());
    tasks.spawn_critical("simulated-leases", move || {
        let (config, client, nodes) = (config.clone(), client.clone(), nodes.clone());
        async move {
            nodes.synced().await;
            beat(&config, &client, &nodes).await;
        }
    });
}

async fn beat(config: &Config, client: &Client, nodes: &Informer<Node>) {
    let period = config.lease_period.max(Duration::from_secs(1));
    let mut ticks = tokio::time::interval(period / u32::try_from(SLOTS).unwrap_or(1));
    // Late ticks are made up for: a node whose turn was skipped would be taken for dead.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let rounds = usize::try_from(STATUS_PERIOD.as_secs() / period.as_secs().max(1)).unwrap_or(1).max(1);
    let mut held: HashSet<String> = HashSet::new();
    for tick in 0_usize.. {
        ticks.tick().await;
        let (slot, round) = (tick % SLOTS, tick / SLOTS);
        let due: Vec<(String, Option<Arc<Node>>)> = (slot..config.nodes)
            .step_by(SLOTS)
            .map(|number| format!("{}{number}", config.name_prefix))
            .map(|name| (name.clone(), nodes.get("", &name).filter(|node| !nodes::is_silent(node))))
            .collect();
        let renewed: Vec<(String, bool)> = stream::iter(due)
            .map(|(name, node)| {
                let known = held.contains(&name);
                async move {
                    let Some(node) = node else { return (name, false) };
                    let ours = renew(client, &node, known).await;
                    if round > 0 && (nodes::number(config, &name) / SLOTS + round).is_multiple_of(rounds) {
                        let _ = nodes::report(client, config, &name).await;
                    }
                    (name, ours)
                }
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (name, ours) in renewed {
            if ours {
                held.insert(name)
            } else {
                held.remove(&name)
            };
        }
    }
}

/// True when the lease is there and renewed.
async fn renew(client: &Client, node: &Node, known: bool) -> bool {
    let name = node.name_any();
    let result = if known { patch(client, &name).await } else { take(client, node).await };
    match result {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(node = name, "the lease: {}", write::short(&error));
            // A server that is away for a moment is no reason to look at the lease anew.
            known && !write::is_not_found(&error)
        }
    }
}

async fn take(client: &Client, node: &Node) -> Result<(), kube::Error> {
    let name = node.name_any();
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.clone(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.clone()),
            lease_duration_seconds: Some(DURATION_SECONDS),
            renew_time: Some(MicroTime(jiff::Timestamp::now())),
            ..LeaseSpec::default()
        }),
    };
    let api: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    match api.create(&PostParams::default(), &lease).await {
        Err(error) if write::is_already_exists(&error) => patch(client, &name).await,
        other => other.map(|_| ()),
    }
}

async fn patch(client: &Client, name: &str) -> Result<(), kube::Error> {
    let change = json!({ "spec": {
        "holderIdentity": name,
        "leaseDurationSeconds": DURATION_SECONDS,
        "renewTime": MicroTime(jiff::Timestamp::now()),
    } });
    let request = kube::core::Request::new(Lease::url_path(&(), Some(NAMESPACE)))
        .patch(name, &PatchParams::default(), &Patch::Merge(change))
        .map_err(kube::Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await.map(|_| ())
}

//! For `make bench`: how long very many NetworkPolicies take to be in force in the network namespace that this is run in, and
//! a change of one pod among them. Lines of JSON.
//!
//! `policies BRIDGE PODS-OF-THIS-NODE [PODS] [POLICIES]`

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_client::Informer;
use ferry_policy::{Bridge, Sources, StoredPolicy, gate, start};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde_json::{from_value, json};

const NAMESPACES: usize = 100;
const CHANGES: usize = 200;
const PATIENCE: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bridge, rest @ ..] = arguments.as_slice() else { return Err("the first argument is a bridge".into()) };
    let number = |place: usize, usual: usize| rest.get(place).map_or(Ok(usual), |text| text.parse());
    let (here, pods, policies) = (number(0, 110)?, number(1, 10_000)?, number(2, 10_000)?);
    let sources = Sources {
        pods: Informer::detached(),
        namespaces: Informer::detached(),
        policies: Informer::detached(),
        nodes: Informer::detached(),
        cluster_policies: Informer::detached(),
    };
    for number in 0..NAMESPACES {
        let namespace = json!({ "metadata": { "name": space(number), "labels": { "team": format!("t{number}") } } });
        sources.namespaces.apply(from_value::<Namespace>(namespace)?);
    }
    for number in 0..pods {
        sources.pods.apply(pod(number, if number < here { "here" } else { "elsewhere" })?);
    }
    for number in 0..policies {
        sources.policies.apply(policy(number)?);
    }
    let before = resident();
    let tasks = Tasks::new("policies");
    let (passage, newcomers) = gate();
    sources.pods.mark_synced();
    sources.namespaces.mark_synced();
    sources.policies.mark_synced();
    sources.nodes.mark_synced();
    sources.cluster_policies.mark_synced();
    let begin = Instant::now();
    let attached = Bridge { name: bridge.clone(), broadcasts: Vec::new() };
    let running =
        start("here", "ferry-bench-policies", attached, vec!["nft".into()], sources.clone(), newcomers, &tasks);
    tokio::time::timeout(PATIENCE, running.ready()).await?;
    let loaded = begin.elapsed().as_secs_f64();
    println!(
        r#"{{"what":"{policies} policies and {pods} pods in force, {here} on this node","seconds":{loaded:.2},"rss_mb":{:.0}}}"#,
        resident() - before
    );
    let mut times = Vec::new();
    for change in 0..CHANGES {
        // A pod that a policy selects, and that another one names as a peer.
        let new = Arc::new(pod(pods + change, "here")?);
        let begin = Instant::now();
        passage.pass(new, vec![address(pods + change)]).await?;
        times.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!(
        r#"{{"what":"a new pod's policies in force, {here} on this node","p50_ms":{:.2},"p99_ms":{:.2}}}"#,
        at(50),
        at(99)
    );
    tasks.stop(Duration::from_secs(5)).await;
    Ok(())
}

fn space(number: usize) -> String {
    format!("space-{}", number % NAMESPACES)
}

/// Several pods of a namespace are of one application.
fn application(number: usize) -> String {
    format!("app-{}", number / NAMESPACES % 100)
}

fn address(number: usize) -> IpAddr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 64, 0, 0).to_bits() + u32::try_from(number).unwrap_or_default()).into()
}

fn pod(number: usize, node: &str) -> Result<Pod, serde_json::Error> {
    from_value(json!({
        "metadata": {
            "name": format!("pod-{number}"), "namespace": space(number), "uid": format!("uid-{number}"),
            "labels": { "app": application(number) },
        },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
        "status": { "phase": "Running", "podIP": address(number), "podIPs": [{ "ip": address(number) }] },
    }))
}

/// Each selects the pods of one application and lets in those of another one, and those of a whole namespace.
fn policy(number: usize) -> Result<StoredPolicy, serde_json::Error> {
    let peers = json!([
        { "podSelector": { "matchLabels": { "app": application(number + NAMESPACES) } } },
        { "namespaceSelector": { "matchLabels": { "team": format!("t{}", (number + 1) % NAMESPACES) } } },
    ]);
    let policy = json!({
        "metadata": { "name": format!("policy-{number}"), "namespace": space(number) },
        "spec": {
            "podSelector": { "matchLabels": { "app": application(number) } }, "policyTypes": ["Ingress"],
            "ingress": [{ "from": peers, "ports": [{ "port": 80 }] }],
        },
    });
    from_value(policy).map(StoredPolicy)
}

/// Of this process, in megabytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1024.0
}

//! Reads what is around a node: its lease, what it asks to have signed, whether its kubelet answers.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::object;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Error};
use crate::world::World;

/// A node that is cut off answers nobody; waiting longer does not help.
const PATIENCE: Duration = Duration::from_secs(3);
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const REMOVED: &str = "/api/v1/namespaces/kube-system/configmaps/ferry-removed-nodes";

/// What is put into the world under these names.
pub(crate) const LEASE: &str = "leases";
pub(crate) const CERTIFICATES: &str = "certificatesigningrequests";
/// One object with `answers`, and what came instead of an answer.
pub(crate) const KUBELET: &str = "kubelet";
/// The times at which nodes were removed, by name.
pub(crate) const REMOVALS: &str = "removals";

pub(crate) async fn add(cluster: &Cluster, world: &mut World) {
    let name = object::name(&world.target).to_owned();
    let (lease, probe) = (format!("{LEASES}/{name}"), format!("/api/v1/nodes/{name}/proxy/healthz"));
    let (lease, answer, requests) = futures::join!(
        cluster.get(&lease),
        tokio::time::timeout(PATIENCE, cluster.text(&probe)),
        requests(cluster, &name)
    );
    if let Ok(Some(lease)) = lease {
        world.put(LEASE, vec![lease]);
    }
    match answer {
        Ok(Ok(_)) => world.put(KUBELET, vec![json!({ "answers": true })]),
        // Who may not ask does not know.
        Ok(Err(Error::Refused { code: 401 | 403, .. })) => {}
        Ok(Err(error)) => world.put(KUBELET, vec![json!({ "answers": false, "why": error.to_string() })]),
        Err(_) => world.put(KUBELET, vec![json!({ "answers": false, "why": "no answer within 3 s" })]),
    }
    match requests {
        Ok(requests) => world.put(CERTIFICATES, requests),
        Err(error) => world.unseen.push(format!("{CERTIFICATES}: {error}")),
    }
}

/// A node that is not there (yet), but of which there are traces.
pub(crate) async fn joining(cluster: &Cluster, name: &str) -> Option<World> {
    let target = json!({ "kind": "Node", "metadata": { "name": name } });
    let mut world = World::new(target, Timestamp::now());
    let (requests, removed) = futures::join!(requests(cluster, name), cluster.get(REMOVED));
    world.put(CERTIFICATES, requests.ok()?);
    if let Ok(Some(map)) = removed {
        world.put(REMOVALS, vec![map["data"].clone()]);
    }
    let was_removed = world.all(REMOVALS).iter().any(|times| times.get(name).is_some());
    (was_removed || !world.all(CERTIFICATES).is_empty()).then_some(world)
}

/// What this node, or a machine that wants to become it, asks to have signed.
async fn requests(cluster: &Cluster, name: &str) -> Result<Vec<Value>, Error> {
    let wanted = format!("system:node:{name}");
    let mut all = cluster.list(REQUESTS).await?;
    all.retain(|request| {
        object::text(request, "/spec/username") == wanted || common_name(request) == Some(wanted.clone())
    });
    Ok(all)
}

fn common_name(request: &Value) -> Option<String> {
    let pem = STANDARD.decode(object::text(request, "/spec/request")).ok()?;
    ferry_x509::Request::from_pem(&pem).ok()?.common_name().ok().map(str::to_owned)
}

//! Traffic policies that keep packets on the node where they come in: nodes without an endpoint answer nobody.

use std::collections::BTreeSet;

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, in_namespace, named, slices};
use crate::world::{World, is_true, title};

/// The policies that a Service has, each with who is meant by it.
const POLICIES: [(&str, &str); 2] = [
    ("internalTrafficPolicy", "pods"),
    ("externalTrafficPolicy", "clients from outside that come by the address of a node or a load balancer"),
];

/// Nodes without a ready endpoint, where a policy is `Local`: as somebody wants it, and worth knowing.
pub(super) fn traffic(world: &World, service: &Value) -> Option<Finding> {
    let (field, who) = POLICIES
        .into_iter()
        .find(|(field, _)| service.pointer(&format!("/spec/{field}")).and_then(Value::as_str) == Some("Local"))?;
    let ready = |endpoint: &&Value| endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false);
    let with: BTreeSet<&str> = slices::of(world, service)
        .flat_map(|slice| object::items(slice, "/endpoints"))
        .filter(ready)
        .map(|endpoint| object::text(endpoint, "/nodeName"))
        .collect();
    let nodes = world.seen("nodes")?.iter().filter(|node| is_true(node, "Ready"));
    let without: Vec<&str> = nodes.map(object::name).filter(|node| !with.contains(node)).collect();
    if without.is_empty() || with.is_empty() {
        return None;
    }
    let cause =
        format!("{who} at {} get no answer: its {field} is Local, and no ready pod of it is there", named(&without));
    Some(
        Finding::new(Reason::LocalTraffic, service, cause)
            .note()
            .detail(format!("ready pods of it are on {}", named(&with.into_iter().collect::<Vec<_>>())))
            .advise(format!(
                "if all nodes are to answer: kubectl patch {}{} --type=merge -p '{{\"spec\":{{\"{field}\":\"Cluster\"}}}}'",
                in_namespace(service),
                title(service)
            )),
    )
}

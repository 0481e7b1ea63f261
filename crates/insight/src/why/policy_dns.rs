//! Policies for what pods may reach that leave out DNS: names do not resolve, and everything else seems to be broken.

use ferry_meta::object;
use serde_json::Value;

use super::network_policy::{has_type, selects};
use super::{Finding, Reason, in_namespace};
use crate::gather::DNS_SLICES;
use crate::world::World;

const DNS: i64 = 53;

/// A policy lets the pods that it selects reach something, and no policy of any of them lets it ask DNS.
pub(super) fn forgotten(world: &World, policy: &Value) -> Option<Finding> {
    let rules = object::items(policy, "/spec/egress");
    // Where DNS answers on the nodes, no policy keeps a pod from it: its own node it always reaches.
    let mut answers = world.all(DNS_SLICES).iter().flat_map(|slice| object::items(slice, "/endpoints"));
    let by_pods = answers.any(|endpoint| object::text(endpoint, "/targetRef/kind") == "Pod");
    if !has_type(policy, "Egress") || rules.is_empty() || !by_pods {
        return None;
    }
    let policies = world.seen("networkpolicies")?;
    let asks_by_name =
        |pod: &&Value| object::text(pod, "/spec/dnsPolicy") != "None" && pod["spec"]["hostNetwork"] != true;
    let pods = world.seen("pods")?.iter().filter(|pod| selects(policy, pod) && asks_by_name(pod));
    let cut_off = |pod: &&Value| {
        let about = policies.iter().filter(|one| has_type(one, "Egress") && selects(one, pod));
        !about.flat_map(|one| object::items(one, "/spec/egress")).any(allows)
    };
    let pod = pods.into_iter().find(cut_off)?;
    let cause = format!(
        "pods that it selects, as {}, cannot ask DNS: no egress rule of any NetworkPolicy of theirs allows port {DNS}",
        object::name(pod)
    );
    let rule = r#"{to: [{namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dns}}}], ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]}"#;
    Some(
        Finding::new(Reason::PolicyDns, policy, cause)
            .note()
            .detail("who connects by addresses alone does not need it")
            .advise(format!(
                "if they are to ask by name, add a rule under spec.egress: {rule}: kubectl edit {}networkpolicy/{}",
                in_namespace(policy),
                object::name(policy)
            )),
    )
}

/// Whether a rule may be about DNS: whom it is for is not looked at, since DNS may run anywhere.
fn allows(rule: &Value) -> bool {
    let ports = object::items(rule, "/ports");
    ports.is_empty()
        || ports.iter().any(|port| match port.get("port") {
            None => true,
            // Ports by name are those of the pods behind; `dns` is what theirs are called.
            Some(Value::String(name)) => name.contains("dns"),
            Some(number) => {
                let first = number.as_i64().unwrap_or(0);
                let last = port.get("endPort").and_then(Value::as_i64).unwrap_or(first);
                // Pods are asked at the port of the container, where a Service changes it.
                (first..=last).contains(&DNS) || matches!(first, 5353 | 1053)
            }
        })
}

//! Services that are another name for something: an ExternalName must be a name, and one of the cluster must be there.

use std::net::IpAddr;

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, in_namespace};
use crate::gather::{BEHIND, BEHIND_SLICES};
use crate::surroundings::UNLISTED;
use crate::world::{World, title};

/// The namespace and name of the Service that an externalName of this cluster means: `db.prod.svc.cluster.local`.
pub(crate) fn meant(service: &Value) -> Option<(&str, &str)> {
    if object::text(service, "/spec/type") != "ExternalName" {
        return None;
    }
    let name = object::text(service, "/spec/externalName").trim_end_matches('.');
    let mut parts = name.splitn(4, '.');
    let (name, namespace, kind) = (parts.next()?, parts.next()?, parts.next()?);
    // Which domain is the cluster's own is not known here; this is what clusters are set up with.
    let domain = parts.next().unwrap_or("cluster.local");
    (kind == "svc" && domain == "cluster.local").then_some((namespace, name))
}

pub(super) fn finding(world: &World, service: &Value) -> Option<Finding> {
    let name = object::text(service, "/spec/externalName");
    let edit = format!("kubectl edit {}{}", in_namespace(service), title(service));
    let finding = |cause: String| Finding::new(Reason::ExternalNameAddress, service, cause);
    if name.trim_end_matches('.').parse::<IpAddr>().is_ok() {
        let cause =
            format!("its externalName {name} is an address: DNS answers with a name (CNAME), and an address is none");
        return Some(
            finding(cause)
                .advise(format!("put a name there: {edit}"))
                .advise("or make it a Service without selector, and an EndpointSlice with that address"),
        );
    }
    if name.is_empty() {
        return Some(finding("its type is ExternalName, and externalName is empty".into()).advise(edit));
    }
    if let Some(short) = short(world, service, name) {
        return Some(short);
    }
    let (namespace, other) = meant(service)?;
    if (namespace, other) == (object::namespace(service), object::name(service)) {
        let cause =
            format!("its externalName {name} is its own name: DNS answers with itself, and never with an address");
        let finding = Finding::new(Reason::ExternalNameLoop, service, cause);
        return Some(finding.advise(format!("put the name of what is meant there: {edit}")));
    }
    let is_it = |item: &&Value| object::name(item) == other && object::namespace(item) == namespace;
    let found = world.seen(BEHIND)?.iter().find(is_it)?;
    if found["absent"] == true {
        let cause = format!(
            "its externalName {name} means the Service {other:?} of namespace {namespace}, which does not exist"
        );
        return Some(
            Finding::new(Reason::ExternalNameMissing, service, cause)
                .advise(format!("see which there are: kubectl get services -n {namespace}"))
                .advise(format!("create it, or correct externalName: {edit}")),
        );
    }
    let ready = |endpoint: &Value| endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false);
    let serves = |slice: &Value| object::items(slice, "/endpoints").iter().any(ready);
    let dark = found[UNLISTED] != true && !world.all(BEHIND_SLICES).iter().any(serves);
    let leads_on = object::text(found, "/spec/type") == "ExternalName";
    (dark && !leads_on).then(|| {
        let cause = format!(
            "its externalName {name} means the Service {other:?} of namespace {namespace}, which has no ready endpoint"
        );
        Finding::new(Reason::ExternalNameMissing, service, cause)
            .advise(format!("ferry why -n {namespace} service/{other}"))
    })
}

/// DNS takes what externalName says as it is: it does not look for it in the namespace, as it does for what a pod asks.
fn short(world: &World, service: &Value, name: &str) -> Option<Finding> {
    let name = name.trim_end_matches('.');
    if name.contains('.') || name == "localhost" {
        return None;
    }
    let namespace = object::namespace(service);
    let cause = format!(
        "its externalName {name:?} is no whole name: DNS takes it as it is, and does not look for it in the namespace"
    );
    let finding = Finding::new(Reason::ExternalNameShort, service, cause);
    let is_it = |other: &&Value| object::name(other) == name && object::name(other) != object::name(service);
    Some(match world.all("services").iter().find(is_it) {
        Some(_) => finding.detail(format!("there is a Service {name} in namespace {namespace}")).advise(format!(
            "kubectl patch {}{} --type=merge -p '{{\"spec\":{{\"externalName\":\"{name}.{namespace}.svc.cluster.local\"}}}}'",
            in_namespace(service),
            title(service)
        )),
        None => finding
            .probably()
            .detail("a resolver outside of the cluster may know a name without a dot")
            .advise(format!("put the whole name there: kubectl edit {}{}", in_namespace(service), title(service))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_the_cluster_are_told_from_others() {
        for (name, want) in [
            ("db.prod.svc.cluster.local", Some(("prod", "db"))),
            ("db.prod.svc.cluster.local.", Some(("prod", "db"))),
            ("db.prod.svc", Some(("prod", "db"))),
            ("db.prod.svc.example.com", None),
            ("db.example.com", None),
            ("db", None),
            ("", None),
        ] {
            let service = json!({ "spec": { "type": "ExternalName", "externalName": name } });
            assert_eq!(meant(&service), want, "{name}");
        }
        assert_eq!(meant(&json!({ "spec": { "externalName": "db.prod.svc" } })), None);
    }
}

//! Ingresses that want the same requests: one of them gets them.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, in_namespace, ingress};
use crate::gather::ALL_INGRESSES;
use crate::world::{World, time_at};

/// What a path of an Ingress is for: host, path, kind of match.
fn paths(ingress: &Value) -> impl Iterator<Item = (&str, &str, &str)> {
    object::items(ingress, "/spec/rules").iter().flat_map(|rule| {
        let paths = object::items(rule, "/http/paths").iter();
        paths.map(move |path| {
            (object::text(rule, "/host"), object::text(path, "/path"), object::text(path, "/pathType"))
        })
    })
}

fn is_older(one: &Value, other: &Value) -> bool {
    let order = |item: &Value| {
        let made = time_at(item, "/metadata/creationTimestamp");
        (made, object::namespace(item).to_owned(), object::name(item).to_owned())
    };
    order(one) < order(other)
}

/// One that is there to take a share of another's requests.
fn is_canary(ingress: &Value) -> bool {
    object::annotations(ingress).iter().any(|(key, value)| key.ends_with("/canary") && value == "true")
}

/// An older Ingress of the same class has one of its paths.
pub(super) fn older(world: &World, ingress: &Value) -> Option<Finding> {
    if is_canary(ingress) {
        return None;
    }
    let class = ingress::class_name(ingress);
    let same = |other: &&Value| {
        let another = object::uid(other) != object::uid(ingress) && !is_canary(other);
        another && ingress::class_name(other) == class && is_older(other, ingress)
    };
    let rivals: Vec<&Value> = world.seen(ALL_INGRESSES)?.iter().filter(same).collect();
    let (path, other) = paths(ingress).find_map(|path| {
        let has = |other: &&&Value| paths(other).any(|taken| taken == path);
        rivals.iter().find(has).map(|other| (path, *other))
    })?;
    let (host, path, _) = path;
    let (place, name) = (object::namespace(other), object::name(other));
    let host = if host.is_empty() { "any host, " } else { host };
    let cause = format!(
        "requests for {host}{path} go to the Ingress {name} of namespace {place}, which is older and has the same path"
    );
    let finding = Finding::new(Reason::IngressTaken, ingress, cause);
    let finding = match ingress::is_ferrys(world, ingress) {
        true => finding,
        false => {
            finding.probably().detail("most controllers let the older one have it; what this one does cannot be seen")
        }
    };
    let edit = format!("kubectl edit {}ingress/{}", in_namespace(ingress), object::name(ingress));
    Some(
        finding
            .advise(format!("use another host or path: {edit}"))
            .advise(format!("or, if the other one is not needed: kubectl delete -n {place} ingress/{name}")),
    )
}

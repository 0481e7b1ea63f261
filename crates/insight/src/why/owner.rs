//! Objects whose owners are gone: the garbage collector takes them away.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, in_namespace, is_young, named};
use crate::named::{Found, Named};
use crate::world::{World, title};

/// The owners of an object, each with its uid.
pub(super) fn owners(target: &Value) -> Vec<(Named, &str)> {
    let read = |owner| {
        let version = object::text(owner, "/apiVersion");
        let named = Named {
            group: version.split_once('/').map(|(group, _)| group).unwrap_or_default().to_owned(),
            kind: object::text(owner, "/kind").to_owned(),
            namespace: object::namespace(target).to_owned(),
            name: object::text(owner, "/name").to_owned(),
        };
        (named, object::text(owner, "/uid"))
    };
    object::items(target, "/metadata/ownerReferences").iter().map(read).collect()
}

/// None of its owners is there: an object of the same name with another uid is another one.
pub(super) fn missing(world: &World, target: &Value) -> Option<Finding> {
    let owners = owners(target);
    let is_gone = |(owner, uid): &(Named, &str)| match owner.find(world) {
        Found::Absent => true,
        Found::There(found) => object::uid(found) != *uid,
        Found::Unserved | Found::Unknown => false,
    };
    if owners.is_empty() || !owners.iter().all(is_gone) {
        return None;
    }
    let titles: Vec<String> = owners.iter().map(|(owner, _)| owner.title()).collect();
    let another = owners.iter().any(|(owner, _)| matches!(owner.find(world), Found::There(_)));
    let cause = format!("the garbage collector deletes it: its owner {} does not exist", named(&titles));
    let finding = Finding::new(Reason::OwnerMissing, target, cause).underway_if(is_young(world, target));
    let finding = match another {
        true => {
            finding.detail("there is an object of that name, with another uid: it was made later, and is another one")
        }
        false => finding,
    };
    Some(finding.advise(format!(
        "if it is to stay, take metadata.ownerReferences away: kubectl patch {}{} --type=merge -p '{{\"metadata\":{{\"ownerReferences\":null}}}}'",
        in_namespace(target),
        title(target)
    )))
}

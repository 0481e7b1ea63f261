//! Objects of any kind that others name: sources of claims, backends of Ingresses, parameters of policies, owners.
//!
//! Only their metadata and status are kept: what is in them is not needed.

use std::collections::BTreeSet;

use ferry_meta::object;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Error};
use crate::resolve;
use crate::why;
use crate::world::{Content, Presence, World, word};

/// So many are asked for.
const MOST: usize = 16;

/// What is known of a kind, by `Kind.group`: absent where no server has it.
const KINDS: &str = "kinds that are named";
/// What is known of an object, by `Kind.group namespace/name`; those that are there are listed under it too.
const OBJECTS: &str = "objects that are named";

/// An object as another one names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    pub group: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

/// Whether it is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// No server of the cluster has the kind.
    Unserved,
    Absent,
    There(&'a Value),
    Unknown,
}

impl Named {
    /// `Kind.group`
    fn whole_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    fn key(&self) -> String {
        format!("{} {}/{}", self.whole_kind(), self.namespace, self.name)
    }

    /// As a command takes it.
    pub(crate) fn title(&self) -> String {
        word(&format!("{}/{}", self.whole_kind().to_lowercase(), self.name)).into_owned()
    }

    pub(crate) fn find<'a>(&self, world: &'a World) -> Found<'a> {
        if *world.presence(KINDS, &self.whole_kind()) == Presence::Absent {
            return Found::Unserved;
        }
        match world.presence(OBJECTS, &self.key()) {
            Presence::Absent => Found::Absent,
            Presence::Unknown => Found::Unknown,
            Presence::Present(_) => {
                let is_it = |item: &&Value| object::text(item, "/key") == self.key();
                world.all(OBJECTS).iter().find(is_it).map_or(Found::Unknown, Found::There)
            }
        }
    }
}

/// Reads what the target and what is around it name.
pub(crate) async fn add(cluster: &Cluster, world: &mut World) {
    let wanted: BTreeSet<Named> = why::named_by(world).into_iter().take(MOST).collect();
    if wanted.is_empty() {
        return;
    }
    let Ok(groups) = cluster.groups().await else { return };
    let groups = groups.as_slice();
    let asked = wanted.into_iter().map(|one| async move {
        let resource = resolve::find(groups, &one.whole_kind()).filter(|found| found.group == one.group);
        match resource {
            None => (one, None),
            Some(resource) => {
                let found = cluster.get(&resource.object(&one.namespace, &one.name)).await;
                (one, Some(found))
            }
        }
    });
    for (one, found) in join_all(asked).await {
        put(world, &one, found);
    }
}

/// `found`: None where the kind is not served.
pub(crate) fn put(world: &mut World, one: &Named, found: Option<Result<Option<Value>, Error>>) {
    match found {
        None => world.note(KINDS, &one.whole_kind(), Presence::Absent),
        Some(Ok(None)) => world.note(OBJECTS, &one.key(), Presence::Absent),
        Some(Err(_)) => {}
        Some(Ok(Some(item))) => {
            let kept = json!({
                "key": one.key(), "kind": one.kind, "status": item["status"],
                "metadata": { "name": one.name, "namespace": one.namespace, "uid": item["metadata"]["uid"] },
            });
            let all = world.all(OBJECTS).iter().cloned().chain([kept]).collect();
            world.put(OBJECTS, all);
            world.note(OBJECTS, &one.key(), Presence::Present(Content::default()));
        }
    }
}

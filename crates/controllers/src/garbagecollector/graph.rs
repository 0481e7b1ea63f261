//! Who owns whom, as far as the watches have told.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ferry_client::discovery::ServerResource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// What the graph knows of an object.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) resource: Arc<ServerResource>,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) deleting: bool,
    /// Its deletion waits for dependents that block it.
    pub(super) foreground: bool,
    /// Its dependents are to be left alone.
    pub(super) orphan: bool,
}

impl Node {
    pub(super) fn new(resource: &Arc<ServerResource>, meta: &ObjectMeta) -> Self {
        let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|known| known == finalizer);
        let deleting = meta.deletion_timestamp.is_some();
        Self {
            resource: resource.clone(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting,
            foreground: deleting && has(FOREGROUND),
            orphan: deleting && has(ORPHAN),
        }
    }
}

impl Node {
    /// Whether this is what a reference of an object in that namespace means, which it has the uid of.
    pub(super) fn is(&self, reference: &OwnerReference, namespace: &str) -> bool {
        let resource = &self.resource.resource;
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        self.name == reference.name
            && (resource.kind == reference.kind && resource.group == group)
            && (self.namespace.is_empty() || self.namespace == namespace)
    }
}

#[derive(Default)]
pub(super) struct Graph {
    nodes: HashMap<String, Node>,
    /// By the uid of the owner, which need not be known itself.
    dependents: HashMap<String, HashSet<String>>,
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    pub(super) fn dependents(&self, uid: &str) -> Vec<String> {
        self.dependents.get(uid).map(|uids| uids.iter().cloned().collect()).unwrap_or_default()
    }

    /// Takes in a new state of an object and tells the uids of those to look at.
    pub(super) fn apply(&mut self, uid: &str, node: Node) -> Vec<String> {
        let mut affected = Vec::new();
        let old = self.nodes.remove(uid);
        let old_owners = old.as_ref().map(|old| old.owners.clone()).unwrap_or_default();
        if old_owners != node.owners {
            for owner in &old_owners {
                self.unlink(&owner.uid, uid);
            }
            for owner in &node.owners {
                self.dependents.entry(owner.uid.clone()).or_default().insert(uid.to_owned());
            }
            // An owner that waits may wait no longer; an owner that nobody has seen, or seen elsewhere, may not exist.
            affected.extend(self.waiting_among(&old_owners));
            let may_be_absent = |owner: &OwnerReference| match self.nodes.get(&owner.uid) {
                Some(known) => known.foreground || !known.is(owner, &node.namespace),
                None => true,
            };
            if node.owners.iter().any(may_be_absent) {
                affected.push(uid.to_owned());
            }
        }
        let started = |now: bool, before: Option<bool>| now && before != Some(true);
        if started(node.foreground, old.as_ref().map(|old| old.foreground)) {
            affected.extend(self.dependents(uid));
            affected.push(uid.to_owned());
        }
        if started(node.orphan, old.as_ref().map(|old| old.orphan)) {
            affected.push(uid.to_owned());
        }
        self.nodes.insert(uid.to_owned(), node);
        affected
    }

    /// The object is gone.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<String> {
        let mut affected = self.dependents(uid);
        if let Some(node) = self.nodes.remove(uid) {
            for owner in &node.owners {
                self.unlink(&owner.uid, uid);
            }
            affected.extend(self.waiting_among(&node.owners));
        }
        affected
    }

    /// Objects with an owner that the graph does not know: to be looked at once all watches have told what exists.
    pub(super) fn delete_candidates(&self) -> Vec<String> {
        let is_known = |node: &Node, owner: &OwnerReference| {
            self.nodes.get(&owner.uid).is_some_and(|known| known.is(owner, &node.namespace))
        };
        let unknown = |node: &Node| node.owners.iter().any(|owner| !is_known(node, owner));
        let waits = |node: &Node| node.foreground || node.orphan;
        let candidates = self.nodes.iter().filter(|(_, node)| unknown(node) || waits(node));
        candidates.map(|(uid, _)| uid.clone()).collect()
    }

    fn waiting_among(&self, owners: &[OwnerReference]) -> Vec<String> {
        let waits = |owner: &&OwnerReference| self.nodes.get(&owner.uid).is_some_and(|node| node.foreground);
        owners.iter().filter(waits).map(|owner| owner.uid.clone()).collect()
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(uids) = self.dependents.get_mut(owner) {
            uids.remove(dependent);
            if uids.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}

//! Which addresses each selector of the policies in force stands for, kept as pods and namespaces change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

use crate::compile::Selector;
use crate::pods;
use crate::policy::{Namespaces, Pods};
use crate::table::{Element, Table};

pub(crate) type Uid = Arc<str>;

/// A pod that others may be allowed to talk to, and the addresses it has; none while it has none.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) pod: Arc<Pod>,
    pub(crate) namespace: Arc<str>,
    pub(crate) addresses: Vec<IpAddr>,
}

#[derive(Debug, Default)]
pub(crate) struct Members {
    all: HashMap<Uid, Member>,
    by_namespace: HashMap<Arc<str>, BTreeSet<Uid>>,
    /// Labels by name.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    nodes: BTreeMap<Uid, NodeMember>,
}

/// A node that pods may be allowed to talk to.
#[derive(Debug, PartialEq, Eq)]
struct NodeMember {
    labels: BTreeMap<String, String>,
    addresses: Vec<IpAddr>,
}

impl Members {
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Uid, &Member)> {
        self.all.iter()
    }

    pub(crate) fn get(&self, uid: &Uid) -> Option<&Member> {
        self.all.get(uid)
    }

    pub(crate) fn insert(&mut self, uid: &Uid, member: Member) {
        self.by_namespace.entry(member.namespace.clone()).or_default().insert(uid.clone());
        self.all.insert(uid.clone(), member);
    }

    pub(crate) fn remove(&mut self, uid: &Uid) -> Option<Member> {
        let member = self.all.remove(uid)?;
        if let Some(others) = self.by_namespace.get_mut(&member.namespace) {
            others.remove(uid);
            if others.is_empty() {
                self.by_namespace.remove(&member.namespace);
            }
        }
        Some(member)
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Uid> {
        self.by_namespace.get(namespace).into_iter().flatten()
    }

    /// Whether its labels are others than before. None: it is gone.
    pub(crate) fn namespace(&mut self, name: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels.clone()).as_ref() != Some(labels),
            None => self.namespaces.remove(name).is_some(),
        }
    }

    /// Whether it is another than before. None: it is gone.
    pub(crate) fn node(&mut self, name: &str, node: Option<&Node>) -> bool {
        let Some(node) = node else { return self.nodes.remove(name).is_some() };
        let told = node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
        let addresses = told.filter_map(|one| one.address.parse().ok()).collect();
        let new = NodeMember { labels: node.labels().clone(), addresses };
        let same = self.nodes.get(name) == Some(&new);
        self.nodes.insert(name.into(), new);
        !same
    }

    fn node_elements(&self, selector: &Selector, name: &Uid) -> Vec<Element> {
        let Some(node) = self.nodes.get(name) else { return Vec::new() };
        if !selector.pods.labels.matches_with(|key| node.labels.get(key).map(String::as_str)) {
            return Vec::new();
        }
        node.addresses.iter().map(|address| Element { address: *address, port: None }).collect()
    }

    fn selects_namespace(&self, pods: &Pods, namespace: &str) -> bool {
        match &pods.namespaces {
            Namespaces::One(name) => name == namespace,
            Namespaces::Selected(wanted) => {
                let labels = self.namespaces.get(namespace);
                labels.is_some_and(|labels| wanted.matches_with(|key| labels.get(key).map(String::as_str)))
            }
            Namespaces::Nodes => false,
        }
    }

    /// Whether a pod is among them.
    pub(crate) fn selects(&self, pods: &Pods, member: &Member) -> bool {
        let labels = member.pod.labels();
        self.selects_namespace(pods, &member.namespace)
            && pods.labels.matches_with(|key| labels.get(key).map(String::as_str))
    }

    /// What a pod adds to the set of a selector.
    fn elements(&self, selector: &Selector, member: &Member) -> Vec<Element> {
        if member.addresses.is_empty() || !self.selects(&selector.pods, member) {
            return Vec::new();
        }
        let addresses = member.addresses.iter();
        match &selector.port {
            None => addresses.map(|address| Element { address: *address, port: None }).collect(),
            Some((protocol, name)) => {
                let ports = pods::ports_named(&member.pod, *protocol, name);
                addresses
                    .flat_map(|address| ports.iter().map(|port| Element { address: *address, port: Some(*port) }))
                    .collect()
            }
        }
    }
}

#[derive(Debug)]
struct Selection {
    selector: Arc<Selector>,
    /// How many chains refer to it.
    users: usize,
    by_pod: HashMap<Uid, Vec<Element>>,
    /// Two pods may have one address for a while: one that ends and one that begins.
    elements: HashMap<Element, usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Selections {
    all: HashMap<Arc<str>, Selection>,
    /// Selectors of pods in one namespace, by its name.
    narrow: HashMap<String, BTreeSet<Arc<str>>>,
    wide: BTreeSet<Arc<str>>,
    nodes: BTreeSet<Arc<str>>,
}

impl Selections {
    pub(crate) fn contains(&self, selector: &Selector, element: &Element) -> bool {
        self.all.get(&selector.name).is_some_and(|one| one.elements.contains_key(element))
    }

    pub(crate) fn acquire(&mut self, selector: &Arc<Selector>, members: &Members, table: &mut Table) {
        if let Some(known) = self.all.get_mut(&selector.name) {
            known.users += 1;
            return;
        }
        table.set(&selector.name, Some(selector.port.is_some()));
        let mut selection =
            Selection { selector: selector.clone(), users: 1, by_pod: HashMap::new(), elements: HashMap::new() };
        let mut take = |uids: &BTreeSet<Uid>| {
            for uid in uids {
                if let Some(member) = members.all.get(uid) {
                    selection.follow(uid, members.elements(selector, member), table);
                }
            }
        };
        match &selector.pods.namespaces {
            Namespaces::One(name) => members.by_namespace.get(name.as_str()).into_iter().for_each(&mut take),
            Namespaces::Selected(_) => {
                let pods = &selector.pods;
                let names = members.by_namespace.iter().filter(|(name, _)| members.selects_namespace(pods, name));
                names.for_each(|(_, uids)| take(uids));
            }
            Namespaces::Nodes => {
                for name in members.nodes.keys() {
                    selection.follow(name, members.node_elements(selector, name), table);
                }
            }
        }
        self.index(selector).insert(selector.name.clone());
        self.all.insert(selector.name.clone(), selection);
    }

    pub(crate) fn release(&mut self, selector: &Arc<Selector>, table: &mut Table) {
        let Some(known) = self.all.get_mut(&selector.name) else { return };
        known.users -= 1;
        if known.users > 0 {
            return;
        }
        if let Some(gone) = self.all.remove(&selector.name) {
            for element in gone.elements.keys() {
                table.element(&selector.name, *element, false);
            }
        }
        table.set(&selector.name, None);
        self.index(selector).remove(&selector.name);
        if let Namespaces::One(name) = &selector.pods.namespaces
            && self.narrow.get(name).is_some_and(BTreeSet::is_empty)
        {
            self.narrow.remove(name);
        }
    }

    fn index(&mut self, selector: &Selector) -> &mut BTreeSet<Arc<str>> {
        match &selector.pods.namespaces {
            Namespaces::One(name) => self.narrow.entry(name.clone()).or_default(),
            Namespaces::Selected(_) => &mut self.wide,
            Namespaces::Nodes => &mut self.nodes,
        }
    }

    /// Takes in how a node is now, or that it is gone.
    pub(crate) fn node(&mut self, name: &str, members: &Members, table: &mut Table) {
        let name: Uid = name.into();
        for set in &self.nodes {
            let Some(selection) = self.all.get_mut(set) else { continue };
            let elements = members.node_elements(&selection.selector, &name);
            selection.follow(&name, elements, table);
        }
    }

    /// Takes in how a pod is now, or that it is gone.
    pub(crate) fn pod(&mut self, uid: &Uid, namespace: &str, members: &Members, table: &mut Table) {
        let names = self.narrow.get(namespace).into_iter().flatten().chain(&self.wide);
        for name in names {
            let Some(selection) = self.all.get_mut(name) else { continue };
            let elements =
                members.get(uid).map(|member| members.elements(&selection.selector, member)).unwrap_or_default();
            selection.follow(uid, elements, table);
        }
    }
}

impl Selection {
    fn follow(&mut self, uid: &Uid, elements: Vec<Element>, table: &mut Table) {
        let old = self.by_pod.remove(uid).unwrap_or_default();
        if old == elements {
            if !elements.is_empty() {
                self.by_pod.insert(uid.clone(), elements);
            }
            return;
        }
        for element in &elements {
            let count = self.elements.entry(*element).or_default();
            *count += 1;
            if *count == 1 {
                table.element(&self.selector.name, *element, true);
            }
        }
        for element in old {
            if let Some(count) = self.elements.get_mut(&element) {
                *count -= 1;
                if *count == 0 {
                    self.elements.remove(&element);
                    table.element(&self.selector.name, element, false);
                }
            }
        }
        if !elements.is_empty() {
            self.by_pod.insert(uid.clone(), elements);
        }
    }
}

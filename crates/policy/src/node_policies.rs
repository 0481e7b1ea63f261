//! What the node knows of pods, namespaces and policies, and the table that follows from it. Each change touches what depends on
//! it and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ferry_nft::Room;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;

use crate::Bridge;
use crate::chain::{Chain, Denial, Packet};
use crate::cluster_policy::{ClusterPolicy, StoredClusterPolicy, Tier};
use crate::compile::{Compiled, Family, tier};
use crate::held::{self, Held};
use crate::pods;
use crate::policy::{Direction, Policy, Protocol};
use crate::selection::{Member, Members, Selections, Uid};
use crate::table::{Table, Transaction, Way};

/// The chains that packets of a pod of this node take; none on a way on which it is not isolated.
#[derive(Default)]
struct Target {
    addresses: Vec<IpAddr>,
    ingress: Option<Arc<Chain>>,
    egress: Option<Arc<Chain>>,
    own_node: Option<Arc<Chain>>,
}

impl Target {
    fn on(&self, way: Way) -> Option<&Arc<Chain>> {
        match way {
            Way::In => self.ingress.as_ref(),
            Way::Out => self.egress.as_ref(),
            Way::OwnNode => self.own_node.as_ref(),
        }
    }

    fn chains(&self) -> impl Iterator<Item = &Arc<Chain>> {
        Way::ALL.into_iter().filter_map(|way| self.on(way))
    }
}

type Place = (Tier, i64, String);

/// So many rules all NetworkPolicies may stand for.
const MOST: usize = 2_000_000;

pub(crate) struct NodePolicies {
    node: String,
    members: Members,
    /// Pods of this node whose address the kubelet told: it knows first, and it knows best.
    told: HashMap<Uid, Vec<IpAddr>>,
    /// Told pods that the API server has not told of yet.
    unconfirmed: BTreeSet<Uid>,
    policies: BTreeMap<String, BTreeMap<String, Held<Policy>>>,
    room: Room,
    /// In the order in which they decide: by tier, priority and name.
    cluster_policies: BTreeMap<Place, Held<ClusterPolicy>>,
    targets: HashMap<Uid, Target>,
    /// The pods of this node that have an address; the last of them holds it.
    claims: HashMap<IpAddr, Vec<Uid>>,
    changed: BTreeSet<Uid>,
    /// Namespaces whose policies changed.
    changed_policies: BTreeSet<String>,
    selections: Selections,
    /// Chains in use, and how often.
    chains: HashMap<Arc<str>, (Arc<Chain>, usize)>,
    compiled: HashMap<Arc<str>, (Arc<Compiled>, usize)>,
    table: Table,
    /// The next transaction has to be the whole table.
    anew: bool,
}

impl NodePolicies {
    pub(crate) fn new(node: &str, table: &str, bridge: Bridge) -> Self {
        Self {
            node: node.to_owned(),
            members: Members::default(),
            told: HashMap::new(),
            unconfirmed: BTreeSet::new(),
            policies: BTreeMap::new(),
            room: Room::new(MOST),
            cluster_policies: BTreeMap::new(),
            targets: HashMap::new(),
            claims: HashMap::new(),
            changed: BTreeSet::new(),
            changed_policies: BTreeSet::new(),
            selections: Selections::default(),
            chains: HashMap::new(),
            compiled: HashMap::new(),
            table: Table::new(table, bridge),
            anew: false,
        }
    }

    pub(crate) fn pod(&mut self, pod: &Arc<Pod>, present: bool) {
        let uid: Uid = pod.uid().unwrap_or_default().into();
        self.unconfirmed.remove(&uid);
        if present {
            self.take_in(&uid, pod);
        } else {
            self.told.remove(&uid);
            self.forget(&uid);
        }
    }

    /// The kubelet made the pod's network, and has not started anything in it yet.
    pub(crate) fn told(&mut self, pod: &Arc<Pod>, addresses: Vec<IpAddr>) {
        if addresses.is_empty() {
            return;
        }
        let uid: Uid = pod.uid().unwrap_or_default().into();
        // Whoever had the address before is gone, whether or not anybody says so.
        let had_one =
            |other: &&Uid| self.told.get(*other).is_some_and(|had| had.iter().any(|one| addresses.contains(one)));
        let before: Vec<Uid> =
            self.unconfirmed.iter().filter(|other| **other != uid).filter(had_one).cloned().collect();
        for other in before {
            self.unconfirmed.remove(&other);
            self.told.remove(&other);
            self.forget(&other);
        }
        self.told.insert(uid.clone(), addresses);
        let known = self.members.get(&uid).map(|member| member.pod.clone());
        if known.is_none() {
            self.unconfirmed.insert(uid.clone());
        }
        self.take_in(&uid, &known.unwrap_or_else(|| pod.clone()));
    }

    fn take_in(&mut self, uid: &Uid, pod: &Arc<Pod>) {
        if pods::is_on_host_network(pod) {
            return;
        }
        let addresses = match self.told.get(uid) {
            _ if pods::is_over(pod) => Vec::new(),
            Some(told) => told.clone(),
            None => pods::addresses(pod),
        };
        if addresses.iter().any(IpAddr::is_ipv6) {
            self.take_in_both_families();
        }
        let namespace: Arc<str> = pod.namespace().unwrap_or_default().into();
        let same = self.members.get(uid).is_some_and(|old| {
            old.addresses == addresses && old.pod.labels() == pod.labels() && same_spec(&old.pod, pod)
        });
        self.members.insert(uid, Member { pod: pod.clone(), namespace: namespace.clone(), addresses });
        if same {
            return;
        }
        self.selections.pod(uid, &namespace, &self.members, &mut self.table);
        self.changed.insert(uid.clone());
    }

    /// Rules for a family of addresses that no pod has would double what the kernel has to hold.
    fn take_in_both_families(&mut self) {
        if self.table.families == Family::BOTH {
            return;
        }
        self.table.families = Family::BOTH;
        self.anew = true;
        for (namespace, policies) in &mut self.policies {
            self.changed_policies.insert(namespace.clone());
            for (name, held) in std::mem::take(policies) {
                policies.insert(name, held.anew(Family::BOTH));
            }
        }
        let cluster_policies = std::mem::take(&mut self.cluster_policies).into_iter();
        self.cluster_policies = cluster_policies.map(|(place, held)| (place, held.anew(Family::BOTH))).collect();
        self.change_all_here();
    }

    /// All pods of this node are looked at again.
    fn change_all_here(&mut self) {
        let here: Vec<Uid> =
            self.members.all().filter(|(_, one)| self.is_here(one)).map(|(uid, _)| uid.clone()).collect();
        self.changed.extend(here);
    }

    fn forget(&mut self, uid: &Uid) {
        if let Some(gone) = self.members.remove(uid) {
            self.selections.pod(uid, &gone.namespace, &self.members, &mut self.table);
            self.changed.insert(uid.clone());
        }
    }

    pub(crate) fn namespace(&mut self, namespace: &Namespace, present: bool) {
        let name = namespace.name_any();
        if self.members.namespace(&name, present.then(|| namespace.labels())) {
            let pods: Vec<Uid> = self.members.in_namespace(&name).cloned().collect();
            for uid in pods {
                self.selections.pod(&uid, &name, &self.members, &mut self.table);
                if !self.cluster_policies.is_empty() {
                    self.changed.insert(uid);
                }
            }
        }
    }

    pub(crate) fn node(&mut self, node: &Node, present: bool) {
        let name = node.name_any();
        if self.members.node(&name, present.then_some(node)) {
            self.selections.node(&name, &self.members, &mut self.table);
        }
    }

    /// What of it is not known is told.
    pub(crate) fn cluster_policy(&mut self, policy: &StoredClusterPolicy, present: bool) -> Vec<String> {
        let name = policy.name_any();
        let before = self.cluster_policies.len();
        self.cluster_policies.retain(|(_, _, other), _| *other != name);
        let mut is_changed = self.cluster_policies.len() != before;
        let mut complaints = Vec::new();
        if present {
            match ClusterPolicy::read(policy) {
                Ok(mut read) => {
                    is_changed = true;
                    complaints = std::mem::take(&mut read.complaints);
                    let place = (read.tier, read.priority, name);
                    self.cluster_policies.insert(place, Held::new(read, self.table.families));
                }
                Err(why) => complaints.push(format!("it selects nothing: {why}")),
            }
        }
        if is_changed {
            self.change_all_here();
        }
        complaints
    }

    pub(crate) fn policy(&mut self, policy: &NetworkPolicy, present: bool) {
        let policy = Policy::read(policy);
        let owner = format!("{}/{}", policy.namespace, policy.name).into();
        if present {
            self.hold(&owner, policy);
        } else {
            self.room.give_back(&owner);
            self.let_go(&policy.namespace, &policy.name);
            self.changed_policies.insert(policy.namespace);
        }
        for owner in self.room.admissible() {
            let held = owner.split_once('/').and_then(|(namespace, name)| self.let_go(namespace, name));
            if let Some(held) = held {
                self.hold(&owner, held.policy);
            }
        }
    }

    fn hold(&mut self, owner: &Arc<str>, policy: Policy) {
        let has_room = self.room.take(owner, held::extent(&policy));
        let (namespace, name) = (policy.namespace.clone(), policy.name.clone());
        let held = if has_room { Held::new(policy, self.table.families) } else { Held::refused(policy) };
        self.policies.entry(namespace.clone()).or_default().insert(name, held);
        self.changed_policies.insert(namespace);
    }

    fn let_go(&mut self, namespace: &str, name: &str) -> Option<Held<Policy>> {
        let others = self.policies.get_mut(namespace)?;
        let held = others.remove(name);
        if others.is_empty() {
            self.policies.remove(namespace);
        }
        held
    }

    fn is_here(&self, member: &Member) -> bool {
        member.pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(self.node.as_str()))
    }

    /// The transaction for everything that changed since the last call.
    pub(crate) fn transaction(&mut self) -> Transaction {
        self.settle();
        match std::mem::take(&mut self.anew) {
            true => self.table.render(),
            false => self.table.transaction(),
        }
    }

    /// The transaction that makes the kernel agree whatever is in it now. Everything is derived anew from pods and policies: if
    /// what we think the kernel holds were ever wrong, no attempt that starts from there could succeed.
    pub(crate) fn resync(&mut self) -> Transaction {
        self.settle();
        self.anew = false;
        self.table.clear();
        self.selections = Selections::default();
        self.chains.clear();
        self.compiled.clear();
        let uids: Vec<Uid> = self.targets.keys().cloned().collect();
        for uid in uids {
            let target = self.target(&uid).unwrap_or_default();
            for chain in target.chains() {
                self.acquire(chain);
            }
            self.targets.insert(uid, target);
        }
        let addresses: Vec<IpAddr> = self.claims.keys().copied().collect();
        for address in addresses {
            self.isolate(address);
        }
        self.table.render()
    }

    fn settle(&mut self) {
        for namespace in std::mem::take(&mut self.changed_policies) {
            let pods = self.members.in_namespace(&namespace);
            let here = pods.filter(|uid| self.members.get(uid).is_some_and(|member| self.is_here(member)));
            let here: Vec<Uid> = here.cloned().collect();
            self.changed.extend(here);
        }
        for uid in std::mem::take(&mut self.changed) {
            let new = self.target(&uid).unwrap_or_default();
            for chain in new.chains() {
                self.acquire(chain);
            }
            let addresses = new.addresses.clone();
            let is_gone = addresses.is_empty();
            let old = self.targets.insert(uid.clone(), new).unwrap_or_default();
            if is_gone {
                self.targets.remove(&uid);
            }
            for address in &old.addresses {
                if !addresses.contains(address)
                    && let Some(claims) = self.claims.get_mut(address)
                {
                    claims.retain(|one| *one != uid);
                    if claims.is_empty() {
                        self.claims.remove(address);
                    }
                }
            }
            for address in &addresses {
                let claims = self.claims.entry(*address).or_default();
                if !claims.contains(&uid) {
                    claims.push(uid.clone());
                }
            }
            for address in old.addresses.iter().chain(&addresses) {
                self.isolate(*address);
            }
            for chain in old.chains() {
                self.release(chain);
            }
        }
    }

    /// Sends packets of an address to the chains of the pod that holds it.
    fn isolate(&mut self, address: IpAddr) {
        let holder = self.claims.get(&address).and_then(|claims| self.targets.get(claims.last()?));
        for way in Way::ALL {
            let name = holder.and_then(|target| target.on(way)).map(|chain| &chain.name);
            if self.table.isolation(way, address) != name {
                self.table.isolate(way, address, name);
            }
        }
    }

    fn target(&self, uid: &Uid) -> Option<Target> {
        let member = self.members.get(uid).filter(|member| self.is_here(member) && !member.addresses.is_empty())?;
        let labels = member.pod.labels();
        let in_force: Vec<&Held<Policy>> = self
            .policies
            .get(&*member.namespace)
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter(|held| held.policy.selects.matches_with(|key| labels.get(key).map(String::as_str)))
            .collect();
        let policies = |direction: Direction| -> Vec<(String, Arc<Compiled>)> {
            let all = in_force.iter().filter_map(|held| {
                let compiled = held.chain(direction, self.table.families, &member.pod)?;
                Some((format!("{}/{}", held.policy.namespace, held.policy.name), compiled))
            });
            all.collect()
        };
        let (admin_in, baseline_in) = self.tiers(Direction::Ingress, member);
        let (admin_out, baseline_out) = self.tiers(Direction::Egress, member);
        let egress = policies(Direction::Egress);
        // The node's own word on NetworkPolicies is that all is allowed.
        let baseline_to_node = baseline_out.clone().filter(|_| egress.is_empty());
        Some(Target {
            addresses: member.addresses.clone(),
            ingress: Chain::new(Direction::Ingress, admin_in, policies(Direction::Ingress), baseline_in),
            own_node: Chain::new(Direction::Egress, admin_out.clone(), Vec::new(), baseline_to_node),
            egress: Chain::new(Direction::Egress, admin_out, egress, baseline_out),
        })
    }

    /// What ClusterNetworkPolicies decide of a pod, before and after its NetworkPolicies.
    fn tiers(&self, direction: Direction, member: &Member) -> (Option<Arc<Compiled>>, Option<Arc<Compiled>>) {
        let of = |wanted: Tier| {
            let held = self
                .cluster_policies
                .iter()
                .filter(|((tier, _, _), held)| *tier == wanted && self.members.selects(&held.policy.subject, member));
            let chains = held.filter_map(|(_, held)| held.chain(direction, self.table.families, &member.pod));
            tier(wanted, direction, &chains.collect::<Vec<_>>())
        };
        (of(Tier::Admin), of(Tier::Baseline))
    }

    fn acquire(&mut self, chain: &Arc<Chain>) {
        let users = &mut self.chains.entry(chain.name.clone()).or_insert_with(|| (chain.clone(), 0)).1;
        *users += 1;
        if *users > 1 {
            return;
        }
        self.table.chain(&chain.name, Some(&chain.rules));
        for one in chain.parts() {
            let users = &mut self.compiled.entry(one.name.clone()).or_insert_with(|| (one.clone(), 0)).1;
            *users += 1;
            if *users == 1 {
                self.table.chain(&one.name, Some(&one.rules));
                for selector in one.selectors() {
                    self.selections.acquire(selector, &self.members, &mut self.table);
                }
            }
        }
    }

    fn release(&mut self, chain: &Arc<Chain>) {
        let Some((_, users)) = self.chains.get_mut(&chain.name) else { return };
        *users -= 1;
        if *users > 0 {
            return;
        }
        // The first of equals: its policies are those that were counted.
        let Some((chain, _)) = self.chains.remove(&chain.name) else { return };
        self.table.chain(&chain.name, None);
        for one in chain.parts() {
            let Some((_, users)) = self.compiled.get_mut(&one.name) else { continue };
            *users -= 1;
            if *users > 0 {
                continue;
            }
            // The first of equals here as well: its selectors are those that were counted.
            let Some((one, _)) = self.compiled.remove(&one.name) else { continue };
            self.table.chain(&one.name, None);
            for selector in one.selectors() {
                self.selections.release(selector, &mut self.table);
            }
        }
    }

    /// Addresses of this node's pods.
    pub(crate) fn own_addresses(&self) -> BTreeSet<IpAddr> {
        self.claims.keys().copied().collect()
    }

    /// Addresses of this node's pods that policies select.
    pub(crate) fn isolated(&self) -> BTreeSet<IpAddr> {
        self.table.isolated()
    }

    /// Whether packets of a connection pass this node, by its policies.
    pub(crate) fn allows(&self, from: IpAddr, to: IpAddr, protocol: Protocol, port: u16) -> bool {
        self.passes(Direction::Egress, from, to, protocol, port)
            && self.passes(Direction::Ingress, from, to, protocol, port)
    }

    /// The same of the policies of one end.
    pub(crate) fn passes(&self, direction: Direction, from: IpAddr, to: IpAddr, protocol: Protocol, port: u16) -> bool {
        self.denies(direction, from, to, protocol, port).is_none()
    }

    pub(crate) fn denies(
        &self,
        direction: Direction,
        from: IpAddr,
        to: IpAddr,
        protocol: Protocol,
        port: u16,
    ) -> Option<Denial> {
        let (isolated, peer) = match direction {
            Direction::Egress => (from, to),
            Direction::Ingress => (to, from),
        };
        if from == to {
            return None;
        }
        let name = self.table.isolation(Way::of(direction), isolated)?;
        let (chain, _) = self.chains.get(name)?;
        chain.denies(Packet { peer, to, protocol, port }, &self.selections)
    }
}

/// Whether two states of a pod are the same to policies, as far as its spec says.
fn same_spec(one: &Pod, other: &Pod) -> bool {
    match (&one.spec, &other.spec) {
        (Some(one), Some(other)) => {
            one.node_name == other.node_name
                && one.containers == other.containers
                && one.init_containers == other.init_containers
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

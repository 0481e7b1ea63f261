//! What changes make of what was there before. Only what can be affected is made anew; everything else is the same objects in
//! memory as before. [`super::resolve`] comes to the same from nothing, and is what this is tested against.

mod changes;
#[cfg(test)]
mod single_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ferry_client::ObjectKey;

use super::attach::{self, AnyRoute, Attachment, Reads};
use super::backends::{Backends, Known};
use super::certificates::Certificates;
use super::conditions::Problem;
use super::objects::{Id, Objects};
use super::policies::Policies;
use super::status::told;
use super::{GatewayState, Resolved, Settings, classes, gateways, ingress};
pub use changes::Changed;
use changes::Dirty;

pub struct Incremental {
    objects: Objects,
    settings: Settings,
    certificates: Certificates,
    resolved: Resolved,
    known: Known,
    /// Whose attachments are made from what.
    readers: HashMap<Reads, BTreeSet<Arc<Id>>>,
    /// The Service of each EndpointSlice.
    service_of: HashMap<ObjectKey, ObjectKey>,
    /// The forms of routes that were accepted last, for routes that have grown out of their room, and for those that are just being
    /// changed.
    accepted: HashMap<Id, AnyRoute>,
}

/// What changes came to.
#[derive(Debug, Default)]
pub struct Effect {
    /// There are other tables.
    pub tables: bool,
    /// An endpoint of a backend that is in use is none any more.
    pub endpoints_left: bool,
    /// Other keys may be in use than before.
    pub keys: bool,
    /// Other machines serve something else than before.
    pub machines: bool,
    /// Whose status may have to be another.
    pub statuses: BTreeSet<Id>,
}

impl Incremental {
    pub fn new(settings: Settings) -> Self {
        Self {
            objects: Objects::default(),
            settings,
            certificates: Certificates::default(),
            resolved: Resolved::default(),
            known: Known::default(),
            readers: HashMap::new(),
            service_of: HashMap::new(),
            accepted: HashMap::new(),
        }
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn apply(&mut self, changes: impl IntoIterator<Item = Changed>) -> Effect {
        let mut dirty = Dirty::default();
        for change in changes {
            self.take(change, &mut dirty);
        }
        if dirty.classes {
            self.resolved.classes = classes(&self.objects);
        }
        let of_gateways = dirty.all_gateways || !dirty.gateways.is_empty();
        let keys = of_gateways || dirty.policies || !dirty.ingress.is_empty() || dirty.need_keys;
        let mut touched = BTreeSet::new();
        let mut gone = Vec::new();
        if of_gateways || dirty.addresses {
            gone = self.gateways(&mut dirty, &mut touched);
        }
        if dirty.policies {
            self.policies(&mut dirty);
        }
        let is_resolved =
            dirty.policies || !dirty.ingress.is_empty() || !touched.is_empty() || !dirty.routes.is_empty();
        let routes = std::mem::take(&mut dirty.routes);
        for id in attach::by_age(&self.objects, routes) {
            self.route(id, &mut dirty, &mut touched);
        }
        for id in self.resolved.tables.admissible() {
            self.route(id, &mut dirty, &mut touched);
        }
        let mut endpoints_left = false;
        for service in &dirty.endpoints {
            endpoints_left |= self.known.refresh(&self.objects, service);
        }
        let ingress = std::mem::take(&mut dirty.ingress);
        let of_ingresses = !ingress.is_empty();
        if of_ingresses {
            self.ingress(ingress, &mut dirty);
        }
        for gateway in &gone {
            self.resolved.tables.forget(gateway);
        }
        let tables = of_ingresses || !touched.is_empty() || !gone.is_empty();
        for gateway in &touched {
            let Some(state) = self.resolved.gateways.get(gateway) else { continue };
            self.resolved.tables.serve(state);
            dirty.counts_of_routes(state);
        }
        if tables {
            let (ports, conflicts) =
                self.resolved.tables.ports(&self.resolved.gateways, &self.resolved.ingress, &self.settings);
            (self.resolved.ports, self.resolved.conflicts) = (ports, conflicts);
        }
        if is_resolved {
            self.certificates.sweep();
        }
        if dirty.all_statuses {
            dirty.statuses.extend(told(&self.objects, &self.resolved));
        }
        Effect { tables, endpoints_left, keys, machines: dirty.machines, statuses: dirty.statuses }
    }

    /// Lets go of what no table has any more.
    pub fn forget(&self) {
        self.known.forget();
    }

    /// Makes Gateways anew, and gives those that are no more.
    fn gateways(&mut self, dirty: &mut Dirty, touched: &mut BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
        type Addresses = (Vec<IpAddr>, Option<Problem>);
        let mut old = std::mem::take(&mut self.resolved.gateways);
        let fleet = std::mem::take(&mut old.fleet);
        let of = |state: &GatewayState| -> Addresses { (state.addresses.clone(), state.unusable.clone()) };
        let before: HashMap<Arc<ObjectKey>, Addresses> =
            old.list.iter().map(|state| (state.key.clone(), of(state))).collect();
        let mut old: BTreeMap<Arc<ObjectKey>, GatewayState> =
            old.list.into_iter().map(|state| (state.key.clone(), state)).collect();
        let (all, changed) = (dirty.all_gateways, std::mem::take(&mut dirty.gateways));
        let known = |key: &ObjectKey| if all || changed.contains(key) { None } else { old.remove(key) };
        let (objects, settings) = (&self.objects, &self.settings);
        self.resolved.gateways = gateways(objects, &self.resolved.classes, settings, &self.certificates, known);
        if self.resolved.gateways.fleet.machines != fleet.machines {
            dirty.machines = true;
            dirty.statuses.extend(self.statuses_of_sockets());
        }
        for state in &self.resolved.gateways.list {
            let is_changed = all || changed.contains(&*state.key);
            if is_changed || before.get(&state.key) != Some(&of(state)) {
                touched.insert((*state.key).clone());
                dirty.gateway_statuses(state);
            }
            if !self.resolved.gateways.fleet.is_same_for(&fleet, &state.key) {
                dirty.gateway_statuses(state);
            }
            if !is_changed {
                continue;
            }
            let replaced = old.remove(&state.key);
            if replaced.as_ref().is_some_and(|old| old.is_same_to_routes(state)) {
                continue;
            }
            dirty.gateway_routes(&self.readers, state);
            if let Some(replaced) = replaced {
                dirty.gateway_routes(&self.readers, &replaced);
            }
        }
        for state in old.values() {
            dirty.gateway_routes(&self.readers, state);
        }
        old.into_keys().map(|key| (*key).clone()).collect()
    }

    fn policies(&mut self, dirty: &mut Dirty) {
        let new = Policies::judge(&self.objects, &self.certificates, &self.settings.system_authorities);
        for service in new.differing(&self.resolved.policies) {
            dirty.readers(&self.readers, &Reads::Service(service.clone()));
            dirty.ingress.keys.extend(self.resolved.ingress.of_service(service).cloned());
        }
        let id = |key: &ObjectKey| Id { kind: "BackendTLSPolicy", key: key.clone() };
        dirty.statuses.extend(new.judged.keys().map(id));
        self.resolved.policies = new;
    }

    fn route(&mut self, id: Id, dirty: &mut Dirty, touched: &mut BTreeSet<ObjectKey>) {
        let Resolved { gateways, policies, routes, tables, ancestors, .. } = &mut self.resolved;
        let mut reach = |attachment: &Attachment, comes: bool| {
            for (service, gateway) in &attachment.ancestors {
                let counts = ancestors.entry(service.clone()).or_default();
                let count = counts.entry(gateway.clone()).or_default();
                let before = *count;
                *count = if comes { before + 1 } else { before.saturating_sub(1) };
                let is_other = (before == 0) != (*count == 0);
                if *count == 0 {
                    counts.remove(gateway);
                }
                if counts.is_empty() {
                    ancestors.remove(service);
                }
                if is_other {
                    let of_service =
                        policies.all(service).map(|policy| Id { kind: "BackendTLSPolicy", key: policy.clone() });
                    dirty.statuses.extend(of_service);
                }
            }
            touched.extend(attachment.placed.iter().map(|placed| (*placed.gateway).clone()));
        };
        let old = routes.remove_entry(&id);
        let (name, old) = old.map_or((None, None), |(name, old)| (Some(name), Some(old)));
        if let Some(old) = &old {
            reach(old, false);
            old.placed.iter().for_each(|placed| tables.remove(placed));
        }
        let backends = Backends::new(&self.objects, &self.certificates, policies, &self.known);
        // The old one is there until the new one is made: backends that both have stay the same.
        let new = attach::find(&self.objects, &id).map(|route| attach::attach(&backends, gateways, route));
        let mut is_over = true;
        if let Some(mut new) = new.filter(|new| !new.parents.is_empty()) {
            let accepted = self.accepted.get(&id);
            let last = || accepted.map(|last| attach::attach(&backends, gateways, last.route(id.kind)));
            is_over = tables.admit(&id, &mut new, last);
            reach(&new, true);
            new.placed.iter().for_each(|placed| tables.insert(placed));
            routes.insert(name.unwrap_or_else(|| Arc::new(id.clone())), new);
        } else {
            tables.release(&id);
        }
        // Nobody goes back to it any more.
        if is_over && let Some(last) = self.accepted.remove(&id) {
            self.let_go(&id, &last);
        }
        dirty.statuses.insert(id);
    }

    fn ingress(&mut self, changes: ingress::Changes, dirty: &mut Dirty) {
        let Resolved { policies, ingress, .. } = &mut self.resolved;
        let backends = Backends::new(&self.objects, &self.certificates, policies, &self.known);
        let all = changes.all;
        ingress.change(&backends, changes);
        // The status of one says nothing of the others.
        if all {
            dirty.ingress_statuses(&self.resolved);
        }
    }

    /// Whose status may have to be another because sockets came or went.
    pub fn statuses_of_sockets(&self) -> BTreeSet<Id> {
        let mut dirty = Dirty::default();
        self.resolved.gateways.list.iter().for_each(|state| dirty.gateway_statuses(state));
        dirty.ingress_statuses(&self.resolved);
        dirty.statuses
    }
}

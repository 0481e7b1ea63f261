//! Node IPAM: every node gets a range of the cluster's pod addresses, of each family that it has.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, write};
use ferry_semantics::cidr::{self, IpNet};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;

use crate::Context;

const NAME: &str = "node-controller";
const COMPONENT: &str = "cidrAllocator";

struct Reconciler {
    client: Client,
    recorder: Recorder,
    nodes: Informer<Node>,
    ranges: Mutex<Ranges>,
    queue: WorkQueue<ObjectKey>,
}

/// What there is to give.
struct Ranges {
    pools: Vec<Pool>,
    /// Nodes that found nothing left. Trying again would not help them: they are told when a range is returned.
    waiting: BTreeSet<String>,
}

impl Ranges {
    /// One of each pool or none: what one pool gave stays the node's until there is one of the other.
    fn allocate(&mut self, node: &str) -> Option<Vec<String>> {
        let given: Option<Vec<String>> = self.pools.iter_mut().map(|pool| pool.allocate(node)).collect();
        if given.is_none() {
            self.waiting.insert(node.to_owned());
        }
        given
    }

    /// Whether something is the node's already, which it may have been told of.
    fn has(&self, node: &str) -> bool {
        self.pools.iter().any(|pool| pool.by_node.contains_key(node))
    }

    /// Takes back what was given a moment ago and was refused; what the node got elsewhere meanwhile stays its own.
    fn take_back(&mut self, node: &str, given: &[String]) -> Option<String> {
        let held = self.pools.iter().filter_map(|pool| Some(pool.range(*pool.by_node.get(node)?)));
        if held.eq(given.iter().cloned()) { self.release(node) } else { None }
    }

    /// What the node had is there for others; the next of those who wait.
    fn release(&mut self, node: &str) -> Option<String> {
        self.waiting.remove(node);
        let had = self.pools.iter_mut().filter(|pool| pool.by_node.contains_key(node)).map(|pool| pool.release(node));
        if had.count() > 0 { self.waiting.pop_first() } else { None }
    }
}

pub(crate) fn start(context: &Context) {
    let Some(range) = &context.config.cluster_cidr else { return };
    let config = &context.config;
    let pools = match pools(range, config.node_cidr_mask_size, config.node_cidr_mask_size_ipv6) {
        Ok(pools) => pools,
        Err(problem) => {
            tracing::error!(controller = "nodeipam", range, "no pod ranges for nodes: {problem}");
            return;
        }
    };
    let client = context.client(NAME);
    let nodes = context.informers.of::<Node>();
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), COMPONENT, &context.tasks),
        client,
        nodes: nodes.clone(),
        ranges: Mutex::new(Ranges { pools, waiting: BTreeSet::new() }),
        queue: context.queue("cidrallocator_node"),
    });

    let handler = this.clone();
    nodes.on_change(move |change| {
        let node = change.object();
        let key = ObjectKey::of(&**node);
        if matches!(change, Change::Deleted(_)) {
            handler.release(&key.name);
            return;
        }
        let known = ranges(node);
        if known.is_empty() {
            handler.queue.add(key);
            return;
        }
        let mut all = handler.ranges.lock();
        all.waiting.remove(&key.name);
        for range in known {
            all.pools.iter_mut().for_each(|pool| pool.occupy(&key.name, &range));
        }
    });

    // Only once every node has been seen is it known which ranges are free.
    let ready = async move { nodes.synced().await };
    let queue = this.queue.clone();
    controller::run(&context.tasks, "nodeipam", &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

fn ranges(node: &Node) -> Vec<String> {
    let spec = node.spec.as_ref();
    let several = spec.and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default();
    let one = spec.and_then(|spec| spec.pod_cidr.clone()).filter(|range| !range.is_empty());
    if several.is_empty() { one.into_iter().collect() } else { several }
}

impl Reconciler {
    fn release(&self, node: &str) {
        if let Some(next) = self.ranges.lock().release(node) {
            self.queue.add(ObjectKey::new("", next));
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(node) = self.nodes.get_key(key) else { return Ok(Action::Done) };
        if !ranges(&node).is_empty() {
            return Ok(Action::Done);
        }
        let (had, given) = {
            let mut ranges = self.ranges.lock();
            (ranges.has(&key.name), ranges.allocate(&key.name))
        };
        let Some(given) = given else {
            let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
            self.recorder.event(&*node, EventType::Normal, "CIDRNotAvailable", message);
            tracing::warn!(controller = "nodeipam", node = key.name, "no pod range is left; it waits for one");
            return Ok(Action::Done);
        };
        let patch = json!({
            "metadata": { "uid": node.metadata.uid }, "spec": { "podCIDR": given.first(), "podCIDRs": given },
        });
        let api: Api<Node> = Api::all(self.client.clone());
        let patched = api.patch(&key.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        if let Err(error) = patched {
            // A node that got its range elsewhere meanwhile tells so by its change. One of which it is not known whether it
            // got this one, now or by an earlier attempt, keeps it: nobody else may have it.
            let refused = write::status_of(&error).is_some_and(|status| status.code < 500);
            let next = if refused && !had { self.ranges.lock().take_back(&key.name, &given) } else { None };
            if let Some(next) = next {
                self.queue.add(ObjectKey::new("", next));
            }
            return Err(error.into());
        }
        Ok(Action::Done)
    }
}

/// A pool for each range of the list: one, or one of each family.
fn pools(ranges: &str, mask: u8, mask_ipv6: u8) -> Result<Vec<Pool>, String> {
    let pool = |range: &str| Pool::new(range, if range.contains(':') { mask_ipv6 } else { mask });
    let pools: Vec<Pool> = ranges.split(',').map(|range| pool(range.trim())).collect::<Result<_, _>>()?;
    let families = pools.iter().filter(|pool| pool.whole.addr().is_ipv4()).count();
    if pools.len() > 2 || (pools.len() == 2 && families != 1) {
        return Err(format!("{ranges} is neither one range nor one of each family"));
    }
    Ok(pools)
}

/// One of the cluster's ranges cut into equal parts.
struct Pool {
    whole: IpNet,
    /// The length of each part's prefix.
    mask: u8,
    parts: u32,
    next: u32,
    by_node: HashMap<String, u32>,
    taken: HashMap<u32, String>,
}

impl Pool {
    fn new(range: &str, mask: u8) -> Result<Self, String> {
        let whole = cidr::parse(range).ok_or_else(|| format!("{range} is not a range of addresses"))?.trunc();
        let length = whole.prefix_len();
        if mask < length || mask > whole.max_prefix_len() || mask - length > 16 {
            return Err(format!("a node's /{mask} does not fit into {range}, or cuts it too small"));
        }
        let (by_node, taken) = (HashMap::new(), HashMap::new());
        Ok(Self { whole, mask, parts: 1 << (mask - length), next: 0, by_node, taken })
    }

    fn range(&self, part: u32) -> String {
        let offset = u128::from(part).checked_shl(u32::from(self.whole.max_prefix_len() - self.mask));
        let first = offset.and_then(|offset| cidr::nth(&self.whole, offset)).unwrap_or(self.whole.network());
        format!("{first}/{}", self.mask)
    }

    fn part(&self, range: &str) -> Option<u32> {
        let range = cidr::parse(range).filter(|range| range.prefix_len() == self.mask && self.whole.contains(range))?;
        let offset = cidr::number(range.network()).checked_sub(cidr::number(self.whole.network()))?;
        let part = offset.checked_shr(u32::from(self.whole.max_prefix_len() - self.mask)).unwrap_or_default();
        u32::try_from(part).ok().filter(|part| *part < self.parts)
    }

    /// Goes round, so that a range that was just freed rests before it is used again.
    fn allocate(&mut self, node: &str) -> Option<String> {
        if let Some(part) = self.by_node.get(node) {
            return Some(self.range(*part));
        }
        let free =
            (0..self.parts).map(|step| (self.next + step) % self.parts).find(|part| !self.taken.contains_key(part))?;
        self.next = (free + 1) % self.parts;
        self.by_node.insert(node.to_owned(), free);
        self.taken.insert(free, node.to_owned());
        Some(self.range(free))
    }

    /// A node has this range already, whoever gave it.
    fn occupy(&mut self, node: &str, range: &str) {
        let Some(part) = self.part(range) else { return };
        if self.by_node.get(node) == Some(&part) {
            return;
        }
        self.release(node);
        if let Some(other) = self.taken.insert(part, node.to_owned())
            && other != node
        {
            tracing::warn!(range, node, other, "two nodes have the same pod range");
        }
        self.by_node.insert(node.to_owned(), part);
    }

    fn release(&mut self, node: &str) {
        if let Some(part) = self.by_node.remove(node)
            && self.taken.get(&part).is_some_and(|owner| owner == node)
        {
            self.taken.remove(&part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_given_once_and_returned() {
        let mut pool = Pool::new("10.244.0.0/22", 24).expect("a pool");
        assert_eq!(pool.allocate("a").as_deref(), Some("10.244.0.0/24"));
        pool.occupy("b", "10.244.1.0/24");
        assert_eq!(pool.allocate("c").as_deref(), Some("10.244.2.0/24"));
        assert_eq!(pool.allocate("a").as_deref(), Some("10.244.0.0/24"), "the same node gets the same");
        assert_eq!(pool.allocate("d").as_deref(), Some("10.244.3.0/24"));
        assert_eq!(pool.allocate("e"), None);
        pool.release("b");
        assert_eq!(pool.allocate("e").as_deref(), Some("10.244.1.0/24"));
        pool.occupy("x", "192.168.0.0/24");
    }

    #[test]
    fn both_families_have_ranges() {
        let mut ranges = Ranges { pools: Vec::new(), waiting: BTreeSet::new() };
        ranges.pools = pools("10.244.0.0/23, fd00:10:244::/48", 24, 64).expect("two pools");
        assert!(ranges.allocate("a").is_some() && ranges.allocate("b").is_some() && ranges.allocate("c").is_none());
        assert_eq!(ranges.release("x"), None, "it had none");
        assert_eq!(ranges.release("a").as_deref(), Some("c"), "it waits for one");
        assert_eq!(ranges.allocate("c").expect("ranges"), ["10.244.0.0/24", "fd00:10:244:2::/64"]);
        assert_eq!(ranges.release("b"), None, "nobody waits");

        let mut pools = pools("10.244.0.0/16, fd00:10:244::/48", 24, 64).expect("two pools");
        let mut give =
            |node: &str| -> Option<Vec<String>> { pools.iter_mut().map(|pool| pool.allocate(node)).collect() };
        assert_eq!(give("a").expect("ranges"), ["10.244.0.0/24", "fd00:10:244::/64"]);
        assert_eq!(give("b").expect("ranges"), ["10.244.1.0/24", "fd00:10:244:1::/64"]);
        pools.iter_mut().for_each(|pool| {
            pool.occupy("c", "10.244.2.0/24");
            pool.occupy("c", "fd00:10:244:2::/64");
        });
        let given: Option<Vec<String>> = pools.iter_mut().map(|pool| pool.allocate("d")).collect();
        assert_eq!(given.expect("ranges"), ["10.244.3.0/24", "fd00:10:244:3::/64"]);
        for wrong in ["10.0.0.0/16,10.1.0.0/16", "fd00::/48,fd01::/48,10.0.0.0/16", "10.0.0.0/16,", "fd00::/40"] {
            assert!(self::pools(wrong, 24, 64).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_refused_range_is_taken_back_and_no_other() {
        let mut ranges = Ranges { pools: Vec::new(), waiting: BTreeSet::new() };
        ranges.pools = pools("10.244.0.0/23", 24, 64).expect("a pool");
        assert!(!ranges.has("a"));
        let given = ranges.allocate("a").expect("a range");
        assert!(ranges.has("a"), "another attempt may not take it back: the first one may have succeeded");
        assert!(ranges.allocate("b").is_some() && ranges.allocate("c").is_none());
        assert_eq!(ranges.take_back("a", &given).as_deref(), Some("c"));
        assert_eq!(ranges.allocate("c"), Some(given.clone()));

        // The node got another one meanwhile, of which its change told.
        ranges.release("b");
        ranges.pools[0].occupy("c", "10.244.1.0/24");
        assert_eq!(ranges.take_back("c", &given), None);
        assert_eq!(ranges.allocate("d"), Some(given), "the one that is free");
        assert_eq!(ranges.allocate("e"), None, "the other one is taken");
    }

    #[test]
    fn nonsense_is_refused() {
        for (range, mask) in [("10.244.0.0", 24), ("10.244.0.0/33", 24), ("10.244.0.0/24", 16), ("10.0.0.0/8", 32)] {
            assert!(Pool::new(range, mask).is_err(), "{range} {mask}");
        }
    }
}

//! Node IPAM: every node gets a range of the cluster's pod addresses.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, write};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;

use crate::Context;

const NAME: &str = "node-controller";
const COMPONENT: &str = "cidrAllocator";

struct Loop {
    client: Client,
    recorder: Recorder,
    nodes: Informer<Node>,
    pool: Mutex<Pool>,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let Some(range) = &context.config.cluster_cidr else { return };
    let pool = match Pool::new(range, context.config.node_cidr_mask_size) {
        Ok(pool) => pool,
        Err(problem) => {
            tracing::error!(controller = "nodeipam", range, "no pod ranges for nodes: {problem}");
            return;
        }
    };
    let client = context.client(NAME);
    let nodes = context.informers.of::<Node>();
    let this = Arc::new(Loop {
        recorder: Recorder::new(client.clone(), COMPONENT, &context.tasks),
        client,
        nodes: nodes.clone(),
        pool: Mutex::new(pool),
        queue: context.queue("cidrallocator_node"),
    });

    let handler = this.clone();
    nodes.on_change(move |change| {
        let node = change.object();
        let key = ObjectKey::of(&**node);
        if matches!(change, Change::Deleted(_)) {
            handler.pool.lock().release(&key.name);
            return;
        }
        match ranges(node).first() {
            Some(range) => handler.pool.lock().occupy(&key.name, range),
            None => handler.queue.add(key),
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

impl Loop {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(node) = self.nodes.get_key(key) else { return Ok(Action::Done) };
        if !ranges(&node).is_empty() {
            return Ok(Action::Done);
        }
        let Some(range) = self.pool.lock().allocate(&key.name) else {
            let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
            self.recorder.event(&*node, EventType::Normal, "CIDRNotAvailable", message);
            return Err(
                "CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range".into()
            );
        };
        let patch = json!({
            "metadata": { "uid": node.metadata.uid }, "spec": { "podCIDR": range, "podCIDRs": [range] },
        });
        let api: Api<Node> = Api::all(self.client.clone());
        let patched = api.patch(&key.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        if let Err(error) = patched {
            // A node that got its range elsewhere meanwhile tells so by its change. One of which it is not known whether it
            // got this one keeps it: nobody else may have it.
            if write::status_of(&error).is_some_and(|status| status.code < 500) {
                self.pool.lock().release(&key.name);
            }
            return Err(error.into());
        }
        Ok(Action::Done)
    }
}

/// The cluster's range cut into equal parts.
struct Pool {
    base: u32,
    mask: u8,
    parts: u32,
    next: u32,
    by_node: HashMap<String, u32>,
    taken: HashMap<u32, String>,
}

impl Pool {
    fn new(range: &str, mask: u8) -> Result<Self, String> {
        let (address, length) = parse(range).ok_or_else(|| format!("{range} is not an IPv4 range"))?;
        if mask < length || mask > 32 || mask - length > 16 {
            return Err(format!("a node's /{mask} does not fit into {range}, or cuts it too small"));
        }
        let base = u32::from(address) & prefix(length);
        Ok(Self { base, mask, parts: 1 << (mask - length), next: 0, by_node: HashMap::new(), taken: HashMap::new() })
    }

    fn range(&self, part: u32) -> String {
        let shift = 32 - u32::from(self.mask);
        let offset = part.checked_shl(shift).unwrap_or_default();
        format!("{}/{}", Ipv4Addr::from(self.base.wrapping_add(offset)), self.mask)
    }

    fn part(&self, range: &str) -> Option<u32> {
        let (address, length) = parse(range)?;
        let shift = 32 - u32::from(self.mask);
        let part = u32::from(address).checked_sub(self.base)?.checked_shr(shift).unwrap_or_default();
        (length == self.mask && part < self.parts).then_some(part)
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

fn parse(range: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, length) = range.split_once('/')?;
    let length: u8 = length.parse().ok().filter(|length| *length <= 32)?;
    Some((Ipv4Addr::from_str(address).ok()?, length))
}

fn prefix(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or_default()
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
    fn nonsense_is_refused() {
        for (range, mask) in [("10.244.0.0", 24), ("10.244.0.0/33", 24), ("10.244.0.0/24", 16), ("10.0.0.0/8", 32)] {
            assert!(Pool::new(range, mask).is_err(), "{range} {mask}");
        }
    }
}

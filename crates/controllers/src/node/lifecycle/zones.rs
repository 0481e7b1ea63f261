//! Zones: how many of their nodes are well, and how fast pods may be driven off those that are not.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tokio::time::Instant;

use super::plan;

/// Between two nodes of a zone from which pods are driven away, so that a wrong judgement does not empty it.
const BETWEEN_EVICTIONS: Duration = Duration::from_secs(10);
/// The same in a zone that is mostly down, if it is large; a small one keeps its pods where they are.
const BETWEEN_EVICTIONS_WHEN_DISRUPTED: Duration = Duration::from_secs(100);
const LARGE_ZONE: usize = 50;
/// A zone with this share of its nodes down, and more than two, is mostly down.
const UNHEALTHY_PERCENT: usize = 55;
const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];
/// A node with this label says nothing of its zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZoneState {
    Normal,
    Partial,
    Full,
}

#[derive(Default)]
struct Zone {
    ready: usize,
    not_ready: usize,
    /// When the next node may drive its pods away.
    next: Option<Instant>,
}

impl Zone {
    fn state(&self) -> ZoneState {
        let all = self.ready + self.not_ready;
        if self.ready == 0 && self.not_ready > 0 {
            ZoneState::Full
        } else if self.not_ready > 2 && self.not_ready * 100 >= all * UNHEALTHY_PERCENT {
            ZoneState::Partial
        } else {
            ZoneState::Normal
        }
    }

    /// How long after an eviction the next may follow; none when there is to be none.
    fn pace(&self) -> Option<Duration> {
        match self.state() {
            ZoneState::Normal | ZoneState::Full => Some(BETWEEN_EVICTIONS),
            ZoneState::Partial if self.ready + self.not_ready > LARGE_ZONE => Some(BETWEEN_EVICTIONS_WHEN_DISRUPTED),
            ZoneState::Partial => None,
        }
    }
}

/// Whether a node's pods may be driven away.
#[derive(Debug, PartialEq)]
pub(super) enum Permit {
    Now,
    /// Ask again then.
    After(Duration),
    /// Not as long as the zone is as it is.
    No,
}

/// Kept by the changes of nodes, so that no node has to look at all others.
#[derive(Default)]
pub(super) struct Zones {
    zones: HashMap<String, Zone>,
}

fn name(node: &Node) -> String {
    LABELS.map(|label| node.labels().get(label).map(String::as_str).unwrap_or_default()).join("/")
}

impl Zones {
    /// Counts `new` instead of `old`. True when no zone had a node that is well, and now one has.
    pub(super) fn change(&mut self, old: Option<&Node>, new: Option<&Node>) -> bool {
        let was_down = self.nobody_is_well();
        if let Some(node) = old.filter(|node| !node.labels().contains_key(EXCLUDED)) {
            let name = name(node);
            if let Some(zone) = self.zones.get_mut(&name) {
                let count =
                    if plan::state(node, "Ready") == Some("True") { &mut zone.ready } else { &mut zone.not_ready };
                *count = count.saturating_sub(1);
                if zone.ready + zone.not_ready == 0 && new.is_none_or(|new| self::name(new) != name) {
                    self.zones.remove(&name);
                }
            }
        }
        if let Some(node) = new.filter(|node| !node.labels().contains_key(EXCLUDED)) {
            let zone = self.zones.entry(name(node)).or_default();
            *if plan::state(node, "Ready") == Some("True") { &mut zone.ready } else { &mut zone.not_ready } += 1;
        }
        was_down && !self.nobody_is_well()
    }

    /// Then it is more likely that the fault is ours.
    pub(super) fn nobody_is_well(&self) -> bool {
        !self.zones.is_empty() && self.zones.values().all(|zone| zone.state() == ZoneState::Full)
    }

    /// `Now` counts as an eviction.
    pub(super) fn ask(&mut self, node: &Node, now: Instant) -> Permit {
        let zone = self.zones.entry(name(node)).or_default();
        let Some(pace) = zone.pace() else { return Permit::No };
        match zone.next {
            // A pace that became faster holds at once.
            Some(at) if at > now => Permit::After((at - now).min(pace)),
            _ => {
                zone.next = Some(now + pace);
                Permit::Now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(zone: &str, ready: bool) -> Node {
        let state = if ready { "True" } else { "Unknown" };
        serde_json::from_value(json!({
            "metadata": { "name": "n", "labels": { "topology.kubernetes.io/zone": zone } },
            "status": { "conditions": [{ "type": "Ready", "status": state }] },
        }))
        .expect("a node")
    }

    /// What the first and the second node to lose its pods is told, in a zone of so many nodes beside one that is well.
    fn check(ready: usize, not_ready: usize, expected: [Permit; 2]) {
        let mut zones = Zones::default();
        zones.change(None, Some(&node("other", true)));
        for number in 0..ready + not_ready {
            zones.change(None, Some(&node("a", number < ready)));
        }
        let now = Instant::now();
        let told = [zones.ask(&node("a", false), now), zones.ask(&node("a", false), now)];
        assert_eq!(told, expected, "{ready} ready, {not_ready} not");
    }

    #[test]
    fn pods_leave_a_zone_at_its_pace() {
        let normal = || [Permit::Now, Permit::After(Duration::from_secs(10))];
        check(3, 2, normal());
        check(0, 4, normal());
        check(9, 11, [Permit::No, Permit::No]);
        check(1, 2, normal());
        check(40, 60, [Permit::Now, Permit::After(Duration::from_secs(100))]);
    }

    #[test]
    fn nobody_is_well_until_one_is() {
        let mut zones = Zones::default();
        assert!(!zones.nobody_is_well());
        assert!(!zones.change(None, Some(&node("a", false))));
        assert!(zones.nobody_is_well());
        assert!(!zones.change(None, Some(&node("b", false))));
        assert!(zones.change(Some(&node("b", false)), Some(&node("b", true))));
        assert!(!zones.nobody_is_well());
        // The well zone goes as a whole.
        assert!(!zones.change(Some(&node("b", true)), None));
        assert!(zones.nobody_is_well());
    }
}

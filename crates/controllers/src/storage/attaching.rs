//! What the caches do not tell the attach/detach controller: attachments that are being made, and what nodes that are
//! gone had mounted when they were last heard of.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;

use crate::common::conditions;

/// So long a node that is not well may hold a volume that none of its pods needs.
const LONGEST_UNMOUNT: Duration = Duration::from_secs(6 * 60);
/// How often a node that is well is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What the kubelet has mounted or is about to.
pub(super) fn in_use(node: &Node) -> &[String] {
    node.status.as_ref().and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default()
}

pub(super) fn is_out_of_service(node: &Node) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == OUT_OF_SERVICE)
}

/// Who has volumes attached, as far as it matters for taking them away.
#[derive(Clone, Debug, Default)]
pub(super) struct Holder {
    out_of_service: bool,
    well: bool,
    /// Nobody knows what a node had mounted that was gone before this controller began: anything.
    in_use: Option<Vec<String>>,
}

impl Holder {
    pub(super) fn of(node: &Node) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        Self {
            out_of_service: is_out_of_service(node),
            well: conditions::find(conditions, "Ready").is_some_and(|condition| condition.status == "True"),
            in_use: Some(in_use(node).to_vec()),
        }
    }

    /// The same once its Node is deleted: what it ran may run on, but nobody hears of it.
    pub(super) fn gone(node: &Node) -> Self {
        Self { well: false, ..Self::of(node) }
    }

    pub(super) fn may_have_mounted(&self, volume: Option<&str>) -> bool {
        !self.out_of_service
            && match &self.in_use {
                None => true,
                Some(names) => volume.is_some_and(|volume| names.iter().any(|name| name == volume)),
            }
    }

    /// How long it still has to unmount what it has mounted and nobody has needed for so long.
    pub(super) fn time_to_unmount(&self, unneeded: Duration) -> Duration {
        let left = LONGEST_UNMOUNT.saturating_sub(unneeded);
        // A node that is well unmounts, sooner or later; taking the volume from under it would corrupt it.
        if self.well { left.max(LOOK_AGAIN) } else { left }
    }
}

/// One attachment of a volume that only one node may have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Begun {
    pub(super) node: String,
    pub(super) name: String,
    /// Whether the server has not answered yet.
    in_flight: bool,
}

/// By volume: the attachment that this controller makes or has made and that its cache may not know of. Two workers, or one
/// whose cache is behind, would else give the same volume to two nodes.
#[derive(Default)]
pub(super) struct Attaching(Mutex<HashMap<String, Begun>>);

/// Why a volume cannot be attached now.
#[derive(Debug, PartialEq)]
pub(super) enum Held {
    /// The server is being asked to attach it to another node.
    InFlight,
    /// It was attached to another node, by an attachment of this name that was not seen so far.
    Unseen(String),
}

impl Attaching {
    /// The volume is the node's from now on, unless it is another one's. `seen` says whether an attachment is in the cache:
    /// the cache alone then says whose the volume is, and has to be asked after this.
    pub(super) fn begin(
        &self,
        volume: &str,
        node: &str,
        name: &str,
        seen: impl FnOnce(&str) -> bool,
    ) -> Result<(), Held> {
        let mut all = self.0.lock();
        if let Some(other) = all.get(volume).filter(|other| other.node != node) {
            if other.in_flight {
                return Err(Held::InFlight);
            }
            if !seen(&other.name) {
                return Err(Held::Unseen(other.name.clone()));
            }
        }
        let begun = Begun { node: node.to_owned(), name: name.to_owned(), in_flight: true };
        all.insert(volume.to_owned(), begun);
        Ok(())
    }

    /// The server has answered, or may have done it.
    pub(super) fn answered(&self, volume: &str, name: &str) {
        if let Some(begun) = self.0.lock().get_mut(volume).filter(|begun| begun.name == name) {
            begun.in_flight = false;
        }
    }

    /// There is no such attachment, or the cache has it.
    pub(super) fn forget(&self, volume: &str, name: &str) {
        let mut all = self.0.lock();
        if all.get(volume).is_some_and(|begun| begun.name == name) {
            all.remove(volume);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_that_is_being_attached_is_nobody_elses() {
        let attaching = Attaching::default();
        assert_eq!(attaching.begin("disk", "a", "csi-a", |_| false), Ok(()));
        assert_eq!(attaching.begin("other", "b", "csi-c", |_| false), Ok(()), "another volume");
        assert_eq!(attaching.begin("disk", "b", "csi-b", |_| true), Err(Held::InFlight));
        assert_eq!(attaching.begin("disk", "a", "csi-a", |_| false), Ok(()), "the same node tries again");
        attaching.answered("disk", "csi-a");
        assert_eq!(attaching.begin("disk", "b", "csi-b", |_| false), Err(Held::Unseen("csi-a".into())));
        attaching.forget("disk", "csi-x");
        assert!(attaching.begin("disk", "b", "csi-b", |_| false).is_err(), "another attachment was forgotten");
        // The cache has it, and says from now on whose the volume is.
        assert_eq!(attaching.begin("disk", "b", "csi-b", |name| name == "csi-a"), Ok(()));
        attaching.forget("disk", "csi-b");
        assert_eq!(attaching.begin("disk", "a", "csi-a", |_| false), Ok(()));
    }

    #[test]
    fn nodes_have_time_to_unmount_even_when_they_are_gone() {
        let node = |taint: &str, ready: &str| -> Node {
            serde_json::from_value(json!({
                "spec": { "taints": [{ "key": taint, "effect": "NoExecute" }] },
                "status": { "volumesInUse": ["disk"], "conditions": [{ "type": "Ready", "status": ready }] },
            }))
            .expect("a node")
        };
        let seconds = Duration::from_secs;
        let check = |holder: Holder, volume: Option<&str>, unneeded: u64, expected: Option<u64>| {
            let left = holder.may_have_mounted(volume).then(|| holder.time_to_unmount(seconds(unneeded)));
            assert_eq!(left, expected.map(seconds), "{holder:?} {volume:?} {unneeded}");
        };
        let well = node("other", "True");
        check(Holder::of(&well), Some("disk"), 0, Some(360));
        check(Holder::of(&well), Some("disk"), 1000, Some(60));
        check(Holder::of(&well), Some("another"), 0, None);
        check(Holder::of(&well), None, 0, None);
        check(Holder::of(&node("other", "Unknown")), Some("disk"), 1000, Some(0));
        check(Holder::of(&node(OUT_OF_SERVICE, "Unknown")), Some("disk"), 0, None);
        check(Holder::gone(&well), Some("disk"), 0, Some(360));
        check(Holder::gone(&well), Some("disk"), 1000, Some(0));
        check(Holder::gone(&well), Some("another"), 0, None);
        check(Holder::gone(&node(OUT_OF_SERVICE, "Unknown")), Some("disk"), 0, None);
        check(Holder::default(), Some("disk"), 100, Some(260));
        check(Holder::default(), None, 360, Some(0));
    }
}

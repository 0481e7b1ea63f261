//! Leases: whoever holds one says so again and again.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason};
use crate::world::{World, ago, number, time_at};

pub(super) fn finding(world: &World, lease: &Value) -> Option<Finding> {
    let (holder, seconds) = (object::text(lease, "/spec/holderIdentity"), number(lease, "/spec/leaseDurationSeconds"));
    let finding = |cause: String| Finding::new(Reason::LeaseExpired, lease, cause);
    if holder.is_empty() {
        return Some(finding("nobody holds it: the last holder gave it back".into()).note());
    }
    let renewed = time_at(lease, "/spec/renewTime")?;
    let late = world.now.as_second() - renewed.as_second();
    if seconds == 0 || late <= seconds {
        return None;
    }
    let cause = format!(
        "its holder {holder:?} has not renewed it for {}, and it is good for {seconds} s: nobody does what it is for",
        ago(world.now, renewed)
    );
    Some(match object::namespace(lease) {
        "kube-node-lease" => finding(cause).advise(format!("ferry why node/{}", object::name(lease))),
        _ => finding(cause).advise(format!("see that {holder} runs, or another one that would take it over")),
    })
}

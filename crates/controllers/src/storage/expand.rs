//! Volume expansion: tells whose turn it is when a claim asks for more than it has. Growing is the driver's work.

use ferry_client::controller::{self, Action};
use ferry_client::{EventType, ObjectKey, Recorder, WorkQueue};
use ferry_meta::Quantity;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use crate::Context;

const NAME: &str = "expand-controller";
const COMPONENT: &str = "volume_expand";

fn storage(amount: Option<&Amount>) -> i64 {
    amount.and_then(|amount| Quantity::parse(&amount.0).ok()).map_or(0, |quantity| quantity.value())
}

/// Bound, and asks for more than it was given.
fn wants_more(claim: &PersistentVolumeClaim) -> bool {
    let Some(status) = claim.status.as_ref().filter(|status| status.phase.as_deref() == Some("Bound")) else {
        return false;
    };
    let wanted = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
    let has = status.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
    claim.metadata.deletion_timestamp.is_none() && storage(wanted) > storage(has)
}

pub(crate) fn start(context: &Context) {
    let recorder = Recorder::new(context.client(NAME), COMPONENT, &context.tasks);
    let claims = context.informers.of::<PersistentVolumeClaim>();
    let queue: WorkQueue<ObjectKey> = context.queue("volume_expand");
    let keys = queue.clone();
    claims.on_change(move |change| {
        // Once per change of what is asked: the state before tells whether that is new.
        if wants_more(change.object())
            && change.old().is_none_or(|old| !wants_more(old) || old.spec != change.object().spec)
        {
            keys.add(ObjectKey::of(&**change.object()));
        }
    });
    let synced = claims.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key: ObjectKey| {
        if let Some(claim) = claims.get_key(&key).filter(|claim| wants_more(claim)) {
            let message = "waiting for an external controller to expand this PVC";
            recorder.event(&*claim, EventType::Normal, "ExternalExpanding", message);
        }
        std::future::ready(Ok(Action::Done))
    });
}

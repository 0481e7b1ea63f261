//! Deletes PodCertificateRequests that are older than any kubelet waits for.

use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, ObjectKey, WorkQueue, write};
use k8s_openapi::api::certificates::v1::PodCertificateRequest;

use crate::Context;

const NAME: &str = "podcertificaterequestcleaner";
const LIFETIME: Duration = Duration::from_secs(15 * 60);

pub(crate) fn start(context: &Context) {
    let (client, requests) = (context.client(NAME), context.informers.of::<PodCertificateRequest>());
    let queue: WorkQueue<ObjectKey> = context.queue(NAME);
    let clock = context.config.clock.clone();
    let keys = queue.clone();
    requests.on_change(move |change| keys.add(ObjectKey::of(&**change.object())));
    let synced = requests.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key: ObjectKey| {
        let (client, found, now) = (client.clone(), requests.get_key(&key), clock.seconds());
        async move {
            let Some(found) = found else { return Ok(Action::Done) };
            let made = found.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
            let left = LIFETIME.saturating_sub(Duration::try_from(now.duration_since(made)).unwrap_or_default());
            if !left.is_zero() {
                return Ok(Action::After(left));
            }
            let api: Api<PodCertificateRequest> = Api::namespaced(client, &key.namespace);
            write::delete(&api, &*found, None).await?;
            Ok(Action::Done)
        }
    });
}

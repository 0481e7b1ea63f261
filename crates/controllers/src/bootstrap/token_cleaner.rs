//! Token cleaner: deletes bootstrap tokens when their time is over.

use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, ObjectKey, WorkQueue, write};
use k8s_openapi::api::core::v1::Secret;

use super::{expiration, is_token};
use crate::Context;

const NAME: &str = "token-cleaner";

pub(crate) fn start(context: &Context) {
    let (client, secrets) = (context.client(NAME), context.informers.of::<Secret>());
    let queue: WorkQueue<ObjectKey> = context.queue("token_cleaner");
    let clock = context.config.clock.clone();
    let keys = queue.clone();
    secrets.on_change(move |change| {
        if is_token(change.object()) {
            keys.add(ObjectKey::of(&**change.object()));
        }
    });
    let synced = secrets.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key: ObjectKey| {
        let (client, token, now) = (client.clone(), secrets.get_key(&key), clock.seconds());
        async move {
            let Some(token) = token else { return Ok(Action::Done) };
            let Some(end) = expiration(&token) else { return Ok(Action::Done) };
            if let Ok(left) = Duration::try_from(end.duration_since(now))
                && !left.is_zero()
            {
                return Ok(Action::After(left));
            }
            let api: Api<Secret> = Api::namespaced(client, &key.namespace);
            // Somebody may have given it more time, and the cache not know yet.
            write::delete_as_seen(&api, &*token).await?;
            Ok(Action::Done)
        }
    });
}

//! ServiceAccount: every namespace has one called `default`.

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, ObjectKey, WorkQueue, write};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::PostParams;

use super::root_ca::is_active;
use crate::Context;

const NAME: &str = "service-account-controller";
const DEFAULT: &str = "default";

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let (namespaces, accounts) = (context.informers.of::<Namespace>(), context.informers.of::<ServiceAccount>());
    let queue: WorkQueue<ObjectKey> = context.queue("serviceaccount");

    let keys = queue.clone();
    namespaces.on_change(move |change| {
        if !matches!(change, Change::Deleted(_)) {
            keys.add(ObjectKey::of(&**change.object()));
        }
    });
    let keys = queue.clone();
    accounts.on_change(move |change| {
        if let Change::Deleted(account) = change
            && account.name_any() == DEFAULT
        {
            keys.add(ObjectKey::new("", account.namespace().unwrap_or_default()));
        }
    });

    let synced = (namespaces.clone(), accounts.clone());
    let ready = async move {
        synced.0.synced().await;
        synced.1.synced().await;
    };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key: ObjectKey| {
        let (client, namespaces, accounts) = (client.clone(), namespaces.clone(), accounts.clone());
        async move {
            let active = namespaces.get("", &key.name).is_some_and(|namespace| is_active(&namespace));
            if !active || accounts.get(&key.name, DEFAULT).is_some() {
                return Ok(Action::Done);
            }
            create(&Api::namespaced(client, &key.name)).await
        }
    });
}

async fn create(api: &Api<ServiceAccount>) -> Result<Action, Error> {
    let account = ServiceAccount {
        metadata: ObjectMeta { name: Some(DEFAULT.into()), ..ObjectMeta::default() },
        ..ServiceAccount::default()
    };
    match api.create(&PostParams::default(), &account).await {
        Err(error)
            if !write::is_already_exists(&error)
                && !write::is_namespace_terminating(&error)
                && !write::is_not_found(&error) =>
        {
            Err(error.into())
        }
        _ => Ok(Action::Done),
    }
}

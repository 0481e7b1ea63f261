//! ValidatingAdmissionPolicy status: warns of expressions that do not fit the types of what a policy is about.

mod check;
mod schema;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, ObjectKey, WorkQueue};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::Context;

const NAME: &str = "validatingadmissionpolicy-status-controller";
const MANAGER: &str = "validatingadmissionpolicy-status";

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let policies = context.informers.of::<ValidatingAdmissionPolicy>();
    let queue: WorkQueue<ObjectKey> = context.queue("validatingadmissionpolicy-status");

    let keys = queue.clone();
    policies.on_change(move |change| {
        if !matches!(change, Change::Deleted(_)) {
            keys.add(ObjectKey::of(&**change.object()));
        }
    });

    let synced = policies.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, NAME, &queue, 5, ready, move |key: ObjectKey| {
        let (client, policies) = (client.clone(), policies.clone());
        async move {
            if let Some(policy) = policies.get_key(&key) {
                reconcile(client, &policy).await?;
            }
            Ok(Action::Done)
        }
    });
}

async fn reconcile(client: Client, policy: &ValidatingAdmissionPolicy) -> Result<(), Error> {
    let generation = policy.metadata.generation.unwrap_or_default();
    let observed = policy.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
    let Some(name) = policy.metadata.name.as_deref().filter(|_| generation > observed) else { return Ok(()) };
    let known = ferry_client::discovery::kinds(&client).await?;
    let mut schemas = schema::Schemas::new(client.clone());
    let mut types = check::Types::default();
    for kind in check::matched_kinds(policy, &known) {
        if let Some(object) = schemas.declare(&kind, 1).await {
            types.objects.push((kind, object));
        }
    }
    if let Some(kind) = check::param_kind(policy, &known) {
        types.params = schemas.declare(&kind, 2).await;
    }
    let warnings = check::warnings(policy, &types);
    let mut checking = json!({});
    if !warnings.is_empty() {
        checking = json!({ "expressionWarnings": warnings });
    }
    let wanted = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name }, "status": { "observedGeneration": generation, "typeChecking": checking },
    });
    let api: Api<ValidatingAdmissionPolicy> = Api::all(client);
    let written = api.patch_status(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&wanted)).await;
    match written {
        Err(error) if !ferry_client::write::is_not_found(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

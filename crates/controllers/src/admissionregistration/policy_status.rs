//! ValidatingAdmissionPolicy status: whether its expressions can mean anything for the kinds it is about.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::type_check;
use crate::Context;

const NAME: &str = "validatingadmissionpolicy-status-controller";
const MANAGER: &str = "validatingadmissionpolicy-status";
/// A policy about everything is not checked against everything.
const MOST_TYPES: usize = 10;

struct Loop {
    client: Client,
    policies: Informer<ValidatingAdmissionPolicy>,
}

pub(crate) fn start(context: &Context) {
    let queue: WorkQueue<ObjectKey> = context.queue("validating_admission_policy_status");
    let this = Arc::new(Loop { client: context.client(NAME), policies: context.informers.of() });
    let keys = queue.clone();
    this.policies.on_change(move |change| keys.add(ObjectKey::of(&**change.object())));
    let synced = this.policies.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

/// A resource in a version, as rules name them.
type Named = (String, String, String);

/// The resources that the policy names without wildcards.
fn resources(policy: &ValidatingAdmissionPolicy) -> Vec<Named> {
    let constraints = policy.spec.as_ref().and_then(|spec| spec.match_constraints.as_ref());
    let rules = constraints.and_then(|constraints| constraints.resource_rules.as_deref()).unwrap_or_default();
    let mut found = Vec::new();
    for rule in rules {
        let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
        let (groups, versions, resources) = (list(&rule.api_groups), list(&rule.api_versions), list(&rule.resources));
        let vague = |list: &[String]| list.iter().any(|text| text.contains('*'));
        if vague(&groups) || vague(&versions) || vague(&resources) {
            continue;
        }
        for group in &groups {
            for version in &versions {
                // A subresource has a kind of its own that no schema tells.
                for resource in resources.iter().filter(|resource| !resource.contains('/')) {
                    found.push((group.clone(), version.clone(), resource.clone()));
                }
            }
        }
    }
    found.sort();
    found.dedup();
    found.truncate(MOST_TYPES);
    found
}

impl Loop {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(policy) = self.policies.get_key(key) else { return Ok(Action::Done) };
        let generation = policy.metadata.generation.unwrap_or_default();
        let seen = policy.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
        if generation <= seen {
            return Ok(Action::Done);
        }
        let mut warnings: BTreeMap<String, String> = BTreeMap::new();
        for (group, version, resource) in resources(&policy) {
            let Some(kind) = self.kind(&group, &version, &resource).await else { continue };
            let schema = self.schema(&group, &version, &kind).await;
            let api_version = if group.is_empty() { version } else { format!("{group}/{version}") };
            for (field, problem) in type_check::check(&policy, schema.as_ref()) {
                let text = warnings.entry(field).or_default();
                text.push_str(&format!("{api_version}, Kind={kind}: {problem}\n"));
            }
        }
        let warnings: Vec<Value> =
            warnings.into_iter().map(|(field, warning)| json!({ "fieldRef": field, "warning": warning })).collect();
        let checking = if warnings.is_empty() { json!({}) } else { json!({ "expressionWarnings": warnings }) };
        let wanted = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": key.name },
            "status": { "observedGeneration": generation, "typeChecking": checking },
        });
        let api: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        match api.patch_status(&key.name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(wanted)).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }

    /// None when the server does not serve the resource.
    async fn kind(&self, group: &str, version: &str, resource: &str) -> Option<String> {
        let list = if group.is_empty() {
            self.client.list_core_api_resources(version).await
        } else {
            self.client.list_api_group_resources(&format!("{group}/{version}")).await
        };
        list.ok()?.resources.into_iter().find(|served| served.name == resource).map(|served| served.kind)
    }

    async fn schema(&self, group: &str, version: &str, kind: &str) -> Option<Value> {
        let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        let request = http::Request::get(format!("/openapi/v3/{path}")).body(Vec::new()).ok()?;
        let document: Value = self.client.request(request).await.ok()?;
        type_check::schema(&document, group, version, kind)
    }
}

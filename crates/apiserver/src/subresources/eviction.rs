//! pods/eviction: a deletion that asks the pod's disruption budget first.

use ferry_admission::Operation;
use ferry_meta::error::{StatusCause, StatusDetails};
use ferry_meta::selector::LabelSelector;
use ferry_meta::{ApiError, GroupResource, GroupVersionKind, ObjectReader, Reason, object, time};
use ferry_registry::Resource;
use serde_json::{Value, json};

use super::binding::set_condition;
use crate::request::call::Call;
use crate::request::context::RequestContext;
use crate::request::negotiate;
use crate::request::options::{DeleteOptions, WriteOptions};
use crate::response::answer::Answer;
use crate::server::Core;
use crate::storage::codec;
use crate::storage::objects::{self, bare_error, modify};
use crate::verbs::delete;
use crate::write::Write;
use crate::write::admission::{self, Attributes};

/// More pods than this on their way out, and the budget's controller is not keeping up.
const MAX_DISRUPTED: usize = 2000;
/// A pod that changes more often while it is evicted is asked for again by the client.
const ATTEMPTS: usize = 20;

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, body } = call;
    let kind = GroupVersionKind::new("policy", "v1", "Eviction");
    let options = WriteOptions::read(&context.query, "CreateOptions", None)?;
    let encoding = negotiate::input(&context.headers)?;
    // Clients of old send the version that was before, which says the same.
    let sent = GroupVersionKind { version: version_sent(&body), ..kind.clone() };
    let mut eviction = codec::decode(context, &sent, encoding, &body, options.field_validation)?;
    if let Some(eviction) = eviction.as_object_mut() {
        eviction.insert("apiVersion".into(), kind.api_version().into());
    }
    let (namespace, name) = (&context.info.namespace, &context.info.name);
    super::same_namespace(&eviction, namespace)?;
    admission::note_duplicate_owners(context, &mut eviction);
    if object::name(&eviction) != name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let seen = options.object();
    let write = Write::new(core, context, row, &options);
    let attributes = Attributes { kind: &kind, ..write.attributes(Operation::Create, name, &seen) };
    admission::mutate(core, context, &attributes, Some(&mut eviction), None).await?;
    admission::validate(core, context, &attributes, Some(&mut eviction), None).await?;
    // Who asks twice for what is not to happen has to ask for the same.
    if let Some(asked) = eviction.pointer("/deleteOptions/dryRun").and_then(Value::as_array)
        && options.dry_run
        && !asked.is_empty()
        && *asked != [json!("All")]
    {
        let asked: Vec<&str> = asked.iter().filter_map(Value::as_str).collect();
        return Err(bare_error(format!(
            "Non-matching dry-run options in request and content: [All] and [{}]",
            asked.join(" ")
        )));
    }
    objects::must_load(core, row, namespace, name).await?;
    let mut delete_options = DeleteOptions::from_object(eviction.get("deleteOptions").unwrap_or(&json!({})))?;
    delete_options.dry_run |= options.dry_run;

    for _ in 0..ATTEMPTS {
        if let Evicted::Gone = evict(core, context, row, &delete_options).await? {
            return super::status(&objects::success(201));
        }
    }
    Err(ApiError::modified(&row.group_resource(), name))
}

enum Evicted {
    Gone,
    /// It is not the pod any more that was free to go.
    ChangedMeanwhile,
}

async fn evict(
    core: &Core,
    context: &RequestContext,
    row: &Resource,
    delete_options: &DeleteOptions,
) -> Result<Evicted, ApiError> {
    let (namespace, name) = (&context.info.namespace, &context.info.name);
    let pod = objects::must_load(core, row, namespace, name).await?;
    delete::check_preconditions(row, &pod, delete_options)?;
    let mut options = delete_options.clone();
    let mut spent = false;
    if !ignores_budgets(&pod.object)
        && let Some(budget) = budget_of(core, namespace, &pod.object)?
    {
        let rows = core.table();
        let budgets = rows.find("policy", "v1", "poddisruptionbudgets").cloned();
        let budgets = budgets.ok_or_else(|| ApiError::internal("poddisruptionbudgets are not served"))?;
        if !unhealthy_may_go(&budget, &pod.object) {
            spend(core, context, &budgets, object::name(&budget), name, options.dry_run).await?;
            spent = true;
        }
    }
    // What goes for nothing goes as it was seen: a pod may become ready in between, and then its budget counts.
    let pinned = !spent && !is_going(&pod.object) && options.precondition_version.is_none();
    if pinned {
        options.precondition_version = Some(pod.revision.to_string());
    }
    let outcome = mark_and_delete(core, context, row, &mut options).await;
    match outcome {
        Err(error) if pinned && error.is(Reason::Conflict) => Ok(Evicted::ChangedMeanwhile),
        outcome => outcome.map(|()| Evicted::Gone),
    }
}

async fn mark_and_delete(
    core: &Core,
    context: &RequestContext,
    row: &Resource,
    options: &mut DeleteOptions,
) -> Result<(), ApiError> {
    let (namespace, name) = (&context.info.namespace, &context.info.name);
    if !options.dry_run {
        let wanted = options.precondition_version.clone();
        let marked = modify(core, row, namespace, name, Some(&context.stages), |pod| {
            if wanted.as_deref().is_some_and(|wanted| wanted != object::resource_version(pod)) {
                return Err(ApiError::modified(&row.group_resource(), name));
            }
            set_condition(
                pod,
                json!({
                    "type": "DisruptionTarget", "status": "True",
                    "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
                }),
            );
            Ok(())
        })
        .await?;
        if wanted.is_some() {
            options.precondition_version = Some(object::resource_version(&marked).to_owned());
        }
    }
    delete::delete(core, context, row, namespace, name, name, options).await.map(drop)
}

/// `v1`, or `v1beta1` where the body says so.
fn version_sent(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Said {
        api_version: String,
    }
    let said = serde_json::from_slice::<Said>(body).map(|said| said.api_version).unwrap_or_default();
    if said == "policy/v1beta1" { "v1beta1" } else { "v1" }.to_owned()
}

/// Pods that serve nobody any more, or not yet, disturb nobody by going.
fn ignores_budgets(pod: &Value) -> bool {
    is_going(pod) || object::text(pod, "/status/phase") == "Pending"
}

/// It will not serve anybody again.
fn is_going(pod: &Value) -> bool {
    matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed") || object::is_being_deleted(pod)
}

fn budget_of(core: &Core, namespace: &str, pod: &Value) -> Result<Option<Value>, ApiError> {
    let all = core.cache.list(&GroupResource::new("policy", "poddisruptionbudgets"), namespace);
    let mut matching = all.into_iter().filter(|budget| {
        let selector = budget.pointer("/spec/selector").unwrap_or(&Value::Null);
        LabelSelector::from_object(selector).is_ok_and(|s| s.matches(object::labels(pod)))
    });
    let first = matching.next();
    if matching.next().is_some() {
        return Err(bare_error(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    }
    Ok(first.map(|budget| (*budget).clone()))
}

/// A pod that is not ready counts for nothing, so its going may be free.
fn unhealthy_may_go(budget: &Value, pod: &Value) -> bool {
    let ready = object::items(pod, "/status/conditions")
        .iter()
        .any(|c| object::text(c, "/type") == "Ready" && object::text(c, "/status") == "True");
    if ready {
        return false;
    }
    if object::text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow" {
        return true;
    }
    let (healthy, wanted) = (number(budget, "/status/currentHealthy"), number(budget, "/status/desiredHealthy"));
    wanted > 0 && healthy >= wanted
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn refused(cause: String, retry_after_seconds: i32) -> ApiError {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    ApiError::new(429, Reason::TooManyRequests, message).with_details(StatusDetails {
        causes: vec![StatusCause { reason: "DisruptionBudget".into(), message: cause, field: String::new() }],
        retry_after_seconds,
        ..StatusDetails::default()
    })
}

/// What a budget says of itself once it is spent.
fn nothing_allowed(generation: i64) -> Value {
    json!({
        "type": "DisruptionAllowed", "status": "False", "observedGeneration": generation,
        "lastTransitionTime": time::time(time::now()), "reason": "InsufficientPods", "message": "",
    })
}

/// Takes one disruption from the budget and notes for whom.
async fn spend(
    core: &Core,
    context: &RequestContext,
    budgets: &Resource,
    name: &str,
    pod: &str,
    dry_run: bool,
) -> Result<(), ApiError> {
    let namespace = &*context.info.namespace;
    let take = |budget: &mut Value| {
        if number(budget, "/status/observedGeneration") < number(budget, "/metadata/generation") {
            let why = format!("The disruption budget {name} is still being processed by the server.");
            return Err(refused(why, 10));
        }
        let allowed = number(budget, "/status/disruptionsAllowed");
        let resource = budgets.group_resource();
        if allowed < 0 {
            return Err(ApiError::forbidden(&resource, name, "pdb disruptions allowed is negative"));
        }
        if object::map(budget, "/status/disruptedPods").len() > MAX_DISRUPTED {
            let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
            return Err(ApiError::forbidden(&resource, name, why));
        }
        if allowed == 0 {
            let why = format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number(budget, "/status/desiredHealthy"),
                number(budget, "/status/currentHealthy")
            );
            return Err(refused(why, 0));
        }
        let seen = number(budget, "/status/observedGeneration");
        let status = object::child_mut(budget, "status");
        status.insert("disruptionsAllowed".into(), (allowed - 1).into());
        if allowed == 1 {
            objects::set_condition(status, nothing_allowed(seen));
        }
        let pods = status.entry("disruptedPods").or_insert_with(|| json!({}));
        pods[pod] = time::time(time::now()).into();
        Ok(())
    };
    if dry_run {
        let mut budget = objects::must_load(core, budgets, namespace, name).await?;
        return take(&mut budget.object);
    }
    modify(core, budgets, namespace, name, Some(&context.stages), take).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::version_sent;

    #[test]
    fn the_version_before_is_taken_too() {
        for (body, version) in [
            (r#"{"apiVersion":"policy/v1beta1","kind":"Eviction"}"#, "v1beta1"),
            (r#"{"apiVersion":"policy/v1"}"#, "v1"),
            (r#"{"apiVersion":"apps/v1"}"#, "v1"),
            ("", "v1"),
        ] {
            assert_eq!(version_sent(body.as_bytes()), version, "{body}");
        }
    }
}

//! Legacy token cleaner: tokens that were once made for accounts by themselves and that nobody uses are first refused, then deleted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{Api, Error, write};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::token_secret::{ACCOUNT, ACCOUNT_UID, annotation, is_token};
use crate::Context;

const NAME: &str = "legacy-service-account-token-cleaner";
const INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Unused for a year.
const UNUSED: SignedDuration = SignedDuration::from_hours(24 * 365);
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Says since when uses are written down.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let secrets = context.informers.of::<Secret>();
    let (accounts, pods) = (context.informers.of::<ServiceAccount>(), context.informers.of::<Pod>());
    let clock = context.config.clock.clone();
    context.tasks.spawn_critical_once(NAME, async move {
        secrets.synced().await;
        accounts.synced().await;
        pods.synced().await;
        loop {
            let seen = Seen { secrets: secrets.list(), accounts: accounts.list(), pods: pods.list() };
            if let Err(error) = clean(&client, &seen, clock.seconds()).await {
                tracing::warn!(controller = NAME, "tokens could not be cleaned up: {error}");
            }
            // Days are what it counts in.
            tokio::time::sleep(INTERVAL).await;
        }
    });
}

struct Seen {
    secrets: Vec<Arc<Secret>>,
    accounts: Vec<Arc<ServiceAccount>>,
    pods: Vec<Arc<Pod>>,
}

#[derive(Debug, PartialEq)]
enum Step {
    /// Refuse the token from this day on.
    Mark(Arc<Secret>, String),
    Delete(Arc<Secret>),
}

async fn clean(client: &Client, seen: &Seen, now: Timestamp) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let Some(tracking) = maps.get_opt(TRACKING).await? else { return Ok(()) };
    let since = tracking.data.as_ref().and_then(|data| data.get("since")).map(String::as_str).unwrap_or_default();
    for step in plan(seen, since, now) {
        let (Step::Mark(secret, _) | Step::Delete(secret)) = &step;
        let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace().unwrap_or_default());
        let outcome = match &step {
            Step::Mark(_, day) => {
                let label = json!({ "metadata": { "uid": secret.metadata.uid, "labels": { INVALID_SINCE: day } } });
                api.patch(&secret.name_any(), &PatchParams::default(), &Patch::Merge(&label)).await.map(|_| ())
            }
            Step::Delete(_) => {
                let unchanged = Preconditions { resource_version: secret.metadata.resource_version.clone(), uid: None };
                let parameters = DeleteParams { preconditions: Some(unchanged), ..DeleteParams::default() };
                api.delete(&secret.name_any(), &parameters).await.map(|_| ())
            }
        };
        match outcome {
            Err(error) if !write::is_conflict(&error) && !write::is_not_found(&error) => {
                tracing::warn!(
                    controller = NAME,
                    secret = secret.name_any(),
                    "not cleaned up: {}",
                    write::short(&error)
                );
            }
            _ => {}
        }
    }
    Ok(())
}

fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).date().to_string()
}

fn plan(seen: &Seen, since: &str, now: Timestamp) -> Vec<Step> {
    // Whole days: a use on the first day may not have been written down.
    let tracked = since.parse::<Date>().ok().and_then(|date| date.tomorrow().ok()?.to_zoned(TimeZone::UTC).ok());
    let oldest = now - UNUSED;
    if tracked.is_none_or(|tracked| tracked.timestamp() > oldest) {
        return Vec::new();
    }
    let kept_from = day(oldest);
    let mut mounted: HashMap<String, BTreeSet<String>> = HashMap::new();
    for pod in &seen.pods {
        let names = mounted.entry(pod.namespace().unwrap_or_default()).or_default();
        collect_secrets(&serde_json::to_value(&pod.spec).unwrap_or_default(), names);
    }
    let mut steps = Vec::new();
    for secret in &seen.secrets {
        let created = secret.metadata.creation_timestamp.as_ref().map(|time| time.0);
        if !is_token(secret)
            || created.is_none_or(|created| created >= oldest)
            || secret.metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        if let Some(used) = secret.labels().get(LAST_USED)
            && (used.parse::<Date>().is_err() || *used >= kept_from)
        {
            continue;
        }
        // Only those in the account's list were made by themselves; what a person made is theirs.
        let by_itself = seen.accounts.iter().any(|account| {
            let uid = annotation(secret, ACCOUNT_UID);
            account.namespace().as_deref() == Some(&namespace)
                && account.name_any() == annotation(secret, ACCOUNT)
                && (uid.is_empty() || Some(&uid) == account.metadata.uid.as_ref())
                && account.secrets.iter().flatten().any(|reference| reference.name.as_deref() == Some(&name))
        });
        if !by_itself || mounted.get(&namespace).is_some_and(|names| names.contains(&name)) {
            continue;
        }
        match secret.labels().get(INVALID_SINCE).filter(|day| day.parse::<Date>().is_ok()) {
            None => steps.push(Step::Mark(secret.clone(), day(now))),
            Some(invalid) if *invalid < kept_from => steps.push(Step::Delete(secret.clone())),
            Some(_) => {}
        }
    }
    steps
}

/// Every Secret that a pod names, wherever it does.
fn collect_secrets(value: &Value, names: &mut BTreeSet<String>) {
    let mut add = |value: &Value| names.extend(value.as_str().map(str::to_owned));
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match key.as_str() {
                    "secretName" => add(inner),
                    "secret" | "secretRef" | "secretKeyRef" | "nodePublishSecretRef" => add(&inner["name"]),
                    "imagePullSecrets" => inner.as_array().into_iter().flatten().for_each(|one| add(&one["name"])),
                    _ => {}
                }
            }
            map.values().for_each(|inner| collect_secrets(inner, names));
        }
        Value::Array(list) => list.iter().for_each(|inner| collect_secrets(inner, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, created: &str, labels: Value) -> Arc<Secret> {
        let json = json!({
            "metadata": {
                "name": name, "namespace": "a", "creationTimestamp": format!("{created}T00:00:00Z"), "labels": labels,
                "annotations": { ACCOUNT: "robot", ACCOUNT_UID: "u" },
            },
            "type": super::super::token_secret::TYPE,
        });
        Arc::new(serde_json::from_value(json).expect("a secret"))
    }

    #[test]
    fn what_nobody_uses_is_refused_first_and_deleted_a_year_later() {
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().expect("a time");
        let names = ["idle", "used", "long-idle", "marked", "old-mark", "young", "mounted", "pulled", "odd"];
        let references: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        let account = json!({ "metadata": { "name": "robot", "namespace": "a", "uid": "u" }, "secrets": references });
        let pod = json!({ "metadata": { "name": "p", "namespace": "a" }, "spec": {
            "containers": [{ "name": "c", "image": "i", "env": [{ "name": "E", "valueFrom": { "secretKeyRef": { "name": "mounted", "key": "k" } } }] }],
            "imagePullSecrets": [{ "name": "pulled" }],
        } });
        let seen = Seen {
            secrets: vec![
                secret("idle", "2020-01-01", json!({})),
                secret("used", "2020-01-01", json!({ LAST_USED: "2026-05-01" })),
                secret("long-idle", "2020-01-01", json!({ LAST_USED: "2025-01-01" })),
                secret("marked", "2020-01-01", json!({ INVALID_SINCE: "2026-01-01" })),
                secret("old-mark", "2020-01-01", json!({ INVALID_SINCE: "2025-05-01" })),
                secret("young", "2026-01-01", json!({})),
                secret("mounted", "2020-01-01", json!({})),
                secret("pulled", "2020-01-01", json!({})),
                secret("odd", "2020-01-01", json!({ LAST_USED: "yesterday" })),
                secret("by-hand", "2020-01-01", json!({})),
            ],
            accounts: vec![Arc::new(serde_json::from_value(account).expect("an account"))],
            pods: vec![Arc::new(serde_json::from_value(pod).expect("a pod"))],
        };
        let shown: Vec<String> = plan(&seen, "2025-01-01", now)
            .iter()
            .map(|step| match step {
                Step::Mark(secret, day) => format!("mark {} {day}", secret.name_any()),
                Step::Delete(secret) => format!("delete {}", secret.name_any()),
            })
            .collect();
        assert_eq!(shown, ["mark idle 2026-06-01", "mark long-idle 2026-06-01", "delete old-mark"]);
        for since in ["2025-06-01", "2026-01-01", "", "never"] {
            assert_eq!(plan(&seen, since, now), [], "not tracked for long enough: {since}");
        }
    }
}

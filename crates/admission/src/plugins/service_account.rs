//! Every pod runs as a service account, and finds its token in every container unless it says otherwise.

use std::sync::Arc;
use std::time::Duration;

use ferry_meta::object::{annotations, child_mut, items, name, text};
use ferry_meta::{ApiError, ObjectReader};
use rand::Rng;
use serde_json::{Value, json};

use crate::pod::{is_mirror, is_set, list_mut};
use crate::resources::SERVICE_ACCOUNTS;
use crate::{Operation, Plugin, Request};

const DEFAULT: &str = "default";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
/// The letters upstream makes names of: no vowels, no look-alikes.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(crate) struct ServiceAccount {
    reader: Arc<dyn ObjectReader>,
    /// How often, and how long apart, a fresh namespace's `default` account is looked for.
    attempts: u32,
    pause: Duration,
}

impl ServiceAccount {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader, attempts: 50, pause: Duration::from_millis(20) }
    }

    async fn account(&self, request: &Request<'_>, account: &str) -> Result<Arc<Value>, ApiError> {
        // The controller makes `default` a moment after the namespace; like upstream, the first pods wait for it. Any
        // other account may have been made a moment ago. The reader offers no event to wait for, and a second is the
        // most a client is kept waiting.
        let attempts = if account == DEFAULT { self.attempts } else { self.attempts.min(2) };
        for attempt in 0..attempts {
            if attempt > 0 {
                tokio::time::sleep(self.pause).await;
            }
            if let Some(found) = self.reader.get(&SERVICE_ACCOUNTS, request.namespace, account) {
                return Ok(found);
            }
        }
        let namespace = request.namespace;
        Err(request.forbidden(format_args!(
            "error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
        )))
    }

    fn concerns(request: &Request<'_>) -> bool {
        let subresource = match request.operation {
            Operation::Create => "",
            _ => "ephemeralcontainers",
        };
        request.concerns("", "pods") && request.subresource == subresource
    }
}

#[async_trait::async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !Self::concerns(request) || request.operation != Operation::Create {
            return Ok(());
        }
        let Some(pod) = request.object.as_deref() else { return Ok(()) };
        // The kubelet deletes mirror pods whose spec is not the one it wrote.
        if is_mirror(pod) {
            return self.validate(request).await;
        }
        let mut wanted = text(pod, "/spec/serviceAccountName").to_owned();
        if wanted.is_empty() {
            wanted = DEFAULT.into();
        }
        let account = self.account(request, &wanted).await?;
        let Some(pod) = request.object.as_deref_mut() else { return Ok(()) };
        let spec = child_mut(pod, "spec");
        spec.insert("serviceAccountName".into(), json!(wanted));
        spec.insert("serviceAccount".into(), json!(wanted));
        let automount = |object: Option<&Value>| object.and_then(Value::as_bool);
        let mount = automount(spec.get("automountServiceAccountToken"))
            .or_else(|| automount(account.get("automountServiceAccountToken")))
            .unwrap_or(true);
        if mount {
            mount_token(spec);
        }
        if spec.get("imagePullSecrets").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            let secrets: Vec<Value> =
                items(&account, "/imagePullSecrets").iter().map(|s| json!({"name": text(s, "/name")})).collect();
            if !secrets.is_empty() {
                spec.insert("imagePullSecrets".into(), json!(secrets));
            }
        }
        // Upstream refuses here already, before other errors of the pod are told.
        self.validate(request).await
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !Self::concerns(request) {
            return Ok(());
        }
        let Some(pod) = request.object.as_deref() else { return Ok(()) };
        if request.operation == Operation::Create && is_mirror(pod) {
            return match mirror_refers(pod) {
                Some(why) => Err(request.forbidden(why)),
                None => Ok(()),
            };
        }
        let wanted = text(pod, "/spec/serviceAccountName");
        let account = self.account(request, wanted).await?;
        let enforced = annotations(&account).get(ENFORCE_SECRETS).and_then(Value::as_str);
        if matches!(enforced, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
            && let Err(why) = limit_secrets(&account, pod)
        {
            return Err(request.forbidden(why));
        }
        Ok(())
    }
}

fn mirror_refers(pod: &Value) -> Option<&'static str> {
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    let volumes = items(pod, "/spec/volumes");
    if crate::pod::refers_to_secrets(pod) {
        return Some("a mirror pod may not reference secrets");
    }
    let projected = |volume: &Value| {
        items(volume, "/projected/sources").iter().any(|source| is_set(source, "/serviceAccountToken"))
    };
    volumes.iter().any(projected).then_some("a mirror pod may not use service account token projections")
}

fn mount_token(spec: &mut serde_json::Map<String, Value>) {
    let volumes = spec.get("volumes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let existing = volumes.iter().map(|volume| text(volume, "/name")).find(|name| name.starts_with(VOLUME_PREFIX));
    let present = existing.is_some();
    let volume = existing.map_or_else(volume_name, str::to_owned);
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            let mounts = list_mut(container, "volumeMounts");
            if !mounts.iter().any(|mount| text(mount, "/mountPath") == MOUNT_PATH) {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
                needed = true;
            }
        }
    }
    if needed && !present {
        list_mut(spec, "volumes").push(json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
    }
}

fn volume_name() -> String {
    let mut random = rand::rng();
    let letters = (0..5).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())]));
    VOLUME_PREFIX.chars().chain(letters).collect()
}

/// An account may limit its pods to the Secrets it lists.
fn limit_secrets(account: &Value, pod: &Value) -> Result<(), String> {
    let allowed: Vec<&str> = items(account, "/secrets").iter().map(|secret| text(secret, "/name")).collect();
    let account_name = name(account);
    for volume in items(pod, "/spec/volumes").iter().filter(|volume| is_set(volume, "/secret")) {
        let secret = text(volume, "/secret/secretName");
        if !allowed.contains(&secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {account_name} does not reference that secret"
            ));
        }
    }
    for (list, title) in [
        ("initContainers", "init container"),
        ("containers", "container"),
        ("ephemeralContainers", "ephemeral container"),
    ] {
        for container in items(pod, &format!("/spec/{list}")) {
            let container_name = text(container, "/name");
            for variable in items(container, "/env").iter().filter(|v| is_set(v, "/valueFrom/secretKeyRef")) {
                let secret = text(variable, "/valueFrom/secretKeyRef/name");
                if !allowed.contains(&secret) {
                    return Err(format!(
                        "{title} {container_name} with envVar {} referencing secret.secretName=\"{secret}\" is not allowed because service account {account_name} does not reference that secret",
                        text(variable, "/name")
                    ));
                }
            }
            for source in items(container, "/envFrom").iter().filter(|source| is_set(source, "/secretRef")) {
                let secret = text(source, "/secretRef/name");
                if !allowed.contains(&secret) {
                    return Err(format!(
                        "{title} {container_name} with envFrom referencing secret.secretName=\"{secret}\" is not allowed because service account {account_name} does not reference that secret"
                    ));
                }
            }
        }
    }
    let pull: Vec<&str> = items(account, "/imagePullSecrets").iter().map(|secret| text(secret, "/name")).collect();
    for (number, reference) in items(pod, "/spec/imagePullSecrets").iter().enumerate() {
        let secret = text(reference, "/name");
        if !pull.contains(&secret) {
            return Err(format!(
                "imagePullSecrets[{number}].name=\"{secret}\" is not allowed because service account {account_name} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Objects};

    fn plugin() -> ServiceAccount {
        let objects = Objects::default();
        objects.put("", "serviceaccounts", json!({"metadata": {"name": "default", "namespace": "a"}}));
        objects.put(
            "",
            "serviceaccounts",
            json!({"metadata": {"name": "robot", "namespace": "a"},
            "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "reg"}]}),
        );
        objects.put(
            "",
            "serviceaccounts",
            json!({"metadata": {"name": "strict", "namespace": "a",
            "annotations": {ENFORCE_SECRETS: "true"}}, "secrets": [{"name": "ok"}]}),
        );
        ServiceAccount { reader: Arc::new(objects), attempts: 1, pause: Duration::ZERO }
    }

    async fn admit(pod: Value) -> Result<Value, String> {
        let plugin = plugin();
        let case = Case::create("", "pods", "a", pod);
        let object = case.mutate(&plugin).await.map_err(|e| e.0.message)?;
        let case = Case::create("", "pods", "a", object.clone());
        case.validate(&plugin).await.map_err(|e| e.0.message)?;
        Ok(object)
    }

    #[tokio::test]
    async fn the_token_is_mounted_where_nothing_else_is() {
        let pod = admit(json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "c"}, {"name": "d", "volumeMounts": [{"name": "v", "mountPath": MOUNT_PATH}]}],
            "initContainers": [{"name": "i"}], "volumes": [{"name": "v", "emptyDir": {}}]}}))
        .await
        .expect("admitted");
        assert_eq!(text(&pod, "/spec/serviceAccountName"), "default");
        let volume = text(&pod, "/spec/volumes/1/name");
        assert!(volume.starts_with(VOLUME_PREFIX) && volume.len() == VOLUME_PREFIX.len() + 5);
        for pointer in ["/spec/containers/0/volumeMounts/0/name", "/spec/initContainers/0/volumeMounts/0/name"] {
            assert_eq!(text(&pod, pointer), volume);
        }
        assert_eq!(items(&pod, "/spec/containers/1/volumeMounts").len(), 1);
    }

    #[tokio::test]
    async fn accounts_and_pods_may_decline() {
        let off = admit(json!({"spec": {"containers": [{}], "automountServiceAccountToken": false}})).await;
        assert!(off.expect("admitted").pointer("/spec/volumes").is_none());
        let robot =
            admit(json!({"spec": {"containers": [{}], "serviceAccountName": "robot"}})).await.expect("admitted");
        assert!(robot.pointer("/spec/volumes").is_none());
        assert_eq!(robot["spec"]["imagePullSecrets"], json!([{"name": "reg"}]));
    }

    #[tokio::test]
    async fn refusals_read_as_upstream() {
        let mirror = json!({"kubernetes.io/config.mirror": "x"});
        for (pod, want) in [
            (
                json!({"metadata": {"name": "c"}, "spec": {"serviceAccountName": "nobody"}}),
                "pods \"c\" is forbidden: error looking up service account a/nobody: serviceaccount \"nobody\" not found",
            ),
            (
                json!({"metadata": {"name": "m", "annotations": mirror}, "spec": {"serviceAccountName": "default"}}),
                "pods \"m\" is forbidden: a mirror pod may not reference service accounts",
            ),
            (
                json!({"metadata": {"name": "m", "annotations": mirror}, "spec": {"volumes": [{"secret": {}}]}}),
                "pods \"m\" is forbidden: a mirror pod may not reference secrets",
            ),
            (
                json!({"metadata": {"name": "s"}, "spec": {"serviceAccountName": "strict",
                    "volumes": [{"secret": {"secretName": "no"}}]}}),
                "pods \"s\" is forbidden: volume with secret.secretName=\"no\" is not allowed because service account strict does not reference that secret",
            ),
        ] {
            assert_eq!(admit(pod).await, Err(want.to_owned()));
        }
    }
}

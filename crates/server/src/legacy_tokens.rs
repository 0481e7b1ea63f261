//! Tokens of Secrets: who signs them, when they were last used, and since when that is written down.

use std::sync::Arc;

use anyhow::{Context, Result};
use ferry_auth::{LAST_USED, SigningKey, UsedToken};
use ferry_client::Api;
use ferry_client::write;
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;

const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

/// What makes a token of claims.
pub type SignToken = dyn Fn(&Value) -> Result<String, String> + Send + Sync;

/// Signs with the key of service-account tokens, given as PEM.
pub fn signer(key: &str) -> Result<Arc<SignToken>> {
    let key = SigningKey::from_pem(key).context("the service-account key is damaged")?;
    Ok(Arc::new(move |claims| key.sign(claims).map_err(|error| error.to_string())))
}

/// Says since when uses are written down: since the first server that did.
pub async fn track(client: Client) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let map = json!({
        "metadata": { "name": TRACKING, "namespace": "kube-system" }, "data": { "since": today.to_string() },
    });
    match maps.create(&PostParams::default(), &serde_json::from_value(map)?).await {
        Err(error) if !write::is_already_exists(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes the day of a token's last use beside it.
pub fn note_uses(client: Client, mut uses: mpsc::Receiver<UsedToken>, tasks: &Tasks) {
    tasks.spawn_critical_once("token uses", async move {
        let mut last = None;
        while let Some(used) = uses.recv().await {
            // The same use is told until the cache has the label.
            if last.as_ref() == Some(&used) {
                continue;
            }
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &used.namespace);
            let label = json!({ "metadata": { "uid": used.uid, "labels": { LAST_USED: used.day } } });
            match secrets.patch(&used.secret, &PatchParams::default(), &Patch::Merge(&label)).await {
                Err(error) if !write::is_not_found(&error) && !write::is_conflict(&error) => {
                    tracing::warn!("cannot record the use of a legacy token: {}", write::short(&error));
                }
                _ => last = Some(used),
            }
        }
    });
}

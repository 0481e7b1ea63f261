//! What the API server is asked before a driver is: of the driver, the attachment, secrets and tokens.

use std::collections::{BTreeMap, HashMap};

use ferry_client::{Api, write};
use k8s_openapi::api::core::v1::{Pod, Secret, SecretReference, ServiceAccountTokenProjection};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, VolumeAttachment};
use serde_json::json;

use super::{Csi, Lifecycle, Wanted};
use crate::volumes::Unmounted;
use crate::volumes::tokens::Tokens;

impl Csi {
    /// What the cluster says of the driver. One that it does not know is taken as it comes, but not within pods.
    pub(super) async fn about(&self, wanted: &Wanted) -> Result<CSIDriverSpec, String> {
        let api: Api<CSIDriver> = Api::all(self.client.clone());
        let found = api.get_opt(&wanted.driver).await.map_err(|error| write::short(&error))?;
        let spec = found.map(|driver| driver.spec);
        if wanted.lifecycle == Lifecycle::Ephemeral {
            let (name, mode) = (&wanted.driver, Lifecycle::Ephemeral.name());
            let Some(spec) = &spec else {
                return Err(format!("volume mode {mode:?} not supported by driver {name} (no CSIDriver object)"));
            };
            if !spec.volume_lifecycle_modes.iter().flatten().any(|known| known == mode) {
                return Err(format!("volume mode {mode:?} not supported by driver {name} (only supports Persistent)"));
            }
        }
        Ok(spec.unwrap_or_default())
    }

    /// What the attacher left for the driver; a volume that is not attached yet is waited for.
    pub(super) async fn attached(&self, name: &str) -> Result<HashMap<String, String>, Unmounted> {
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let found = api.get_opt(name).await.map_err(|error| write::short(&error))?;
        let Some(status) = found.and_then(|attachment| attachment.status) else {
            return Err(Unmounted::NotYet(format!("volume attachment {name} is not there yet")));
        };
        if !status.attached {
            let why = status.attach_error.and_then(|error| error.message).unwrap_or_default();
            return Err(Unmounted::NotYet(format!("volume attachment {name} is not attached yet: {why}")));
        }
        Ok(status.attachment_metadata.unwrap_or_default().into_iter().collect())
    }

    pub(super) async fn secret(&self, reference: Option<&SecretReference>) -> Result<HashMap<String, String>, String> {
        let Some(reference) = reference else { return Ok(HashMap::new()) };
        let (namespace, name) = (reference.namespace.as_deref(), reference.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = api.get(name).await;
        let secret =
            secret.map_err(|error| format!("fetching secret {namespace}/{name} failed: {}", write::short(&error)))?;
        let data = secret.data.unwrap_or_default();
        Ok(data.into_iter().map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned())).collect())
    }

    /// Tokens of the pod's account for the audiences the driver names.
    pub(super) async fn tokens(
        &self,
        pod: &Pod,
        about: &CSIDriverSpec,
        tokens: &Tokens,
    ) -> Result<Option<String>, String> {
        let Some(requests) = about.token_requests.as_ref().filter(|requests| !requests.is_empty()) else {
            return Ok(None);
        };
        let mut given = BTreeMap::new();
        for request in requests {
            let wanted = ServiceAccountTokenProjection {
                audience: Some(request.audience.clone()),
                expiration_seconds: request.expiration_seconds,
                ..ServiceAccountTokenProjection::default()
            };
            let token = tokens.get(pod, &wanted).await?;
            let expires = ferry_meta::time::time(token.expires_at);
            given.insert(request.audience.clone(), json!({"token": token.text, "expirationTimestamp": expires}));
        }
        Ok(Some(json!(given).to_string()))
    }
}

//! A custom resource's definition is told when its objects are migrated, and which versions are left afterwards.

use ferry_client::{Api, write};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

const MANAGER: &str = "migration-runner-controller";
const CONDITION: &str = "StorageMigrating";

/// The definition of the resource, when it is a custom one.
pub(super) struct Definition {
    api: Api<DynamicObject>,
    name: String,
    now: Time,
}

impl Definition {
    pub(super) fn of(client: &Client, group: &str, resource: &str, now: Time) -> Self {
        let kind = ApiResource {
            group: "apiextensions.k8s.io".into(),
            version: "v1".into(),
            api_version: "apiextensions.k8s.io/v1".into(),
            kind: "CustomResourceDefinition".into(),
            plural: "customresourcedefinitions".into(),
        };
        Self { api: Api::all_with(client.clone(), &kind), name: format!("{resource}.{group}"), now }
    }

    pub(super) async fn begin(&self, migration: &str) -> Result<(), kube::Error> {
        let message = format!("Migration {migration} is running");
        self.change(|_, _| ("True", "MigrationRunning", message.clone(), None)).await
    }

    pub(super) async fn finish(&self, success: bool) -> Result<(), kube::Error> {
        self.change(|definition, generation| {
            if !success {
                return ("False", "MigrationFailed", "The migration has failed".into(), None);
            }
            let conditions = definition.data.pointer("/status/conditions").and_then(Value::as_array);
            let known = conditions.into_iter().flatten().find(|condition| condition["type"] == CONDITION);
            // Versions may have changed while objects were migrated: then nothing can be said of what is stored.
            let same = known.is_some_and(|condition| condition["observedGeneration"] == json!(generation));
            let versions = definition.data.pointer("/spec/versions").and_then(Value::as_array);
            let stored = versions.into_iter().flatten().find(|version| version["storage"] == true);
            let left = stored.filter(|_| same).map(|version| version["name"].clone());
            let message = if same {
                "The migration has succeeded and the stored versions have been updated"
            } else {
                "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
            };
            ("False", "MigrationSucceeded", message.to_owned(), left)
        })
        .await
    }

    async fn change<F>(&self, condition: F) -> Result<(), kube::Error>
    where
        F: Fn(&DynamicObject, i64) -> (&'static str, &'static str, String, Option<Value>),
    {
        write::retry_on_conflict(|| async {
            let Some(definition) = self.api.get_opt(&self.name).await? else { return Ok(()) };
            let generation = definition.metadata.generation.unwrap_or_default();
            let (status, reason, message, stored) = condition(&definition, generation);
            let mut wanted = json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": { "name": self.name, "resourceVersion": definition.metadata.resource_version },
                "status": { "conditions": [{
                    "type": CONDITION, "status": status, "reason": reason, "message": message,
                    "lastTransitionTime": self.now, "observedGeneration": generation,
                }] },
            });
            if let Some(stored) = stored {
                wanted["status"]["storedVersions"] = json!([stored]);
            }
            let force = PatchParams::apply(MANAGER).force();
            self.api.patch_status(&self.name, &force, &Patch::Apply(wanted)).await.map(|_| ())
        })
        .await
    }
}

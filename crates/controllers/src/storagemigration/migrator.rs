//! StorageVersionMigration: every object of a resource is written again, so that the store holds it in today's version.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::discovery::{self, ServerResource};
use ferry_client::{Api, Clock, Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::GroupResource;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use serde_json::json;

use super::definition::Definition;
use super::plan::{self, Told};
use crate::Context;

type Metadata = PartialObjectMeta<DynamicObject>;

const NAME: &str = "storage-version-migrator-controller";
const NEEDED: [&str; 3] = ["update", "patch", "list"];
const PAGE: u32 = 500;
/// A resource may be younger than what discovery tells: so long it is looked for.
const PATIENCE: Duration = Duration::from_secs(60);
const RUNNING: &str = "MigrationRunning";
const FAILED: &str = "StorageVersionMigrationFailed";

struct Reconciler {
    client: Client,
    migrations: Informer<StorageVersionMigration>,
    clock: Clock,
}

pub(crate) fn start(context: &Context) {
    let queue: WorkQueue<ObjectKey> = context.queue("storage-version-migrator-controller");
    let this = Arc::new(Reconciler {
        client: context.client(NAME),
        migrations: context.informers.of(),
        clock: context.config.clock.clone(),
    });
    let (handler, keys) = (this.clone(), queue.clone());
    this.migrations.on_change(move |change| {
        keys.add(ObjectKey::of(&**change.object()));
        // One that ended or went makes room for the next.
        for other in handler.migrations.list().iter().filter(|other| !plan::is_over(other)) {
            keys.add(ObjectKey::of(&**other));
        }
    });
    let synced = this.migrations.clone();
    let ready = async move { synced.synced().await };
    // One worker: two migrations of a resource must not both find that none is running.
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(known) = self.migrations.get_key(key) else { return Ok(Action::Done) };
        let mut migration = (*known).clone();
        let Some(wanted) = migration.spec.as_ref().map(|spec| spec.resource.clone()) else { return Ok(Action::Done) };
        let definition = self.definition(&wanted);
        if plan::is_over(&migration) {
            if plan::is_true(&migration, "Running") {
                let succeeded = plan::is_true(&migration, "Succeeded");
                return self.end(migration, succeeded).await;
            }
            return Ok(Action::Done);
        }
        if !plan::is_true(&migration, "Running") {
            if !plan::is_next(&migration, &self.migrations.list()) {
                return Ok(Action::Done);
            }
            definition.begin(&key.name).await?;
            self.set(&mut migration, "Running", "True", RUNNING, "The migration is running".into());
            return self.tell(migration).await;
        }
        let served = discovery::resources(&self.client).await?.resources;
        let found = served
            .into_iter()
            .find(|served| served.resource.group == wanted.group && served.resource.plural == wanted.resource);
        let Some(found) = found else {
            let made = migration.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
            if self.clock.now().duration_since(made).unsigned_abs() < PATIENCE {
                return Err("the resource does not exist in discovery yet".into());
            }
            return self.fail(migration, "resource does not exist in discovery".into()).await;
        };
        let version = migration.status.as_ref().and_then(|status| status.resource_version.clone()).unwrap_or_default();
        if version.is_empty() {
            return self.begin(migration, &found).await;
        }
        self.rewrite(migration, &found, &version).await
    }

    fn definition(&self, of: &GroupResource) -> Definition {
        Definition::of(&self.client, &of.group, &of.resource, self.clock.time())
    }

    fn set(
        &self,
        migration: &mut StorageVersionMigration,
        kind: &str,
        state: &str,
        reason: &'static str,
        message: String,
    ) {
        plan::set(migration, kind, state, Told { reason, message, now: self.clock.time() });
    }

    /// Notes up to which version objects are to be written again.
    async fn begin(&self, mut migration: StorageVersionMigration, found: &ServerResource) -> Result<Action, Error> {
        if !NEEDED.iter().all(|verb| found.allows(verb)) {
            let resource = &found.resource;
            let message = format!(
                "resource \"{}, Resource={}\" does not support discovery operations: [{}]",
                resource.api_version.replace('/', ", Version="),
                resource.plural,
                NEEDED.join(" ")
            );
            return self.fail(migration, message).await;
        }
        let api: Api<Metadata> = Api::all_with(self.client.clone(), &found.resource);
        let list = api.list(&ListParams::default().limit(1)).await?;
        migration.status.get_or_insert_default().resource_version = list.metadata.resource_version;
        self.tell(migration).await
    }

    async fn rewrite(
        &self,
        mut migration: StorageVersionMigration,
        found: &ServerResource,
        version: &str,
    ) -> Result<Action, Error> {
        let Ok(version) = version.parse::<u64>() else {
            return self.fail(migration, format!("{version:?} is not a resource version")).await;
        };
        let all: Api<Metadata> = Api::all_with(self.client.clone(), &found.resource);
        let mut objects = Vec::new();
        let mut total = 0;
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = all.list(&page).await?;
            total += list.items.len();
            let old = list.items.into_iter().filter_map(|object| {
                let revision = object.metadata.resource_version.clone()?;
                // What was written since is in today's version already.
                (revision.parse::<u64>().ok()? <= version).then(|| (object.namespace(), object.name_any(), revision))
            });
            objects.extend(old);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        let count = objects.len();
        for (done, (namespace, name, revision)) in objects.into_iter().enumerate() {
            let api: Api<Metadata> = match &namespace {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &found.resource),
                None => all.clone(),
            };
            let patch = json!({
                "apiVersion": found.resource.api_version, "kind": found.resource.kind,
                "metadata": { "resourceVersion": revision },
            });
            let manager = PatchParams { field_manager: Some(NAME.into()), ..PatchParams::default() };
            match api.patch(&name, &manager, &Patch::Merge(patch)).await {
                Ok(_) => {}
                // Written or deleted meanwhile: nothing of the old version is left.
                Err(error) if write::is_conflict(&error) || write::is_not_found(&error) => {}
                Err(error) if is_passing(&error) => return Err(error.into()),
                Err(error) => {
                    let message = format!(
                        "{}/{total} not yet migrated. migration encountered unhandled error: {}",
                        count - done,
                        write::short(&error)
                    );
                    return self.fail(migration, message).await;
                }
            }
        }
        let words = "Migration completed".to_owned();
        self.set(&mut migration, "Succeeded", "True", "StorageVersionMigrationSucceeded", words);
        self.end(migration, true).await
    }

    async fn fail(&self, mut migration: StorageVersionMigration, message: String) -> Result<Action, Error> {
        self.set(&mut migration, "Failed", "True", FAILED, message);
        self.end(migration, false).await
    }

    /// The definition first: whoever sees the end of a migration finds the versions that are left.
    async fn end(&self, mut migration: StorageVersionMigration, success: bool) -> Result<Action, Error> {
        if let Some(wanted) = migration.spec.as_ref().map(|spec| &spec.resource) {
            self.definition(wanted).finish(success).await?;
        }
        self.set(&mut migration, "Running", "False", "MigrationCompleted", "Migration completed".into());
        self.tell(migration).await
    }

    async fn tell(&self, migration: StorageVersionMigration) -> Result<Action, Error> {
        let api: Api<StorageVersionMigration> = Api::all(self.client.clone());
        match api.replace_status(&migration.name_any(), &PostParams::default(), &migration).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}

/// Errors that another attempt may not meet.
fn is_passing(error: &kube::Error) -> bool {
    match write::status_of(error) {
        None => true,
        Some(status) => matches!(status.code, 429 | 500 | 503 | 504),
    }
}

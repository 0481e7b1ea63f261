//! `apply --prune`: objects that were applied once and are in the files no more.

use std::collections::{BTreeSet, HashSet};

use http::Method;
use serde_json::{Value, json};

use super::common::{DryRun, LAST_APPLIED, Report};
use crate::client::Call;
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::log;
use crate::resource::{Info, Selection, list, of_object};
use crate::session::Context;

/// What is pruned where no kinds are named.
const KINDS: [(&str, &str); 16] = [
    ("v1", "ConfigMap"),
    ("v1", "Endpoints"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Pod"),
    ("v1", "ReplicationController"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("networking.k8s.io/v1", "Ingress"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("v1", "Namespace"),
    ("v1", "PersistentVolume"),
];

/// What one run has applied.
#[derive(Default)]
pub struct Visited {
    pub uids: HashSet<String>,
    pub namespaces: BTreeSet<String>,
}

impl Visited {
    pub fn begin(&mut self, info: &Info) {
        self.namespaces.extend(info.namespace.clone());
    }

    pub fn applied(&mut self, object: &Value) {
        self.uids.extend(object["metadata"]["uid"].as_str().map(str::to_owned));
    }

    pub fn has(&self, object: &Value) -> bool {
        object["metadata"]["uid"].as_str().is_some_and(|uid| self.uids.contains(uid))
    }
}

/// The kinds of `--prune-allowlist`, each `group/version/kind`.
pub async fn allowed(context: &Context) -> Result<Vec<Resource>> {
    let mut found = Vec::new();
    for text in context.flags.list("prune-allowlist") {
        let parts: Vec<&str> = text.split('/').collect();
        let [group, version, kind] = &*parts else {
            return Err(Error::say(format!(
                "invalid GroupVersionKind format: {text}, please follow <group/version/kind>"
            )));
        };
        let api_version = match *group {
            "core" | "" => (*version).to_owned(),
            group => format!("{group}/{version}"),
        };
        found.push(context.kind(&api_version, kind).await?);
    }
    Ok(found)
}

/// Deletes what has the labels, was applied, and was not visited.
pub async fn run(context: &Context, report: &Report, kinds: Vec<Resource>, visited: &Visited) -> Result<()> {
    if kinds.is_empty() {
        log::warning(
            "prune.go:71",
            "Deprecated: kubectl apply will no longer prune non-namespaced resources by default when used with the --namespace flag in a future release. To preserve the current behaviour, list the resources you want to target explicitly in the --prune-allowlist flag.",
        );
    }
    for (resource, namespace) in places(context, kinds, visited).await? {
        for info in of_kind(context, &resource, namespace.as_ref(), visited).await? {
            let removed = remove(context, report, &info).await;
            removed.map_err(|error| failed(&resource, namespace.is_some(), &error))?;
        }
    }
    Ok(())
}

/// What would be deleted.
pub async fn unvisited(context: &Context, kinds: Vec<Resource>, visited: &Visited) -> Result<Vec<Info>> {
    let mut found = Vec::new();
    for (resource, namespace) in places(context, kinds, visited).await? {
        found.extend(of_kind(context, &resource, namespace.as_ref(), visited).await?);
    }
    Ok(found)
}

/// Every kind in every namespace that was visited, then those that have none.
async fn places(
    context: &Context,
    mut kinds: Vec<Resource>,
    visited: &Visited,
) -> Result<Vec<(Resource, Option<String>)>> {
    if kinds.is_empty() {
        for (api_version, kind) in KINDS {
            kinds.push(context.kind(api_version, kind).await?);
        }
    }
    let (namespaced, others): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|kind| kind.namespaced);
    let mut places = Vec::new();
    for namespace in &visited.namespaces {
        places.extend(namespaced.iter().map(|kind| (kind.clone(), Some(namespace.clone()))));
    }
    places.extend(others.into_iter().map(|kind| (kind, None)));
    Ok(places)
}

fn failed(resource: &Resource, namespaced: bool, error: &Error) -> Error {
    let scope = if namespaced { "namespaced" } else { "nonNamespaced" };
    let (group, version, kind) = (&resource.group, &resource.version, &resource.kind);
    Error::say(format!("error pruning {scope} object {group}/{version}, Kind={kind}: {}", error.inner()))
}

async fn of_kind(
    context: &Context,
    resource: &Resource,
    namespace: Option<&String>,
    visited: &Visited,
) -> Result<Vec<Info>> {
    let selection = Selection {
        resource: resource.clone(),
        namespace: namespace.cloned(),
        labels: context.flags.text("selector").to_owned(),
        fields: String::new(),
    };
    let found = list(context, &selection, 0).await;
    let found = found.map_err(|error| failed(resource, namespace.is_some(), &error))?;
    // What others made is not ours to delete.
    let ours = |object: &Value| !object["metadata"]["annotations"][LAST_APPLIED].is_null() && !visited.has(object);
    Ok(found.into_iter().filter(ours).map(|object| of_object(resource, object)).collect())
}

/// Deletes one object, and says so.
pub async fn remove(context: &Context, report: &Report, info: &Info) -> Result<()> {
    if report.dry_run != DryRun::Client {
        let mut options = json!({"propagationPolicy": super::delete::propagation(&context.flags)?});
        if context.flags.int("grace-period") >= 0 {
            options["gracePeriodSeconds"] = context.flags.int("grace-period").into();
        }
        if report.dry_run == DryRun::Server {
            options["dryRun"] = json!(["All"]);
        }
        context.client().await?.json(Call::new(Method::DELETE, info.path()).json(&options)).await?;
    }
    report.done(info, &info.object, "pruned")
}

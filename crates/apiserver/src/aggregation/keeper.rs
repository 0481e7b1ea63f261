//! Keeps the servers behind this one in view: which there are, whether they answer, and what they serve; and lists the
//! groups of custom resources among the APIServices.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ferry_meta::object::text;
use ferry_meta::{ApiError, GroupResource, ObjectReader, object, time};
use ferry_registry::Resource;
use futures::{FutureExt, StreamExt};
use http::Method;
use serde_json::{Value, json};

use super::check::{self, Found, Unavailable};
use super::{Remote, Remotes, ServiceReference};
use crate::cache::{FrameKind, Frames, StartFrom, WatchFrame, WatchOptions};
use crate::controlplane::bootstrap::Bootstrap;
use crate::custom_resources::definitions;
use crate::server::Core;
use crate::storage::{codec, objects};

/// Servers are asked again this often even when nothing is known to have changed.
const RECHECK: Duration = Duration::from_secs(30);
const BACKOFF: Duration = Duration::from_millis(200);
/// Marks the APIServices that stand for definitions of custom resources.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const COLLECTION: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// `token` is that of a caller in system:masters.
pub(crate) async fn run(core: Arc<Core>, token: String) {
    let table = core.table();
    let Some(row) = table.find("apiregistration.k8s.io", "v1", "apiservices").cloned() else {
        return std::future::pending().await;
    };
    let keeper = Keeper { core, row, token };
    loop {
        if let Err(why) = keeper.follow().await {
            tracing::warn!("APIServices cannot be watched: {why}");
        }
        tokio::time::sleep(BACKOFF).await;
    }
}

struct Keeper {
    core: Arc<Core>,
    row: Arc<Resource>,
    token: String,
}

impl Keeper {
    async fn watch(&self, group: &str, plural: &str) -> Result<Frames, String> {
        let table = self.core.table();
        let row = table.find(group, "v1", plural).ok_or_else(|| format!("{plural} is not served"))?;
        let cache = self.core.cache.resource(&row.storage_prefix).ok_or_else(|| format!("{plural} is not cached"))?;
        let options = WatchOptions { from: StartFrom::Unset, ..WatchOptions::default() };
        self.core.cache.watch(&cache, options).await.map_err(|e| e.to_string())
    }

    async fn follow(&self) -> Result<(), String> {
        let mut registered = self.watch("apiregistration.k8s.io", "apiservices").await?;
        let mut services = self.watch("", "services").await?;
        let mut slices = self.watch("discovery.k8s.io", "endpointslices").await?;
        let mut due = tokio::time::interval(RECHECK);
        loop {
            let any = !self.core.aggregation.remotes().is_empty();
            let concerned = tokio::select! {
                frame = registered.next() => {
                    let Some(frame) = frame else { return Ok(()) };
                    drain(&mut registered);
                    self.register_custom().await;
                    frame.kind != FrameKind::Bookmark
                }
                frame = services.next() => self.concerns(&frame.ok_or("the watch of services ended")?),
                frame = slices.next() => self.concerns(&frame.ok_or("the watch of endpointslices ended")?),
                () = self.core.aggregation.table_changed.notified() => {
                    self.register_custom().await;
                    false
                }
                _ = due.tick(), if any => true,
            };
            if concerned {
                self.refresh().await;
            }
        }
    }

    /// Whether a Service or its endpoints belong to a server behind this one.
    fn concerns(&self, frame: &WatchFrame) -> bool {
        let Some(object) = &frame.object else { return false };
        self.core.aggregation.remotes().iter().any(|r| r.service.namespace == object.namespace())
    }

    fn all(&self) -> Vec<Arc<Value>> {
        self.core.cache.list(&GroupResource::new("apiregistration.k8s.io", "apiservices"), "")
    }

    async fn refresh(&self) {
        let old = self.core.aggregation.remotes();
        let mut remotes: Remotes = self.all().iter().filter_map(|object| self.remote(object, &old)).collect();
        remotes.sort_by_key(|r| {
            (-r.group_priority, r.group.clone(), -r.version_priority, std::cmp::Reverse(r.version.clone()))
        });
        if self.core.resource_metrics.as_ref().is_some_and(|own| own.give_way(&remotes)) {
            definitions::swap(&self.core);
        }
        if remotes.is_empty() && old.is_empty() {
            return;
        }
        // Known before it is checked: requests get 503 from now on, not 404.
        self.core.aggregation.remotes.store(Arc::new(remotes.clone()));
        let checks = remotes.iter().map(|remote| check::check(&self.core, remote).boxed());
        let outcomes = futures::future::join_all(checks).await;
        let seen: Remotes = remotes.iter().zip(&outcomes).map(|(remote, outcome)| after(remote, outcome)).collect();
        self.core.aggregation.remotes.store(Arc::new(seen));
        for (remote, outcome) in remotes.iter().zip(&outcomes) {
            if let Err(error) = self.tell(remote, outcome).await {
                tracing::debug!("the status of {}.{} is not written: {error}", remote.version, remote.group);
            }
        }
    }

    /// The other server that an APIService names; none for what this server answers itself.
    fn remote(&self, object: &Value, old: &Remotes) -> Option<Arc<Remote>> {
        let spec = object.get("spec")?;
        let service = spec.get("service").filter(|service| service.is_object())?;
        let (group, version) = (text(spec, "/group"), text(spec, "/version"));
        let known = old.iter().find(|r| r.group == group && r.version == version);
        if let Some(known) = known.filter(|known| known.made_of == *spec) {
            return Some(known.clone());
        }
        let number = |at: &Value, key: &str| at.get(key).and_then(Value::as_i64).unwrap_or(0);
        Some(Arc::new(Remote {
            group: group.to_owned(),
            version: version.to_owned(),
            group_priority: number(spec, "groupPriorityMinimum"),
            version_priority: number(spec, "versionPriority"),
            service: ServiceReference {
                namespace: text(service, "/namespace").to_owned(),
                name: text(service, "/name").to_owned(),
                port: u16::try_from(number(service, "port")).ok().filter(|p| *p > 0).unwrap_or(443),
            },
            tls: check::tls(spec, self.core.aggregation.front_proxy.as_ref()),
            made_of: spec.clone(),
            // One that was changed stays what it was until it has been asked again.
            available: known.is_some_and(|known| known.available),
            resources: known.and_then(|known| known.resources.clone()),
            openapi: known.and_then(|known| known.openapi.clone()),
        }))
    }

    async fn tell(&self, remote: &Remote, outcome: &Result<Found, Unavailable>) -> Result<(), ApiError> {
        let wanted = match outcome {
            Ok(_) => condition("True", "Passed", "all checks passed"),
            Err(why) => condition("False", why.reason, &why.message),
        };
        let name = format!("{}.{}", remote.version, remote.group);
        let changed = objects::modify_status(&self.core, &self.row, &name, "kube-apiserver", |live| {
            if live.get("spec") == Some(&remote.made_of) {
                objects::set_condition(object::child_mut(live, "status"), wanted.clone());
            }
        });
        match changed.await {
            Err(error) if error.code() != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// One APIService for every group version of custom resources, and none for those that are gone.
    async fn register_custom(&self) {
        let table = self.core.table();
        let wanted: BTreeSet<(String, String)> = (table.rows().iter())
            .filter(|row| codec::is_custom(row))
            .map(|row| (row.gvk.group.clone(), row.gvk.version.clone()))
            .collect();
        let all = self.all();
        let key = |object: &Value| (text(object, "/spec/group").to_owned(), text(object, "/spec/version").to_owned());
        let there: BTreeSet<(String, String)> = all.iter().map(|object| key(object)).collect();
        let caller = Bootstrap { core: &self.core, token: &self.token };
        for (group, version) in wanted.difference(&there) {
            if let Err(error) = caller.api_service(group.clone(), version.clone()).await {
                tracing::warn!("the APIService of {group}/{version} is not made: {error}");
            }
        }
        let managed =
            |object: &&Arc<Value>| object::labels(object).get(MANAGED).and_then(Value::as_str) == Some("true");
        for object in all.iter().filter(managed).filter(|object| !wanted.contains(&key(object))) {
            let path = format!("{COLLECTION}/{}", object::name(object));
            if let Err(error) = caller.call(Method::DELETE, &path, None).await {
                tracing::warn!("{path} is not deleted: {error}");
            }
        }
    }
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    let now = time::time(time::now());
    json!({"type": "Available", "status": status, "lastTransitionTime": now, "reason": reason, "message": message})
}

/// What is known of a server after a check. What an unreachable one served last stays listed, as stale.
fn after(remote: &Remote, outcome: &Result<Found, Unavailable>) -> Arc<Remote> {
    let mut seen = remote.clone();
    seen.available = outcome.is_ok();
    if let Ok(found) = outcome {
        seen.resources = Some(found.resources.clone());
        seen.openapi.clone_from(&found.openapi);
    }
    Arc::new(seen)
}

/// Takes what is there already: one look serves all of it.
fn drain(frames: &mut Frames) {
    while let Some(Some(_)) = frames.next().now_or_never() {}
}

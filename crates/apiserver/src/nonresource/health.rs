//! `/healthz`, `/livez` and `/readyz`: all checks, each by itself, or in detail.

use ferry_meta::ApiError;
use ferry_tasks::Health;

use crate::request::context::RequestContext;
use crate::response::answer::Answer;
use crate::server::Core;

/// What is started after the server, in upstream's order. Here all but custom resources is there before the first
/// connection is taken; the names are what monitoring asks for.
const STARTED: [&str; 30] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// Upstream's checks of one of the three, in the order they are told.
pub(crate) fn checks(root: &str) -> impl Iterator<Item = &'static str> {
    let (before, after): (&[&str], &[&str]) = match root {
        "readyz" => (&["ping", "log", "etcd", "etcd-readiness", "informer-sync"], &["shutdown"]),
        _ => (&["ping", "log", "loopback-serving-certificate", "etcd"], &[]),
    };
    before.iter().chain(&STARTED).chain(after).copied()
}

/// The task of this server that does what a check of upstream's stands for, by the end of its name.
fn task_behind(check: &str) -> Option<&'static str> {
    Some(match check.strip_prefix("poststarthook/").unwrap_or(check) {
        "informer-sync" | "generic-apiserver-start-informers" | "storage-object-count-tracker-hook" => "/watch-cache",
        "start-apiextensions-informers" | "start-apiextensions-controllers" | "crd-informer-synced" => {
            "/custom-resource-definitions"
        }
        "priority-and-fairness-config-consumer" | "priority-and-fairness-config-producer" => "/flow-schema-conditions",
        "start-cluster-authentication-info-controller" => "/client-trust",
        "start-kube-apiserver-identity-lease-controller"
        | "start-kube-apiserver-identity-lease-garbage-collector"
        | "peer-endpoint-reconciler-controller" => "/lease-of-this-server",
        "start-legacy-token-tracking-controller" => "/token-uses",
        "start-service-ip-repair-controllers" => "/addresses-of-Services",
        "loopback-serving-certificate" => "/certificates",
        "autoregister-completion" | "kube-apiserver-autoregistration" | "start-kube-aggregator-informers" => {
            "/aggregation"
        }
        other if other.starts_with("apiservice-") => "/aggregation",
        _ => return None,
    })
}

/// How everything is that the process relies on.
pub(crate) struct Checks<'a> {
    core: &'a Core,
    tasks: Vec<Health>,
}

impl<'a> Checks<'a> {
    pub(crate) fn of(core: &'a Core) -> Self {
        Self { core, tasks: core.tasks.root().health() }
    }

    /// Upstream's checks, and behind them every critical task of the process and every runtime by its own name. What is not
    /// alive is told where the process may be started again for it.
    pub(crate) fn names(&self, root: &str) -> Vec<&str> {
        let mut names: Vec<&str> = checks(root).collect();
        if root != "readyz" {
            names.extend(self.tasks.iter().map(|health| &*health.name));
        }
        names
    }

    pub(crate) async fn check(&self, name: &str) -> Result<(), String> {
        let core = self.core;
        match name {
            // An alarm, such as a full disk, is no reason to restart this process: it fails readiness alone.
            "etcd" => return core.store.answers().await.map_err(|e| e.to_string()),
            "etcd-readiness" => return core.store.health().await.map_err(|e| e.to_string()),
            "shutdown" if core.tasks.stopping().is_cancelled() => return Err("process is shutting down".into()),
            "informer-sync" | "poststarthook/crd-informer-synced" if !core.definitions.is_synced() => {
                return Err("custom resources are not served yet".into());
            }
            _ => {}
        }
        let behind = task_behind(name);
        let is_meant = |health: &&Health| health.name == name || behind.is_some_and(|task| health.name.ends_with(task));
        let failure = self.tasks.iter().filter(is_meant).find_map(|health| health.failure.clone());
        failure.map_or(Ok(()), Err)
    }
}

pub(crate) async fn handle(
    core: &Core,
    context: &RequestContext,
    root: &str,
    rest: &[&str],
) -> Result<Answer, ApiError> {
    let state = Checks::of(core);
    let names = state.names(root);
    if !rest.is_empty() {
        let wanted = rest.join("/");
        return Ok(match names.into_iter().find(|name| *name == wanted) {
            None => Answer::no_such_page(),
            Some(one) => match state.check(one).await {
                Ok(()) => Answer::text(200, "ok"),
                Err(why) => Answer::text(500, format!("internal server error: {why}\n")),
            },
        });
    }
    let mut excluded: Vec<&str> = context.query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    for name in names {
        if excluded.contains(&name) {
            excluded.retain(|known| *known != name);
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        match state.check(name).await {
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(why) => {
                failed = true;
                tracing::warn!(check = name, "not healthy: {why}");
                lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
    }
    excluded.sort_unstable();
    excluded.dedup();
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(",");
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    if failed {
        return Ok(Answer::text(500, format!("{lines}{root} check failed\n")));
    }
    if context.query.has("verbose") {
        return Ok(Answer::text(200, format!("{lines}{root} check passed\n")));
    }
    Ok(Answer::text(200, "ok"))
}

#[cfg(test)]
mod tests {
    use super::{STARTED, checks, task_behind};

    #[test]
    fn checks_are_told_in_order() {
        for (root, first, last, count) in [
            ("livez", "ping", "poststarthook/apiservice-openapiv3-controller", 34),
            ("healthz", "ping", "poststarthook/apiservice-openapiv3-controller", 34),
            ("readyz", "ping", "shutdown", 36),
        ] {
            let names: Vec<&str> = checks(root).collect();
            assert_eq!((names.first(), names.last(), names.len()), (Some(&first), Some(&last), count), "{root}");
        }
        assert!(!checks("readyz").any(|name| name == "loopback-serving-certificate"));
    }

    /// What is written once, before the first connection is taken, has no task behind it.
    #[test]
    fn checks_without_a_task_are_those_of_the_start() {
        let without: Vec<&str> = STARTED.into_iter().filter(|check| task_behind(check).is_none()).collect();
        assert_eq!(
            without,
            [
                "poststarthook/start-apiserver-admission-initializer",
                "poststarthook/priority-and-fairness-filter",
                "poststarthook/start-system-namespaces-controller",
                "poststarthook/storage-readiness",
                "poststarthook/rbac/bootstrap-roles",
                "poststarthook/scheduling/bootstrap-system-priority-classes",
                "poststarthook/bootstrap-controller",
                "poststarthook/start-kubernetes-service-cidr-controller",
            ]
        );
    }
}

//! `/healthz`, `/livez` and `/readyz`: all checks, each by itself, or in detail.

use ferry_meta::ApiError;

use crate::answer::Answer;
use crate::context::RequestContext;
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

/// The checks of one of the three, in the order they are told.
pub(crate) fn checks(root: &str) -> impl Iterator<Item = &'static str> {
    let (before, after): (&[&str], &[&str]) = match root {
        "readyz" => (&["ping", "log", "etcd", "etcd-readiness", "informer-sync"], &["shutdown"]),
        _ => (&["ping", "log", "loopback-serving-certificate", "etcd"], &[]),
    };
    before.iter().chain(&STARTED).chain(after).copied()
}

pub(crate) async fn handle(
    core: &Core,
    context: &RequestContext,
    root: &str,
    rest: &[&str],
) -> Result<Answer, ApiError> {
    if !rest.is_empty() {
        let wanted = rest.join("/");
        return Ok(match checks(root).find(|name| *name == wanted) {
            None => Answer::no_such_page(),
            Some(one) => match check(core, one).await {
                Ok(()) => Answer::text(200, "ok"),
                Err(why) => Answer::text(500, format!("internal server error: {why}\n")),
            },
        });
    }
    let mut excluded: Vec<&str> = context.query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    for name in checks(root) {
        if excluded.contains(&name) {
            excluded.retain(|known| *known != name);
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        match check(core, name).await {
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

pub(crate) async fn check(core: &Core, name: &str) -> Result<(), String> {
    match name {
        "etcd" | "etcd-readiness" => core.store.health().await.map_err(|e| e.to_string()),
        "shutdown" if core.tasks.stopping().is_cancelled() => Err("process is shutting down".into()),
        "informer-sync" | "poststarthook/crd-informer-synced" if !core.definitions.is_synced() => {
            Err("custom resources are not served yet".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::checks;

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
}

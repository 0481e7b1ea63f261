//! `/healthz`, `/livez` and `/readyz`: all checks, each by itself, or in detail.

use ferry_meta::ApiError;

use crate::answer::Answer;
use crate::context::RequestContext;
use crate::server::Core;

pub(crate) async fn handle(
    core: &Core,
    context: &RequestContext,
    root: &str,
    rest: &[&str],
) -> Result<Answer, ApiError> {
    let names: &[&str] =
        if root == "readyz" { &["ping", "log", "etcd", "informer-sync", "shutdown"] } else { &["ping", "log", "etcd"] };
    match rest {
        [] => {}
        [one] if names.contains(one) => {
            return Ok(match check(core, one).await {
                Ok(()) => Answer::text(200, "ok"),
                Err(why) => Answer::text(500, format!("internal server error: {why}\n")),
            });
        }
        _ => return Ok(Answer::no_such_page()),
    }
    let excluded: Vec<&str> = context.query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    for name in names {
        if excluded.contains(name) {
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
    for name in excluded.iter().filter(|n| !names.contains(n)) {
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {name:?}\n"));
    }
    if failed {
        return Ok(Answer::text(500, format!("{lines}{root} check failed\n")));
    }
    if context.query.has("verbose") {
        return Ok(Answer::text(200, format!("{lines}{root} check passed\n")));
    }
    Ok(Answer::text(200, "ok"))
}

async fn check(core: &Core, name: &str) -> Result<(), String> {
    match name {
        "etcd" => core.store.health().await.map_err(|e| e.to_string()),
        "shutdown" if core.tasks.stopping().is_cancelled() => Err("process is shutting down".into()),
        "informer-sync" if !core.definitions.is_synced() => Err("custom resources are not served yet".into()),
        _ => Ok(()),
    }
}

//! `/checkpoint/{namespace}/{pod}/{container}`: what a container is at this moment, as an archive on the node. The runtime
//! makes it, if it knows how.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use http::{Method, Response, StatusCode, Uri};
use jiff::Timestamp;

use super::{Body, Server, json, query, text};
use crate::pod;

impl Server {
    pub(super) async fn checkpoint(
        &self,
        method: &Method,
        namespace: &str,
        name: &str,
        container: &str,
        uri: &Uri,
    ) -> Response<Body> {
        if *method != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
        }
        let Some(object) = self.pods.get(namespace, name) else {
            return text(StatusCode::NOT_FOUND, "pod does not exist");
        };
        if pod::container(&object, container).is_none() {
            return text(StatusCode::NOT_FOUND, format!("container {container} does not exist"));
        }
        let Ok(timeout) = timeout(&query(uri)) else {
            return text(StatusCode::NOT_FOUND, "cannot parse value of timeout parameter");
        };
        let failed = |why: String| {
            let message = format!("checkpointing of {namespace}/{name}/{container} failed ({why})");
            text(StatusCode::INTERNAL_SERVER_ERROR, message)
        };
        let state = match self.state(&object).await {
            Ok(state) => state,
            Err(error) => return failed(error.to_string()),
        };
        let Some(record) = state.running().find(|record| record.name == container) else {
            return failed(format!("container {container} not found"));
        };
        let folder = self.context.config.root_dir.join("checkpoints");
        if let Err(error) = make(&folder).await {
            return failed(format!("making {}: {error}", folder.display()));
        }
        let archive = archive(&folder, namespace, name, container, self.context.clock.now());
        match self.context.runtime.checkpoint(&record.id, &archive, timeout).await {
            Ok(()) => json(&serde_json::json!({"items": [archive.to_string_lossy()]})),
            Err(error) => failed(error.to_string()),
        }
    }
}

/// Archives hold the memory of containers: nobody else reads them.
async fn make(folder: &Path) -> std::io::Result<()> {
    tokio::fs::create_dir_all(folder).await?;
    tokio::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).await
}

fn archive(folder: &Path, namespace: &str, name: &str, container: &str, now: Timestamp) -> PathBuf {
    let at = now.strftime("%Y-%m-%dT%H:%M:%SZ");
    folder.join(format!("checkpoint-{name}_{namespace}-{container}-{at}.tar"))
}

/// In seconds; of several, the last one. Zero for the runtime's own.
fn timeout(query: &[(String, String)]) -> Result<i64, std::num::ParseIntError> {
    let last = query.iter().rev().find(|(key, _)| key == "timeout");
    last.map_or(Ok(0), |(_, value)| value.parse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_named_by_pod_container_and_time() {
        let now = "2026-11-19T20:00:00.5Z".parse().expect("a time");
        let path = archive(Path::new("/var/lib/kubelet/checkpoints"), "default", "web", "nginx", now);
        let want = "/var/lib/kubelet/checkpoints/checkpoint-web_default-nginx-2026-11-19T20:00:00Z.tar";
        assert_eq!(path, Path::new(want));
    }

    #[test]
    fn the_last_timeout_counts() {
        let parse = |uri: &str| timeout(&query(&uri.parse().expect("a uri"))).ok();
        assert_eq!(parse("/checkpoint/a/b/c"), Some(0));
        assert_eq!(parse("/checkpoint/a/b/c?timeout=5&timeout=20"), Some(20));
        assert_eq!(parse("/checkpoint/a/b/c?timeout=soon"), None);
    }
}

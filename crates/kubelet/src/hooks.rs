//! Lifecycle hooks: what a container wants done after it started and before it is stopped.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use crate::probes::http;
use crate::runtime::Runtime;

const HTTP_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn run(
    runtime: &dyn Runtime,
    handler: &LifecycleHandler,
    container: &Container,
    id: &str,
    address: &str,
) -> Result<(), String> {
    if let Some(action) = &handler.exec {
        let command = action.command.clone().unwrap_or_default();
        let answer = runtime.exec(id, command, 0).await.map_err(|e| e.to_string())?;
        return if answer.exit_code == 0 { Ok(()) } else { Err(format!("exited with {}", answer.exit_code)) };
    }
    if let Some(action) = &handler.http_get {
        let request = http::Request::of(action, container, address, "kube-lifecycle/1.37")?;
        let answer = http::get(&request, HTTP_TIMEOUT).await.map_err(|failure| failure.message)?;
        return if (200..400).contains(&answer.code) { Ok(()) } else { Err(format!("status code {}", answer.code)) };
    }
    if let Some(action) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0))).await;
        return Ok(());
    }
    Err("invalid handler".to_owned())
}

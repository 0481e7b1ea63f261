//! What a probe does: a command, an HTTP request, a connection, a gRPC health check.

use std::time::Duration;

use ferry_cri::health::health_check_response::ServingStatus;
use ferry_cri::health::{HealthCheckRequest, health_client::HealthClient};
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Target, http};
use crate::runtime::Runtime;

/// Output of a failing command that goes into an event.
const LONGEST_OUTPUT: usize = 10 * 1024;

#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    Success,
    /// As good as a success, and something to say.
    Warning(String),
    Failure {
        output: String,
        refused: bool,
    },
    /// The probe itself could not be carried out: no judgement of the container.
    Error(String),
}

fn failure(output: impl Into<String>) -> Outcome {
    Outcome::Failure { output: output.into(), refused: false }
}

pub(super) async fn ask(runtime: &dyn Runtime, target: &Target, probe: &Probe) -> Outcome {
    let seconds = probe.timeout_seconds.unwrap_or(1).max(1);
    let timeout = Duration::from_secs(seconds.unsigned_abs().into());
    if let Some(action) = &probe.exec {
        let command = action.command.clone().unwrap_or_default();
        return exec(runtime, &target.id, command, seconds.into()).await;
    }
    if let Some(action) = &probe.http_get {
        return match http::Request::of(action, &target.container, &target.address, "kube-probe/1.37") {
            Ok(request) => of_http(http::get(&request, timeout).await),
            Err(why) => Outcome::Error(why),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let host = action.host.as_deref().filter(|h| !h.is_empty()).unwrap_or(&target.address);
        return match port(&action.port, &target.container) {
            Ok(port) => tcp(host, port, timeout).await,
            Err(why) => Outcome::Error(why),
        };
    }
    if let Some(action) = &probe.grpc {
        let Ok(port) = u16::try_from(action.port) else {
            return Outcome::Error(format!("invalid port {}", action.port));
        };
        let service = action.service.clone().unwrap_or_default();
        return grpc(&target.address, port, service, timeout).await;
    }
    Outcome::Error(format!("missing probe handler for {}", target.container.name))
}

async fn exec(runtime: &dyn Runtime, id: &str, command: Vec<String>, timeout_seconds: i64) -> Outcome {
    let shown = command.join(" ");
    match runtime.exec(id, command, timeout_seconds).await {
        Ok(answer) if answer.exit_code == 0 => Outcome::Success,
        Ok(answer) => {
            let mut output = answer.stdout;
            output.extend(answer.stderr);
            output.truncate(LONGEST_OUTPUT);
            failure(String::from_utf8_lossy(&output))
        }
        Err(error) if error.code == ferry_cri::Code::DeadlineExceeded => {
            failure(format!("command timed out: {shown:?} timed out after {timeout_seconds}s"))
        }
        Err(error) => Outcome::Error(error.to_string()),
    }
}

fn of_http(result: Result<http::Answer, http::Failure>) -> Outcome {
    match result {
        Ok(answer) if (200..300).contains(&answer.code) => Outcome::Success,
        Ok(answer) if (300..400).contains(&answer.code) => {
            Outcome::Warning(format!("Probe terminated redirects, Response body: {}", answer.body))
        }
        Ok(answer) => failure(format!("HTTP probe failed with statuscode: {}", answer.code)),
        Err(error) => Outcome::Failure { output: error.message, refused: error.refused },
    }
}

async fn tcp(host: &str, port: u16, timeout: Duration) -> Outcome {
    match http::connect(host, port, timeout).await {
        Ok(_) => Outcome::Success,
        Err(error) => Outcome::Failure { output: error.message, refused: error.refused },
    }
}

async fn grpc(host: &str, port: u16, service: String, timeout: Duration) -> Outcome {
    let place = http::join(host, port);
    let unreachable = |why: String| {
        let seconds = timeout.as_secs();
        failure(format!("timeout: failed to connect service {place:?} within {seconds}s: {why}"))
    };
    let check = async {
        let endpoint = match ferry_cri::endpoint(&format!("http://{place}")) {
            Ok(endpoint) => endpoint,
            Err(error) => return Outcome::Error(error.to_string()),
        };
        let channel = match endpoint.connect().await {
            Ok(channel) => channel,
            Err(error) => {
                let refused = http::is_refused(&error);
                return Outcome::Failure { output: format!("failed to connect service {place:?}: {error}"), refused };
            }
        };
        match HealthClient::new(channel).check(HealthCheckRequest { service }).await {
            Ok(answer) if answer.get_ref().status() == ServingStatus::Serving => Outcome::Success,
            Ok(answer) => {
                failure(format!("service unhealthy (responded with {:?})", answer.get_ref().status().as_str_name()))
            }
            Err(status) => failure(format!("rpc error: code = {:?} desc = {}", status.code(), status.message())),
        }
    };
    match tokio::time::timeout(timeout, check).await {
        Ok(outcome) => outcome,
        Err(_) => unreachable("context deadline exceeded".to_owned()),
    }
}

/// A port by number, or by the name it has among the container's ports.
pub(super) fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name));
            match (named, name.parse()) {
                (Some(port), _) => port.container_port,
                (None, Ok(number)) => number,
                (None, Err(_)) => return Err(format!("couldn't find port {name:?} of container {}", container.name)),
            }
        }
    };
    u16::try_from(number).ok().filter(|p| *p > 0).ok_or_else(|| format!("invalid port number: {number}"))
}

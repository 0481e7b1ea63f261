//! `kubectl run` with a terminal: what the container says until it has ended, and how it ended.

use std::time::Duration;

use serde_json::{Value, json};

use super::{attach, common, pods, record};
use crate::client::{Call, query};
use crate::error::{Error, Result};
use crate::resource::Info;
use crate::session::Context;
use crate::text::{flush, line, print, warn};

pub async fn run(context: &Context, name: &str, object: Value, service: Option<Value>) -> Result<()> {
    let namespace = context.namespace().await?;
    let info = make(context, &namespace, object).await?;
    let mut made = vec![info.clone()];
    if let Some(service) = service {
        made.push(make(context, &namespace, service).await?);
    }
    let result = follow(context, &info).await;
    if context.flags.is("rm") {
        let client = context.client().await?;
        for info in &made {
            let options = json!({"propagationPolicy": "Background"});
            client.json(Call::new(http::Method::DELETE, info.path()).json(&options)).await?;
            line(format!("{} \"{name}\" deleted from {namespace} namespace", info.resource.kind_name()));
        }
    }
    result
}

/// Creates an object, without a word.
async fn make(context: &Context, namespace: &str, object: Value) -> Result<Info> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let resource = context.kind(&text("apiVersion"), &text("kind")).await?;
    let mut object = common::normalized(object);
    record::record(context, &mut object);
    object["metadata"]["namespace"] = namespace.into();
    let info = crate::resource::of_object(&resource, object);
    common::create(context, &info, &info.object, common::DryRun::No, "Strict").await?;
    Ok(info)
}

async fn follow(context: &Context, info: &Info) -> Result<()> {
    let flags = &context.flags;
    let pod = until(context, info, |pod| is_completed(pod) || is_ready(pod)).await?;
    let container = pods::default_container(&pod, true)?;
    if is_completed(&pod) {
        logs(context, info, &container, "").await?;
    } else {
        joined(context, info, &pod, &container).await?;
    }
    // With an end that somebody may still have to type, or none at all, there is no code to wait for.
    let policy = flags.text("restart");
    if flags.is("leave-stdin-open") || !matches!(policy, "Never" | "OnFailure") {
        return Ok(());
    }
    let pod = until(context, info, |pod| match policy {
        "OnFailure" => pod["status"]["phase"] == "Succeeded",
        _ => is_completed(pod),
    })
    .await?;
    ended(&pod)
}

/// What was said before, and then what is said. A container that ends while it is asked for has its logs.
async fn joined(context: &Context, info: &Info, pod: &Value, container: &str) -> Result<()> {
    let mut since = String::new();
    match logs(context, info, container, "").await {
        Ok(()) => since = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(error) => warn(format!("warning: couldn't fetch pre-attach logs: {}", error.inner())),
    }
    if let Err(error) = attach::join(context, pod, container).await {
        let why = error.inner();
        warn(format!("warning: couldn't attach to pod/{}, falling back to streaming logs: {why}", info.name));
        logs(context, info, container, &since).await?;
    }
    Ok(())
}

async fn logs(context: &Context, info: &Info, container: &str, since: &str) -> Result<()> {
    let path = query(&format!("{}/log", info.path()), &[("container", container), ("sinceTime", since)]);
    let body = context.client().await?.bytes(Call::get(path).accept("*/*")).await?;
    print(body);
    flush();
    Ok(())
}

/// The pod as soon as it is so.
async fn until(context: &Context, info: &Info, is: impl Fn(&Value) -> bool) -> Result<Value> {
    let limit = Duration::from_nanos(context.flags.duration("pod-running-timeout").unsigned_abs());
    let client = context.client().await?;
    let asked = async {
        loop {
            let pod = client.json(Call::get(info.path())).await?;
            if is(&pod) {
                return Ok(pod);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(limit, asked).await.map_err(|_| Error::say("timed out waiting for the condition"))?
}

fn is_completed(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    pod["status"]["phase"] == "Running" && conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// The code of the container is that of the command.
fn ended(pod: &Value) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
    match pod["status"]["phase"].as_str().unwrap_or_default() {
        "Succeeded" => Ok(()),
        "Failed" => {
            let end = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            match end["exitCode"].as_i64().filter(|code| *code != 0) {
                Some(code) => Err(Error::Exit {
                    code: u8::try_from(code & 0xff).unwrap_or(1),
                    text: format!(
                        "pod {namespace}/{name} terminated ({})\n{}",
                        text(&end["reason"]),
                        text(&end["message"])
                    ),
                }),
                None => Err(Error::say(format!("pod {namespace}/{name} failed with unknown exit code"))),
            }
        }
        phase => Err(Error::say(format!("pod {namespace}/{name} left in phase {phase}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_ends_as_its_container() {
        let pod = |phase: &str, code: i64| {
            json!({"metadata": {"namespace": "n", "name": "p"}, "status": {"phase": phase,
                "containerStatuses": [{"state": {"terminated": {"exitCode": code, "reason": "Error", "message": "m"}}}]}})
        };
        assert!(ended(&pod("Succeeded", 0)).is_ok());
        let failed = ended(&pod("Failed", 42)).unwrap_err();
        assert_eq!((failed.exit_code(), failed.inner()), (42, "pod n/p terminated (Error)\nm".to_owned()));
        assert_eq!(ended(&pod("Failed", 0)).unwrap_err().inner(), "pod n/p failed with unknown exit code");
    }

    #[test]
    fn a_pod_is_joined_when_it_is_ready() {
        let pod = |phase: &str, ready: &str| json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
        assert!(is_ready(&pod("Running", "True")));
        assert!(!is_ready(&pod("Running", "False")) && !is_ready(&pod("Pending", "True")));
        assert!(is_completed(&pod("Failed", "False")) && !is_completed(&pod("Running", "True")));
    }
}

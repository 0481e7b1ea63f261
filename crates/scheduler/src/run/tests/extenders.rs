//! The loop with extenders beside it: real HTTP over loopback.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::config::types;

/// Serves one request after the other; `answer` sees the path and the body. No answer: it hangs.
async fn serve(answer: fn(&str, &Value) -> Option<Value>, tasks: &Tasks) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let group = tasks.clone();
    tasks.spawn_until_stopped("extender", async move {
        while let Ok((stream, _)) = listener.accept().await {
            group.spawn_until_stopped("connection", connection(stream, answer));
        }
    });
    format!("http://{address}/scheduler")
}

async fn connection(mut stream: TcpStream, answer: fn(&str, &Value) -> Option<Value>) {
    let mut read = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
                break String::from_utf8_lossy(&read.drain(..end + 4).collect::<Vec<_>>()).into_owned();
            }
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        let length: usize = length.unwrap_or(0);
        while read.len() < length {
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let body: Value = serde_json::from_slice(&read.drain(..length).collect::<Vec<_>>()).unwrap_or_default();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let Some(answer) = answer(&path, &body) else { return std::future::pending().await };
        let text = answer.to_string();
        let response = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn extender(settings: Value) -> Extender {
    let config: types::Extender = serde_json::from_value(settings).expect("settings");
    Extender::new(&config).expect("an extender")
}

fn refuse_a_and_prefer_c(path: &str, body: &Value) -> Option<Value> {
    Some(match path {
        "/scheduler/filter" => {
            let names: Vec<&Value> = body["NodeNames"].as_array()?.iter().filter(|name| **name != json!("a")).collect();
            json!({"nodeNames": names, "failedNodes": {"a": "node(s) are not to the extender's taste"}, "error": ""})
        }
        "/scheduler/prioritize" => json!([{"Host": "b", "Score": 1}, {"Host": "c", "Score": 10}]),
        _ => return None,
    })
}

#[tokio::test]
async fn an_extender_refuses_and_prefers() {
    let tasks = Tasks::new("extenders");
    let url = serve(refuse_a_and_prefer_c, &tasks).await;
    let world = World::with(vec![extender(json!({
        "urlPrefix": url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 5, "nodeCacheCapable": true,
    }))]);
    world.add_node("a", json!({}));
    world.add_pod("lost", "1", 0, None);
    world.sees(&["lost PodScheduled=False Unschedulable: 0/1 nodes are available: 1 node(s) are not to the extender's taste. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."]).await;
    world.add_node("b", json!({}));
    world.add_node("c", json!({}));
    world.add_pod("web", "1", 0, None);
    world.sees(&["web bound to c"]).await;
    world.end().await;
    tasks.stop(PATIENCE).await;
}

#[tokio::test]
async fn an_extender_that_hangs_holds_up_only_its_own_pods() {
    let tasks = Tasks::new("extenders");
    let url = serve(|_, _| None, &tasks).await;
    let settings = |ignorable: bool, resource: &str| {
        extender(json!({
            "urlPrefix": url, "filterVerb": "filter", "httpTimeout": "300ms", "ignorable": ignorable,
            "managedResources": [{"name": resource, "ignoredByScheduler": true}],
        }))
    };
    let world = World::with(vec![settings(false, "example.com/strict"), settings(true, "example.com/lenient")]);
    world.add_node("a", json!({"status": {"allocatable": {"example.com/strict": "9", "example.com/lenient": "9"}}}));
    let wants = |resource: &str| json!({"containers": [{"name": "c", "resources": {"requests": {resource: "1"}}}]});
    world.add("strict", wants("example.com/strict"));
    world.add("lenient", wants("example.com/lenient"));
    world.add_pod("plain", "1", 0, None);
    world.sees(&["plain bound to a", "lenient bound to a"]).await;
    let error =
        format!("Post \"{url}/filter\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
    world.sees(&[&format!("strict PodScheduled=False SchedulerError: {error}")]).await;
    assert!(!world.api.log.borrow().iter().any(|line| line == "strict bound to a"));
    world.end().await;
    tasks.stop(PATIENCE).await;
}

#[tokio::test]
async fn an_extender_binds_in_the_schedulers_place() {
    let tasks = Tasks::new("extenders");
    let url = serve(|_, body| Some(json!({"Error": format!("{} to {}", body["PodName"], body["Node"])})), &tasks).await;
    let world = World::with(vec![extender(json!({"urlPrefix": url, "bindVerb": "bind"}))]);
    world.add_node("a", json!({}));
    world.add_pod("web", "1", 0, None);
    world.sees(&["web PodScheduled=False SchedulerError: binding rejected: \"web\" to \"a\""]).await;
    world.end().await;
    tasks.stop(PATIENCE).await;
}

/// Agrees to the end of the pod whose name is `expendable` and of no other.
fn spare_others(path: &str, body: &Value) -> Option<Value> {
    assert_eq!(path, "/scheduler/preempt");
    let victims = body["NodeNameToVictims"]["a"]["Pods"].as_array()?;
    let agreed: Vec<Value> = victims
        .iter()
        .filter(|pod| pod["metadata"]["name"] == "expendable")
        .map(|pod| json!({"UID": pod["metadata"]["uid"]}))
        .collect();
    Some(match agreed.is_empty() {
        true => json!({"NodeNameToMetaVictims": {}}),
        false => json!({"NodeNameToMetaVictims": {"a": {"Pods": agreed, "NumPDBViolations": 0}}}),
    })
}

#[tokio::test]
async fn an_extender_has_a_say_in_who_is_preempted() {
    let tasks = Tasks::new("extenders");
    let url = serve(spare_others, &tasks).await;
    let world = World::with(vec![extender(json!({"urlPrefix": url, "preemptVerb": "preempt"}))]);
    world.add_node("a", json!({}));
    world.add_pod("dear", "4", 0, Some("a"));
    world.add_pod("proud", "4", 1000, None);
    world.sees(&["proud nominated to a"]).await;
    world.add_node("b", json!({}));
    world.sees(&["proud bound to b"]).await;
    assert!(!world.api.log.borrow().iter().any(|line| line == "dear deleted"), "the extender spared it");
    world.api.pods.remove(world.api.pod("dear").expect("the pod"));
    world.add_pod("expendable", "4", 0, Some("a"));
    world.add_pod("prouder", "4", 1000, None);
    world.sees(&["expendable deleted", "prouder bound to a"]).await;
    world.end().await;
    tasks.stop(PATIENCE).await;
}

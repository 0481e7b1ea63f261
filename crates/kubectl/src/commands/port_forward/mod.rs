//! `kubectl port-forward`.

mod ports;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use self::ports::{Address, Forward};
use super::get_watch::watch;
use super::{Command, leaf, pods};
use crate::client::{Call, JSON};
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, slice};
use crate::resource::Selection;
use crate::session::Context;
use crate::text::{flush, line, warn};

pub const COMMAND: Command = leaf(
    "port-forward",
    "TYPE/NAME [options] [LOCAL_PORT:]REMOTE_PORT [...[LOCAL_PORT_N:]REMOTE_PORT_N]",
    "Forward one or more local ports to a pod",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    vec![
        Flag { default: "localhost", ..slice("address", "Addresses to listen on, separated by commas.") },
        Flag::new("pod-running-timeout", Kind::Duration, "1m0s", "How long to wait until a pod runs."),
    ]
}

async fn run(context: &Context) -> Result<()> {
    let [word, words @ ..] = context.words() else {
        return Err(context.usage("TYPE/NAME and list of ports are required for port-forward"));
    };
    if words.is_empty() {
        return Err(context.usage("TYPE/NAME and list of ports are required for port-forward"));
    }
    pods::patience(context).map_err(|error| context.usage(error.inner()))?;
    let info = pods::object(context, "pods", word).await?;
    let pod = pods::one(context, &info).await?;
    let words = ports::translated(words, &info.object, &pod)?;
    // It may have begun to run while it was waited for.
    let resource = context.kind("v1", "Pod").await?;
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (name, namespace) = (text("name"), text("namespace"));
    let pod = context.client().await?.json(Call::get(resource.object(Some(&namespace), &name))).await?;
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if phase != "Running" {
        return Err(Error::say(format!("unable to forward port because pod is not running. Current status={phase}")));
    }
    let addresses = ports::addresses(&context.flags.list("address"))?;
    let mut forwards = ports::parse(&words)?;
    let mut listeners = Vec::new();
    for forward in &mut forwards {
        match listen(forward, &addresses).await {
            Ok(found) => listeners.extend(found.into_iter().map(|listener| (listener, forward.remote))),
            Err(why) => warn(format!("Unable to listen on port {}: {why}", forward.local)),
        }
    }
    if listeners.is_empty() {
        let all: Vec<String> = forwards.iter().map(|port| format!("{{{} {}}}", port.local, port.remote)).collect();
        return Err(Error::say(format!("unable to listen on any of the requested ports: [{}]", all.join(" "))));
    }
    flush();
    let api: Api<Pod> = Api::namespaced(context.client().await?.upgraded.clone(), &namespace);
    let serve = listeners.iter().map(|(listener, remote)| accept(listener, *remote, &api, &name));
    tokio::select! {
        _ = futures::future::join_all(serve) => Ok(()),
        () = gone(context, &resource, &namespace, &pod) => Err(Error::say("lost connection to pod")),
        // Whoever interrupts it is done with it.
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// As long as a client may go on sending after the answer. With data unread, closing would take the answer from it.
const LINGER: std::time::Duration = std::time::Duration::from_millis(500);

/// Carries bytes both ways until the pod says no more. A pod that answers before it read everything has answered.
async fn join(mut socket: TcpStream, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let (mut from_client, mut to_client) = socket.split();
    let (mut from_pod, mut to_pod) = tokio::io::split(&mut stream);
    let up = async {
        if tokio::io::copy(&mut from_client, &mut to_pod).await.is_ok() {
            let _ = to_pod.shutdown().await;
        }
        std::future::pending::<()>().await
    };
    let down = async {
        let _ = tokio::io::copy(&mut from_pod, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
    let _ = tokio::time::timeout(LINGER, tokio::io::copy(&mut from_client, &mut tokio::io::sink())).await;
}

/// Waits until the pod is there no more, or runs no more. Who may not watch pods is not told.
async fn gone(context: &Context, resource: &Resource, namespace: &str, pod: &Value) {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (name, uid) = (text("name"), text("uid"));
    let selection = Selection {
        resource: resource.clone(),
        namespace: Some(namespace.to_owned()),
        labels: String::new(),
        fields: format!("metadata.name={name}"),
    };
    let mut version = text("resourceVersion");
    loop {
        let mut ended = false;
        let seen = watch(context, &selection, &version, JSON, |kind, pod| {
            ended = kind == "DELETED" || has_ended(pod, &uid);
            Ok(!ended)
        });
        let seen = seen.await;
        if ended {
            return;
        }
        if let Err(Error::Status(status)) = &seen
            && status["code"] == 403
        {
            return std::future::pending().await;
        }
        // The watch ended, or the server went away: a forwarded connection may live on.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let Ok(client) = context.client().await else { continue };
        match client.json(Call::get(resource.object(Some(namespace), &name))).await {
            Ok(pod) if has_ended(&pod, &uid) => return,
            Ok(pod) => version = pod["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            Err(error) if error.is_not_found() => return,
            Err(_) => {}
        }
    }
}

/// Whether it is another pod of the same name, or none of its containers runs again.
fn has_ended(pod: &Value, uid: &str) -> bool {
    pod["metadata"]["uid"] != uid || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Listens on all addresses. A port that is free on the first of them is asked for on the others.
async fn listen(forward: &mut Forward, addresses: &[Address]) -> Result<Vec<TcpListener>, String> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    let (mut enough, mut failed) = (false, false);
    for address in addresses {
        match TcpListener::bind((address.ip, forward.local)).await.and_then(|bound| Ok((bound.local_addr()?, bound))) {
            Ok((at, listener)) => {
                forward.local = at.port();
                line(format!("Forwarding from {at} -> {}", forward.remote));
                enough |= address.one_is_enough;
                found.push(listener);
            }
            Err(error) => {
                let (family, at) = (if address.ip.is_ipv4() { "tcp4" } else { "tcp6" }, (address.ip, forward.local));
                let (at, why) = (std::net::SocketAddr::from(at), crate::config::file::go_reason(&error));
                errors.push(format!("unable to create listener: Error listen {family} {at}: bind: {why}"));
                failed |= !address.one_is_enough;
            }
        }
    }
    if failed || (!enough && !errors.is_empty()) {
        return Err(format!("Listeners failed to create with the following errors: [{}]", errors.join(" ")));
    }
    Ok(found)
}

async fn accept(listener: &TcpListener, remote: u16, api: &Api<Pod>, pod: &str) {
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    line(format!("Handling connection for {}", listener.local_addr().map_or(0, |at| at.port())));
                    flush();
                    open.push(forward(socket, remote, api, pod));
                }
                Err(error) => {
                    warn(format!("error: {error}"));
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            },
            Some(()) = open.next(), if !open.is_empty() => {}
        }
    }
}

async fn forward(socket: TcpStream, remote: u16, api: &Api<Pod>, pod: &str) {
    let mut forwarder = match api.portforward(pod, &[remote]).await {
        Ok(forwarder) => forwarder,
        Err(error) => {
            warn(format!("error: {}", super::stream::failed(&error).inner()));
            return;
        }
    };
    let Some(stream) = forwarder.take_stream(remote) else { return };
    join(socket, stream).await;
    let _ = forwarder.join().await;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_ended_or_is_another() {
        let pod = |uid: &str, phase: &str| json!({"metadata": {"uid": uid}, "status": {"phase": phase}});
        assert!(!has_ended(&pod("a", "Running"), "a"));
        assert!(has_ended(&pod("a", "Succeeded"), "a"));
        assert!(has_ended(&pod("b", "Running"), "a"));
    }

    /// A pod that answers and closes while the client is still sending.
    #[tokio::test]
    async fn an_answer_to_half_a_request_arrives() {
        use tokio::io::AsyncReadExt;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        let (near, mut pod) = tokio::io::duplex(1000);
        let answers = async {
            let mut some = [0; 100];
            pod.read_exact(&mut some).await.unwrap();
            pod.write_all(b"enough").await.unwrap();
            drop(pod);
        };
        let asks = async {
            let _ = client.write_all(&vec![b'x'; 100_000]).await;
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"enough");
        };
        tokio::join!(join(socket, near), answers, asks);
    }
}

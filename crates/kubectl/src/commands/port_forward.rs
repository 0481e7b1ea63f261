//! `kubectl port-forward`.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use super::{Command, leaf, pods};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, slice};
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

/// The port of the pod behind a port of a service, or behind its name.
fn target(object: &Value, pod: &Value, wanted: &str) -> Result<u16> {
    let named = |name: &str| {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let mut ports = containers.flat_map(|c| c["ports"].as_array().into_iter().flatten());
        ports.find(|port| port["name"] == name).and_then(|port| port["containerPort"].as_u64())
    };
    let number = |value: u64| u16::try_from(value).map_err(|_| Error::say(format!("invalid port {value}")));
    if object["kind"] == "Service" {
        let mut ports = object["spec"]["ports"].as_array().into_iter().flatten();
        let found =
            ports.find(|port| port["name"] == wanted || port["port"].as_u64().is_some_and(|p| p.to_string() == wanted));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let Some(port) = found else {
            return Err(Error::say(format!("Service {name} does not have a service port {wanted}")));
        };
        return match &port["targetPort"] {
            Value::String(name) => number(named(name).ok_or_else(|| {
                Error::say(format!(
                    "Pod '{}' does not have a named port '{name}'",
                    pod["metadata"]["name"].as_str().unwrap_or_default()
                ))
            })?),
            Value::Number(value) => number(value.as_u64().unwrap_or_default()),
            _ => number(port["port"].as_u64().unwrap_or_default()),
        };
    }
    match wanted.parse::<u16>() {
        Ok(0) | Err(_) => match named(wanted) {
            Some(port) => number(port),
            None => Err(Error::say(format!(
                "Pod '{}' does not have a named port '{wanted}'",
                pod["metadata"]["name"].as_str().unwrap_or_default()
            ))),
        },
        Ok(port) => Ok(port),
    }
}

async fn run(context: &Context) -> Result<()> {
    let words = context.words();
    let [word, ports @ ..] = words else {
        return Err(context.usage("TYPE/NAME and list of ports are required for port-forward"));
    };
    if ports.is_empty() {
        return Err(context.usage("TYPE/NAME and list of ports are required for port-forward"));
    }
    let (object, found) = pods::resolve(context, word).await?;
    let pod = pods::best(found).ok_or_else(|| Error::say("there is no pod to forward to"))?;
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if phase != "Running" {
        return Err(Error::say(format!("unable to forward port because pod is not running. Current status={phase}")));
    }
    let api: Api<Pod> = Api::namespaced(context.client().await?.kube.clone(), &text("namespace"));
    let mut listeners = Vec::new();
    for port in ports {
        let (local, remote) = port.split_once(':').unwrap_or((port, port));
        let remote = target(&object, &pod, remote)?;
        let local: u16 = match local {
            "" => 0,
            text => text
                .parse()
                .or_else(|_| target(&object, &pod, text))
                .map_err(|_| Error::say(format!("error parsing local port '{text}'")))?,
        };
        for address in context.flags.list("address") {
            let addresses: &[&str] = if address == "localhost" { &["127.0.0.1", "::1"] } else { &[&*address] };
            for address in addresses {
                match TcpListener::bind((*address, local)).await {
                    Ok(listener) => {
                        let Ok(at) = listener.local_addr() else { continue };
                        line(format!("Forwarding from {at} -> {remote}"));
                        listeners.push((listener, remote));
                    }
                    // A machine may have one family only.
                    Err(_) if *address == "::1" => {}
                    Err(error) => {
                        return Err(Error::say(format!(
                            "unable to listen on any of the requested ports: [{{{local} {remote}}}]: {error}"
                        )));
                    }
                }
            }
        }
    }
    flush();
    let name = text("name");
    let serve = listeners.iter().map(|(listener, remote)| accept(listener, *remote, &api, &name));
    futures::future::join_all(serve).await;
    Ok(())
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

async fn forward(mut socket: TcpStream, remote: u16, api: &Api<Pod>, pod: &str) {
    let mut forwarder = match api.portforward(pod, &[remote]).await {
        Ok(forwarder) => forwarder,
        Err(error) => {
            warn(format!("error: {}", super::stream::failed(&error).inner()));
            return;
        }
    };
    let Some(mut stream) = forwarder.take_stream(remote) else { return };
    let _ = tokio::io::copy_bidirectional(&mut socket, &mut stream).await;
    drop(stream);
    let _ = forwarder.join().await;
}

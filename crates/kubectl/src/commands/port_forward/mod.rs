//! `kubectl port-forward`.

mod ports;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use tokio::net::{TcpListener, TcpStream};

use self::ports::{Address, Forward};
use super::{Command, leaf, pods};
use crate::client::Call;
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
    futures::future::join_all(serve).await;
    Ok(())
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

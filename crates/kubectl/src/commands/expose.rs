//! `kubectl expose`.

use serde_json::{Value, json};

use super::{Command, common, generate, leaf, record, run as run_command};
use crate::error::{Error, Result};
use crate::flags::{Flag, text};
use crate::resource::{Builder, Info, read};
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "expose",
    "(-f FILENAME | TYPE NAME) [--port=port] [--protocol=TCP|UDP|SCTP] [--target-port=number-or-name] [--name=name] [--external-ip=external-ip-of-service] [--type=type]",
    "Take a replication controller, service, deployment or pod and expose it as a new Kubernetes service",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut own = common::FILES.to_vec();
    own.extend([
        record::FLAG,
        text("port", "The port that the service should serve on."),
        text("protocol", "The network protocol for the service."),
        text("target-port", "Name or number for the port on the container."),
        text("name", "The name for the new service."),
        text("type", "ClusterIP, NodePort, LoadBalancer or ExternalName."),
        text("selector", "A label selector to use for this service."),
        text("labels", "Labels to apply to the service.").short('l'),
        text("external-ip", "Additional external IP address to accept for the service."),
        text("cluster-ip", "ClusterIP to be assigned to the service; None for headless."),
        text("session-affinity", "None or ClientIP."),
        text("load-balancer-ip", "IP to assign to the load balancer."),
        run_command::OVERRIDES,
        run_command::OVERRIDE_TYPE,
    ]);
    let mut flags = generate::flags(&own);
    flags.retain(|flag| flag.name != "validate");
    for flag in &mut flags {
        if flag.name == "field-manager" {
            flag.default = "kubectl-expose";
        }
    }
    flags
}

async fn run(context: &Context) -> Result<()> {
    let mut builder = Builder::of(context);
    builder.labels = None;
    builder.latest = true;
    let built = builder.build(context).await?;
    for info in read(context, &built.targets).await? {
        let mut service = service(context, &info)?;
        run_command::overridden(context, &mut service)?;
        record::record(context, &mut service);
        generate::finish_as(context, service, "exposed").await?;
    }
    Ok(())
}

fn cannot(why: &str) -> Error {
    Error::say(format!("couldn't retrieve selectors via --selector flag or introspection: {why}"))
}

fn selector(info: &Info) -> Result<Value> {
    let object = &info.object;
    let empty = |map: &Value| map.as_object().is_none_or(serde_json::Map::is_empty);
    match &*info.resource.kind {
        "Pod" => match &object["metadata"]["labels"] {
            labels if empty(labels) => Err(cannot("the pod has no labels and cannot be exposed")),
            labels => Ok(labels.clone()),
        },
        "Service" | "ReplicationController" => match &object["spec"]["selector"] {
            labels if empty(labels) => {
                Err(cannot(&format!("the {} has no pod selector set", info.resource.kind.to_lowercase())))
            }
            labels => Ok(labels.clone()),
        },
        "Deployment" | "ReplicaSet" => {
            if object["spec"]["selector"]["matchExpressions"].as_array().is_some_and(|list| !list.is_empty()) {
                return Err(cannot("couldn't convert expressions"));
            }
            Ok(object["spec"]["selector"]["matchLabels"].clone())
        }
        _ if !common::is_built_in(info) => Err(common::not_registered(info)),
        kind => Err(Error::say(format!("cannot expose a {}", crate::discovery::qualified(kind, &info.resource.group)))),
    }
}

/// Ports and their protocols, as the containers have them.
fn ports(info: &Info) -> Vec<(i64, String)> {
    let object = &info.object;
    if info.resource.kind == "Service" {
        let all = object["spec"]["ports"].as_array().into_iter().flatten();
        return all
            .map(|p| (p["port"].as_i64().unwrap_or(0), p["protocol"].as_str().unwrap_or("TCP").to_owned()))
            .collect();
    }
    let spec = if info.resource.kind == "Pod" { &object["spec"] } else { &object["spec"]["template"]["spec"] };
    let all =
        spec["containers"].as_array().into_iter().flatten().flat_map(|c| c["ports"].as_array().into_iter().flatten());
    all.map(|p| (p["containerPort"].as_i64().unwrap_or(0), p["protocol"].as_str().unwrap_or("TCP").to_owned()))
        .collect()
}

fn pairs(text: &str) -> Value {
    let all = text.split(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), Value::from(v)));
    all.collect::<serde_json::Map<_, _>>().into()
}

fn service(context: &Context, info: &Info) -> Result<Value> {
    let flags = &context.flags;
    let selector = match flags.given("selector") {
        Some(text) => pairs(text),
        None => selector(info)?,
    };
    let name: String = flags.given("name").unwrap_or(&info.name).chars().take(63).collect();
    let known = ports(info);
    let wanted: Vec<i64> = match flags.given("port") {
        Some(text) => text
            .split(',')
            .map(|port| {
                port.trim().parse().map_err(|_| {
                    Error::say(format!("strconv.Atoi: parsing {}: invalid syntax", crate::text::quote(port)))
                })
            })
            .collect::<Result<_>>()?,
        None => known.iter().map(|(port, _)| *port).collect(),
    };
    if wanted.is_empty() {
        return Err(Error::say("couldn't find port via --port flag or introspection"));
    }
    let target = flags.given("target-port").or(flags.given("container-port"));
    let all: Vec<Value> = wanted
        .iter()
        .enumerate()
        .map(|(index, port)| {
            let own = known.iter().find(|(known, _)| known == port).map(|(_, protocol)| protocol.as_str());
            let protocol = flags.given("protocol").or(own).unwrap_or("TCP");
            let target: Value = match target {
                Some(text) => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
                None => (*port).into(),
            };
            let mut entry = json!({"port": port, "protocol": protocol, "targetPort": target});
            if wanted.len() > 1 {
                entry["name"] = format!("port-{}", index + 1).into();
            }
            entry
        })
        .collect();
    let mut spec = json!({"selector": selector, "ports": all});
    for (flag, field) in [
        ("type", "type"),
        ("cluster-ip", "clusterIP"),
        ("session-affinity", "sessionAffinity"),
        ("load-balancer-ip", "loadBalancerIP"),
    ] {
        // Only a load balancer has an address of its own.
        let meant = flag != "load-balancer-ip" || flags.text("type") == "LoadBalancer";
        if let Some(value) = flags.given(flag).filter(|_| meant) {
            spec[field] = value.into();
        }
    }
    if let Some(address) = flags.given("external-ip") {
        spec["externalIPs"] = json!([address]);
    }
    let mut object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    let labels = match flags.given("labels") {
        Some(text) => pairs(text),
        None => info.object["metadata"]["labels"].clone(),
    };
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        object["metadata"]["labels"] = labels;
    }
    Ok(object)
}

//! The port that is meant, and where a connection to it goes: a headless Service changes none.

use std::net::IpAddr;

use ferry_meta::object;
use serde_json::Value;

use super::Scene;

pub(super) fn cluster_addresses(service: &Value) -> Vec<&str> {
    let all = object::items(service, "/spec/clusterIPs").iter().filter_map(Value::as_str);
    let mut all: Vec<&str> = all.collect();
    if all.is_empty() {
        all.push(object::text(service, "/spec/clusterIP"));
    }
    all.retain(|address| address.parse::<IpAddr>().is_ok());
    all
}

pub(super) fn is_external(scene: &Scene) -> bool {
    scene.object.as_ref().is_some_and(|object| object::text(object, "/spec/type") == "ExternalName")
}

/// A Service whose name leads to its pods: a connection goes to the pods' own ports, whatever the Service says of ports.
pub(super) fn is_headless(scene: &Scene) -> bool {
    let service = scene.object.as_ref().filter(|_| scene.target.is_service && !is_external(scene));
    service.is_some_and(|service| cluster_addresses(service).is_empty())
}

/// The port at which the pods of a headless Service are asked: the one that was named, or the Service's only one.
pub(super) fn own_port(scene: &Scene) -> Result<(u16, &str), String> {
    let protocol = scene.target.protocol.as_deref();
    let port = scene.target.port.as_deref();
    if let Some(number) = port.and_then(|port| port.parse().ok()) {
        return Ok((number, protocol.unwrap_or("TCP")));
    }
    let known = service_port(scene)?;
    let number = known.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()).unwrap_or(0);
    Ok((number, protocol_of(known)))
}

/// The port of the Service that is meant.
pub(super) fn service_port(scene: &Scene) -> Result<&Value, String> {
    let Some(service) = &scene.object else { return Err(String::new()) };
    let ports = object::items(service, "/spec/ports");
    let number = |port: &Value| port.get("port").and_then(Value::as_i64).unwrap_or(0);
    let of_protocol = |port: &&Value| {
        let protocol = scene.target.protocol.as_deref();
        protocol.is_none_or(|wanted| protocol_of(port) == wanted)
    };
    let named = |port: &&Value| match &scene.target.port {
        None => true,
        Some(wanted) => number(port).to_string() == *wanted || object::text(port, "/name") == wanted,
    };
    let fitting: Vec<&Value> = ports.iter().filter(of_protocol).filter(named).collect();
    let all: Vec<String> = ports.iter().map(|port| format!("{}/{}", number(port), protocol_of(port))).collect();
    match (fitting.as_slice(), &scene.target.port) {
        ([], _) => Err(format!("it has {}", if all.is_empty() { "no ports".into() } else { all.join(", ") })),
        ([_, _, ..], None) => Err(format!(
            "it has {}: name one, as in --to service/{}:{}",
            all.join(", "),
            scene.target.name,
            number(fitting[0])
        )),
        ([port, ..], _) => Ok(*port),
    }
}

pub(super) fn protocol_of(port: &Value) -> &str {
    match object::text(port, "/protocol") {
        "" => "TCP",
        protocol => protocol,
    }
}

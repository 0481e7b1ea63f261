//! Where a request goes: what its name stands for, else the Gateway or the Ingresses that serve its host.

use std::net::{IpAddr, SocketAddr};

use ferry_client::Api;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Client;
use kube::api::ListParams;

use super::Target;
use crate::CONTROLLER;
use crate::api::{Gateway, GatewayClass};
use crate::table::{Depth, Hostname, Specificity, specificity};

/// A port that is taken on the node is replaced by the one so far above it.
const INSTEAD: u16 = 8000;

/// The address, and where it is from; or why there is none.
pub(super) async fn find(client: &Client, target: &Target) -> Result<(SocketAddr, String), String> {
    let (host, port) = (target.host.as_str(), target.port);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok((SocketAddr::new(address, port), "the URL".to_owned()));
    }
    if let Ok(mut found) = tokio::net::lookup_host((host, port)).await
        && let Some(address) = found.next()
    {
        return Ok((address, "its name".to_owned()));
    }
    let gateways = ours(client).await;
    if let Some(found) = of_gateways(&gateways, host, port) {
        return Ok(found);
    }
    let ingresses: Api<Ingress> = Api::all(client.clone());
    let ingresses = ingresses.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    of_ingresses(&ingresses, host, port).ok_or_else(|| {
        let ports: Vec<String> = gateways.iter().map(ports).collect();
        let there = match ports.is_empty() {
            true => "the cluster has no Gateway of Ferry that can be seen".to_owned(),
            false => format!("there are {}", ports.join("; ")),
        };
        format!("{host} does not resolve, and no Gateway or Ingress has it at port {port}: {there}")
    })
}

/// The Gateways of this controller.
async fn ours(client: &Client) -> Vec<Gateway> {
    let classes: Api<GatewayClass> = Api::all(client.clone());
    let classes = classes.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let ours = classes.iter().filter(|class| class.spec.controller_name == CONTROLLER);
    let ours: Vec<_> = ours.filter_map(|class| class.metadata.name.as_deref()).collect();
    let gateways: Api<Gateway> = Api::all(client.clone());
    let gateways = gateways.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    gateways.into_iter().filter(|one| ours.contains(&&*one.spec.gateway_class_name)).collect()
}

/// What is known of an address at which no gateway answered.
pub(super) async fn served_at(client: &Client, address: SocketAddr) -> Vec<String> {
    describe(&ours(client).await, address)
}

fn name(gateway: &Gateway) -> String {
    let (namespace, name) = (gateway.metadata.namespace.as_deref(), gateway.metadata.name.as_deref());
    format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

fn addresses(gateway: &Gateway) -> impl Iterator<Item = IpAddr> {
    let status = gateway.status.value();
    let listed = status["addresses"].as_array().into_iter().flatten();
    let found: Vec<_> = listed.filter_map(|one| one["value"].as_str()?.parse().ok()).collect();
    found.into_iter()
}

/// `Gateway n/web (http at 80, https at 443)`
fn ports(gateway: &Gateway) -> String {
    let listeners = gateway.spec.listeners.iter().map(|one| format!("{} at {}", one.name, one.port));
    format!("Gateway {} ({})", name(gateway), listeners.collect::<Vec<_>>().join(", "))
}

/// The Gateway with the listener that says this host most precisely.
fn of_gateways(gateways: &[Gateway], host: &str, port: u16) -> Option<(SocketAddr, String)> {
    let mut best: Option<(Specificity, SocketAddr, String)> = None;
    for gateway in gateways {
        let Some(address) = addresses(gateway).next() else { continue };
        for listener in gateway.spec.listeners.iter().filter(|listener| listener.port == port) {
            let hostname = listener.hostname.as_deref().filter(|name| !name.is_empty());
            let hostname = hostname.map(|name| Hostname::parse(name, Depth::Any));
            let rank = specificity(hostname.as_ref());
            let fits = hostname.is_none_or(|name| name.matches(&host.to_ascii_lowercase()));
            if fits && best.as_ref().is_none_or(|(known, ..)| rank > *known) {
                let found_by = format!("Gateway {}, since the name does not resolve", name(gateway));
                best = Some((rank, SocketAddr::new(address, port), found_by));
            }
        }
    }
    best.map(|(_, address, found_by)| (address, found_by))
}

/// An Ingress that has the host says in its status where it is served.
fn of_ingresses(ingresses: &[Ingress], host: &str, port: u16) -> Option<(SocketAddr, String)> {
    let has = |ingress: &&Ingress| {
        let rules = ingress.spec.iter().flat_map(|spec| spec.rules.iter().flatten());
        let mut hosts = rules.map(|rule| rule.host.as_deref().unwrap_or_default());
        hosts.any(|name| name.is_empty() || Hostname::parse(name, Depth::One).matches(&host.to_ascii_lowercase()))
    };
    ingresses.iter().filter(has).find_map(|ingress| {
        let status = ingress.status.as_ref()?.load_balancer.as_ref()?;
        let place = status.ingress.iter().flatten().find(|place| place.ip.is_some())?;
        let ports: Vec<u16> = place.ports.iter().flatten().filter_map(|one| u16::try_from(one.port).ok()).collect();
        let instead = port.checked_add(INSTEAD).filter(|instead| !ports.contains(&port) && ports.contains(instead));
        let told = instead.map(|instead| format!(", which is served at port {instead}")).unwrap_or_default();
        let name = ingress.metadata.name.as_deref().unwrap_or_default();
        let found_by = format!("Ingress {name}, since the name does not resolve{told}");
        Some((SocketAddr::new(place.ip.as_deref()?.parse().ok()?, instead.unwrap_or(port)), found_by))
    })
}

/// Whose address it is, and what is spoken there; or what there is elsewhere.
fn describe(gateways: &[Gateway], address: SocketAddr) -> Vec<String> {
    let loopback = address.ip().is_loopback();
    let here: Vec<&Gateway> =
        gateways.iter().filter(|gateway| addresses(gateway).any(|one| one == address.ip())).collect();
    let mut told: Vec<String> = Vec::new();
    for gateway in &here {
        let at_port: Vec<_> = gateway.spec.listeners.iter().filter(|one| one.port == address.port()).collect();
        if at_port.is_empty() {
            told.push(format!("{} is the address of {}", address.ip(), ports(gateway)));
        }
        for listener in at_port {
            let name = name(gateway);
            told.push(match listener.protocol.as_str() {
                "HTTP" | "HTTPS" => format!("listener {} of Gateway {name} is for this port", listener.name),
                other => format!(
                    "listener {} of Gateway {name} carries {other} there: the gateway sees no requests in it",
                    listener.name
                ),
            });
        }
    }
    if here.is_empty() && !loopback {
        told.push(match gateways.is_empty() {
            true => "the cluster has no Gateway of Ferry that can be seen".to_owned(),
            false => format!("{} is the address of none of the Gateways", address.ip()),
        });
    }
    told
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn gateway(name: &str, address: &str, listeners: Value) -> Gateway {
        let gateway = json!({
            "metadata": { "name": name, "namespace": "n" },
            "spec": { "gatewayClassName": "ferry", "listeners": listeners },
            "status": { "addresses": [{ "type": "IPAddress", "value": address }] },
        });
        serde_json::from_value(gateway).expect("a Gateway")
    }

    #[test]
    fn a_host_leads_to_the_gateway_that_names_it_best() {
        let listener =
            |host: &str, port: u16| json!({ "name": "l", "port": port, "protocol": "HTTP", "hostname": host });
        let gateways = [
            gateway("any", "10.0.0.1", json!([{ "name": "l", "port": 80, "protocol": "HTTP" }])),
            gateway("wild", "10.0.0.2", json!([listener("*.shop.example", 80)])),
            gateway("exact", "10.0.0.3", json!([listener("a.shop.example", 80), listener("a.shop.example", 443)])),
            gateway("lost", "", json!([listener("a.shop.example", 9000)])),
        ];
        for (host, port, want) in [
            ("A.shop.example", 80, Some("10.0.0.3:80")),
            ("b.shop.example", 80, Some("10.0.0.2:80")),
            ("other.example", 80, Some("10.0.0.1:80")),
            ("a.shop.example", 443, Some("10.0.0.3:443")),
            ("b.shop.example", 443, None),
            ("a.shop.example", 9000, None),
        ] {
            let found = of_gateways(&gateways, host, port).map(|(address, _)| address.to_string());
            assert_eq!(found.as_deref(), want, "{host}:{port}");
        }
    }

    #[test]
    fn an_ingress_says_where_it_is_served() {
        let ingress = |host: &str, port: i32| -> Ingress {
            serde_json::from_value(json!({
                "metadata": { "name": "i", "namespace": "n" },
                "spec": { "rules": [{ "host": host }] },
                "status": { "loadBalancer": { "ingress": [{ "ip": "10.0.0.9", "ports": [{ "port": port, "protocol": "TCP" }] }] } },
            }))
            .expect("an Ingress")
        };
        let found =
            |one: Ingress, host: &str| of_ingresses(&[one], host, 80).map(|(address, by)| (address.to_string(), by));
        assert_eq!(found(ingress("a.example", 80), "a.example").map(|one| one.0).as_deref(), Some("10.0.0.9:80"));
        let (address, by) = found(ingress("*.example", 8080), "a.example").expect("an address");
        assert_eq!(address, "10.0.0.9:8080");
        assert!(by.contains("served at port 8080"), "{by}");
        assert_eq!(found(ingress("*.example", 80), "a.b.example"), None);
    }

    #[test]
    fn it_is_told_whose_address_it_is() {
        let listeners = json!([{ "name": "db", "port": 5432, "protocol": "TCP" }, { "name": "web", "port": 80, "protocol": "HTTP" }]);
        let gateways = [gateway("g", "10.0.0.1", listeners)];
        for (address, want) in [
            ("10.0.0.1:5432", "listener db of Gateway n/g carries TCP there"),
            ("10.0.0.1:80", "listener web of Gateway n/g is for this port"),
            ("10.0.0.1:81", "10.0.0.1 is the address of Gateway n/g (db at 5432, web at 80)"),
            ("10.0.0.2:80", "10.0.0.2 is the address of none of the Gateways"),
        ] {
            let told = describe(&gateways, address.parse().expect("an address")).join("\n");
            assert!(told.contains(want), "{want} is not in {told}");
        }
        assert_eq!(describe(&gateways, SocketAddr::from(([127, 0, 0, 1], 80))), Vec::<String>::new());
    }
}

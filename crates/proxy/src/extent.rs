//! How much a Service stands for. What it lists is multiplied: each port is served at each address, for each range of sources,
//! and each of these places has each endpoint. A Service of a few kilobytes could stand for more rules than a node has memory
//! for.

use std::collections::BTreeSet;

use ferry_client::endpoint_slices::Slice;
use k8s_openapi::api::core::v1::Service;

/// So much each Service may stand for, besides what it says at length.
const PLACES: usize = 1000;
const RANGES: usize = 10_000;
const ENDPOINTS: usize = 1_000_000;
/// Where clients are remembered, an endpoint has a chain and a set of its own instead of an element for each place.
const REMEMBERING: usize = 20;
/// What is listed counts so many times.
const FOR_EACH: usize = 4;

/// About how many elements a Service stands for, or why it stands for too much to be served, for its owner to read.
pub(crate) fn extent<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a Slice> + Clone,
) -> Result<usize, String> {
    let Some(spec) = service.spec.as_ref() else { return Ok(0) };
    let listed = spec.ports.iter().flatten();
    let ports = listed.clone().count();
    let length = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let given = status.and_then(|balancer| balancer.ingress.as_ref()).map_or(0, Vec::len);
    let addresses = length(&spec.cluster_ips).max(1) + length(&spec.external_ips) + given;
    let ranges = length(&spec.load_balancer_source_ranges);
    let most = |free: usize, other: usize| free + FOR_EACH * (ports + other);
    let too_many = |what: &str, number: usize| {
        Err(format!(
            "the Service is not served: its {ports} ports at {number} {what} are more than a node keeps rules for"
        ))
    };
    if ports.saturating_mul(addresses) > most(PLACES, addresses) {
        return too_many("addresses", addresses);
    }
    if ports.saturating_mul(ranges) > most(RANGES, ranges) {
        return too_many("source ranges", ranges);
    }
    let slices = || slices.clone().into_iter();
    let names: BTreeSet<&str> = listed.map(|port| port.name.as_deref().unwrap_or_default()).collect();
    let endpoints = slices().map(|slice| {
        let used = slice.ports.iter().filter(|port| names.contains(&*port.name));
        used.count().saturating_mul(slice.endpoints.len())
    });
    let endpoints = endpoints.fold(0_usize, usize::saturating_add);
    let places = addresses + usize::from(spec.ports.iter().flatten().any(|port| port.node_port.is_some()));
    let (each, at) = match spec.session_affinity.as_deref() {
        Some("ClientIP") => (REMEMBERING, "endpoints that remember their clients".to_owned()),
        _ if endpoints > ENDPOINTS => (places, "endpoints".to_owned()),
        _ => (places, format!("endpoints and {places} places")),
    };
    if endpoints.saturating_mul(each) > ENDPOINTS {
        return too_many(&at, endpoints / ports.max(1));
    }
    Ok(endpoints * each + ports * (addresses + ranges))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::{Value, json};

    use super::*;

    fn ports(count: usize) -> Vec<Value> {
        (1..=count).map(|number| json!({"name": format!("p{number}"), "port": number % 65_535 + 1})).collect()
    }

    fn texts(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("203.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255)).collect()
    }

    #[test]
    fn what_is_listed_is_not_multiplied_without_end() {
        let check = |spec: Value, endpoints: (usize, usize), served: bool| -> String {
            let slice = json!({"metadata": {}, "addressType": "IPv4", "ports": ports(endpoints.0),
                "endpoints": texts(endpoints.1).iter().map(|one| json!({"addresses": [one]})).collect::<Vec<_>>()});
            let slice: EndpointSlice = serde_json::from_value(slice).expect("a slice");
            let slice = Slice::from(slice);
            let service: Service = serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("a service");
            let slices: Vec<&Slice> = std::iter::repeat_n(&slice, 10).collect();
            let extent = extent(&service, slices);
            assert_eq!(extent.is_ok(), served, "{endpoints:?}");
            extent.err().unwrap_or_default()
        };
        let none = (0, 0);
        for (ports_count, addresses, ranges, endpoints, served) in [
            (1, 0, 0, none, true),
            (100, 10, 100, none, true),
            (1, 20_000, 30_000, none, true),
            (20_000, 1, 0, none, true),
            (100, 100, 0, none, false),
            (10_000, 10_000, 0, none, false),
            (1000, 0, 1000, none, false),
            (10, 0, 0, (10, 10_000), true),
            (10, 0, 0, (10, 10_001), false),
            // Each address has each endpoint.
            (1, 999, 0, (1, 100), true),
            (1, 999, 0, (1, 101), false),
            // Ports of a slice that the Service does not have are nobody's.
            (10, 0, 0, (1000, 10_000), true),
            (10_000, 0, 0, (1001, 0), true),
        ] {
            let spec = json!({"ports": ports(ports_count), "clusterIPs": ["10.96.0.9"], "externalIPs": texts(addresses),
                "loadBalancerSourceRanges": texts(ranges)});
            check(spec, endpoints, served);
        }
        for (affinity, node_port, endpoints, why) in [
            ("None", 30_000, 50_000, ""),
            ("None", 30_000, 50_001, "500010 endpoints and 2 places are"),
            ("ClientIP", 0, 5000, ""),
            ("ClientIP", 0, 5001, "50010 endpoints that remember their clients are"),
        ] {
            let mut port = json!({"name": "p1", "port": 80});
            if node_port > 0 {
                port["nodePort"] = json!(node_port);
            }
            let spec = json!({"ports": [port], "clusterIPs": ["10.96.0.9"], "sessionAffinity": affinity});
            assert!(check(spec, (1, endpoints), why.is_empty()).contains(why), "{why}");
        }
    }
}

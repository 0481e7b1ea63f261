//! From a Service to the address of one of its ready endpoints.

use ferry_meta::ObjectReader;
use ferry_meta::object::{items, labels, text};
use rand::seq::IndexedRandom;
use serde_json::Value;

use crate::ServiceError;
use crate::resources::{ENDPOINT_SLICES, SERVICES};

/// `host` is `name.namespace.svc`.
pub fn resolve(reader: &dyn ObjectReader, host: &str, port: u16) -> Result<(String, u16), ServiceError> {
    let mut parts = host.split('.');
    let (name, namespace) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let service = reader.get(&SERVICES, namespace, name).ok_or_else(|| ServiceError::NotFound(name.to_owned()))?;
    if text(&service, "/spec/type") == "ExternalName" {
        return Ok((text(&service, "/spec/externalName").to_owned(), port));
    }
    let wanted = items(&service, "/spec/ports")
        .iter()
        .find(|candidate| candidate.get("port").and_then(Value::as_u64) == Some(port.into()))
        .ok_or_else(|| ServiceError::NoPort { service: name.to_owned(), port })?;
    let port_name = text(wanted, "/name");
    let mut addresses = Vec::new();
    for slice in reader.list(&ENDPOINT_SLICES, namespace) {
        if labels(&slice).get("kubernetes.io/service-name").and_then(Value::as_str) != Some(name) {
            continue;
        }
        let number = items(&slice, "/ports")
            .iter()
            .find(|candidate| text(candidate, "/name") == port_name)
            .and_then(|candidate| u16::try_from(candidate.get("port")?.as_u64()?).ok());
        let Some(number) = number else { continue };
        let ready = items(&slice, "/endpoints")
            .iter()
            .filter(|endpoint| endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false));
        for endpoint in ready {
            addresses.extend(text(endpoint, "/addresses/0").parse().ok().map(|ip: std::net::IpAddr| (ip, number)));
        }
    }
    addresses
        .choose(&mut rand::rng())
        .map(|(address, port)| (address.to_string(), *port))
        .ok_or_else(|| ServiceError::NoEndpoints(name.to_owned()))
}

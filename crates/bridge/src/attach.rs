//! The commands of the CNI protocol, and what the node does at its start.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::bandwidth;
use crate::configuration::{Configuration, Request, Settings, gateway};
use crate::error::BridgeError;
use crate::inside::{Pod, check, configure, inside};
use crate::links::{add_pair, delete, ensure_bridge, find, link_name, names};
use crate::netlink::{on_thread, with_kernel};
use crate::ports;
use crate::records::{Record, Records};

/// Makes the bridge with the gateways' addresses, takes back the addresses of pods that are gone, and writes the host ports.
/// May run again at any time. Returns how many addresses were taken back.
pub async fn prepare(settings: Settings) -> Result<usize, BridgeError> {
    on_thread(move || {
        let networks = settings.networks()?;
        with_kernel(async |handle| ensure_bridge(&handle, &settings, &networks).await)?;
        let records = Records::lock(&settings.state)?;
        let taken_back = reclaim(&records)?.len();
        ports::write(&settings, &records)?;
        Ok(taken_back)
    })
    .await
}

/// Writes the host ports again after somebody flushed them.
pub async fn restore_host_ports(settings: Settings) -> Result<(), BridgeError> {
    on_thread(move || ports::write(&settings, &Records::lock(&settings.state)?)).await
}

/// Carries out a request. Blocks.
pub fn run(request: &Request) -> Result<Value, BridgeError> {
    let configuration = Configuration::read(&request.configuration)?;
    let version = request.configuration["cniVersion"].as_str().unwrap_or("0.4.0");
    match request.command.as_str() {
        "ADD" => add(request, &configuration, version),
        "DEL" => remove(&configuration.settings, &request.container_id, &request.interface).map(|()| Value::Null),
        "CHECK" => still_attached(request, &configuration).map(|()| Value::Null),
        "GC" => collect(&configuration).map(|()| Value::Null),
        "STATUS" => status(&configuration.settings).map(|()| Value::Null),
        other => Err(BridgeError::Configuration(format!("{other:?} is no command"))),
    }
}

fn add(request: &Request, configuration: &Configuration, version: &str) -> Result<Value, BridgeError> {
    let settings = &configuration.settings;
    let networks = settings.networks()?;
    let wrong = |source| BridgeError::Namespace { path: request.namespace.clone(), source };
    let namespace = File::open(&request.namespace).map_err(wrong)?;
    let link = link_name(&request.container_id, &request.interface);
    with_kernel(async |handle| add_pair(&handle, settings, &link, &request.interface, namespace.as_fd()).await)?;
    // Undone only from here on: a pair that was there before is another request's.
    let attached = attach(request, configuration, &networks, &link);
    match attached {
        Ok(addresses) => Ok(result(version, request, settings, &link, &addresses)),
        Err(error) => {
            let _ = remove(settings, &request.container_id, &request.interface);
            Err(error)
        }
    }
}

fn attach(
    request: &Request,
    configuration: &Configuration,
    networks: &[IpNet],
    link: &str,
) -> Result<Vec<(IpAddr, IpNet)>, BridgeError> {
    let (settings, asked) = (&configuration.settings, &configuration.runtime_config);
    let record = Record {
        container_id: request.container_id.clone(),
        interface: request.interface.clone(),
        link: link.to_owned(),
        pod: request.pod(),
        host_ports: asked.port_mappings.iter().filter(|port| port.host_port > 0).cloned().collect(),
    };
    let reserved = {
        let records = Records::lock(&settings.state)?;
        match records.reserve(networks, &record) {
            Err(BridgeError::Full { .. }) => {
                reclaim(&records)?;
                records.reserve(networks, &record)?
            }
            other => other?,
        }
    };
    let addresses: Vec<(IpAddr, IpNet)> = reserved.into_iter().zip(networks.iter().copied()).collect();
    let pod = Pod { interface: &request.interface, addresses: &addresses, egress_rate: asked.bandwidth.egress_rate };
    inside(&request.namespace, async |handle| configure(&handle, &pod).await)?;
    if asked.bandwidth.ingress_rate > 0 {
        with_kernel(async |handle| {
            let Some(found) = find(&handle, link).await? else { return Ok(()) };
            bandwidth::limit(&handle, found.header.index, asked.bandwidth.ingress_rate).await
        })?;
    }
    if !record.host_ports.is_empty() {
        ports::write(settings, &Records::lock(&settings.state)?)?;
    }
    Ok(addresses)
}

/// Takes a pod off its network, whatever is left of it; may be called again.
fn remove(settings: &Settings, container_id: &str, interface: &str) -> Result<(), BridgeError> {
    with_kernel(async |handle| delete(&handle, &link_name(container_id, interface)).await)?;
    let records = Records::lock(&settings.state)?;
    let released = records.release(container_id, interface)?;
    if released.iter().any(|record| !record.host_ports.is_empty()) {
        ports::write(settings, &records)?;
    }
    Ok(())
}

/// Takes back the addresses of pods whose device is gone. A device is made before its address is written down, and nobody
/// writes while the records are locked.
fn reclaim(records: &Records) -> Result<Vec<Record>, BridgeError> {
    let there = with_kernel(async |handle| names(&handle).await)?;
    records.reclaim(|record| !there.contains(&record.link))
}

/// Takes away everything that belongs to no valid attachment.
fn collect(configuration: &Configuration) -> Result<(), BridgeError> {
    let (settings, valid) = (&configuration.settings, &configuration.valid_attachments);
    let records = Records::lock(&settings.state)?;
    let gone = records.reclaim(|record| !record.is_among(valid))?;
    with_kernel(async |handle| {
        for record in &gone {
            delete(&handle, &record.link).await?;
        }
        Ok(())
    })?;
    ports::write(settings, &records)
}

fn status(settings: &Settings) -> Result<(), BridgeError> {
    settings.networks()?;
    let bridge = with_kernel(async |handle| find(&handle, &settings.bridge).await)?;
    bridge.map(drop).ok_or_else(|| BridgeError::NoBridge(settings.bridge.clone()))
}

fn still_attached(request: &Request, configuration: &Configuration) -> Result<(), BridgeError> {
    let ips = configuration.prev_result.iter().flat_map(|result| result["ips"].as_array().into_iter().flatten());
    let wanted: Vec<IpAddr> = ips.filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok()).collect();
    let link = link_name(&request.container_id, &request.interface);
    if with_kernel(async |handle| find(&handle, &link).await)?.is_none() {
        return Err(BridgeError::Check(format!("the node has no device {link}")));
    }
    inside(&request.namespace, async |handle| check(&handle, &request.interface, &wanted).await)
}

/// As CNI 1.0 has it; older versions say the family of each address, too.
fn result(version: &str, request: &Request, settings: &Settings, link: &str, addresses: &[(IpAddr, IpNet)]) -> Value {
    let sandbox: &Path = &request.namespace;
    let ips: Vec<Value> = addresses
        .iter()
        .map(|(address, network)| {
            let mut ip = json!({ "address": format!("{address}/{}", network.prefix_len()), "interface": 2 });
            if let Some(gateway) = gateway(network) {
                ip["gateway"] = json!(gateway);
            }
            if version.starts_with("0.") {
                ip["version"] = json!(if address.is_ipv4() { "4" } else { "6" });
            }
            ip
        })
        .collect();
    let routes = addresses.iter().map(|(address, network)| {
        let everywhere = if address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        json!({ "dst": everywhere, "gw": gateway(network) })
    });
    json!({
        "cniVersion": version,
        "interfaces": [
            { "name": settings.bridge }, { "name": link }, { "name": request.interface, "sandbox": sandbox },
        ],
        "ips": ips,
        "routes": routes.collect::<Vec<_>>(),
    })
}

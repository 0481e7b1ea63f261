//! Services, with their endpoints.

use serde_json::Value;

use super::parts::{head, list as items, marks, text};
use crate::error::Result;
use crate::print::go_value::show;
use crate::resource::{Selection, list};
use crate::session::Context;

pub async fn service(context: &Context, object: &Value) -> Result<String> {
    let spec = &object["spec"];
    let slices = slices(context, object).await;
    let mut out = head(object, true);
    out.push_str(&marks(object));
    let selector = spec["selector"].as_object().filter(|map| !map.is_empty()).map(|map| {
        map.iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(",")
    });
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            out.push_str(&format!("{name}:\t{value}\n"));
        }
    };
    let joined = |list: &Value| items(list).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
    let or_none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    field("Selector", &selector.unwrap_or_else(|| "<none>".into()));
    field("Type", text(spec, "type"));
    field("IP Family Policy", text(spec, "ipFamilyPolicy"));
    field("IP Families", &or_none(joined(&spec["ipFamilies"])));
    out.push_str(&format!("IP:\t{}\n", text(spec, "clusterIP")));
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            out.push_str(&format!("{name}:\t{value}\n"));
        }
    };
    field("IPs", &or_none(joined(&spec["clusterIPs"])));
    field("External IPs", &joined(&spec["externalIPs"]));
    field("Desired LoadBalancer IP", text(spec, "loadBalancerIP"));
    field("External Name", text(spec, "externalName"));
    let ingress: Vec<String> = items(&object["status"]["loadBalancer"]["ingress"])
        .iter()
        .map(|ingress| {
            let ip = text(ingress, "ip");
            let mode = ingress["ipMode"].as_str().map(|mode| format!(" ({mode})")).unwrap_or_default();
            if ip.is_empty() { text(ingress, "hostname").to_owned() } else { format!("{ip}{mode}") }
        })
        .collect();
    field("LoadBalancer Ingress", &ingress.join(", "));
    for port in items(&spec["ports"]) {
        let name = Some(text(port, "name")).filter(|name| !name.is_empty()).unwrap_or("<unset>");
        let protocol = text(port, "protocol");
        field("Port", &format!("{name}\t{}/{protocol}", show(&port["port"])));
        field("TargetPort", &format!("{}/{protocol}", show(&port["targetPort"])));
        field("AppProtocol", text(port, "appProtocol"));
        if let Some(number) = port["nodePort"].as_i64().filter(|number| *number != 0) {
            field("NodePort", &format!("{name}\t{number}/{protocol}"));
        }
        // Nothing ready is an empty place, not a missing line.
        let endpoints = endpoints(&slices, text(port, "name"));
        field("Endpoints", if endpoints.is_empty() { EMPTY } else { &endpoints });
    }
    field("Session Affinity", text(spec, "sessionAffinity"));
    field("External Traffic Policy", text(spec, "externalTrafficPolicy"));
    field("Internal Traffic Policy", text(spec, "internalTrafficPolicy"));
    let check = spec["healthCheckNodePort"].as_i64().filter(|port| *port != 0).map(|port| port.to_string());
    field("HealthCheck NodePort", &check.unwrap_or_default());
    field("LoadBalancer Source Ranges", &joined(&spec["loadBalancerSourceRanges"]));
    field("Traffic Distribution", text(spec, "trafficDistribution"));
    Ok(out.replace(EMPTY, ""))
}

/// A value that is shown as nothing.
const EMPTY: &str = "\u{0}";

/// By its name.
pub async fn find(context: &Context, namespace: &str, name: &str) -> Result<Value> {
    let resource = context.kind("v1", "Service").await?;
    crate::resource::get(context, &resource, Some(namespace), name).await
}

pub async fn slices(context: &Context, object: &Value) -> Vec<Value> {
    let Ok(resource) = context.kind("discovery.k8s.io/v1", "EndpointSlice").await else { return Vec::new() };
    let metadata = &object["metadata"];
    let selection = Selection {
        resource,
        namespace: metadata["namespace"].as_str().map(str::to_owned),
        labels: format!("kubernetes.io/service-name={}", text(metadata, "name")),
        fields: String::new(),
    };
    list(context, &selection, 500).await.unwrap_or_default()
}

/// The first three, and how many more.
pub fn endpoints(slices: &[Value], port_name: &str) -> String {
    const MOST: usize = 3;
    if slices.is_empty() {
        return "<none>".into();
    }
    let mut all = Vec::new();
    for slice in slices {
        let ports: Vec<Option<i64>> = match items(&slice["ports"]) {
            [] => vec![None],
            ports => {
                ports.iter().filter(|port| text(port, "name") == port_name).map(|port| port["port"].as_i64()).collect()
            }
        };
        for port in ports {
            for endpoint in items(&slice["endpoints"]) {
                if endpoint["conditions"]["ready"] == false {
                    continue;
                }
                let address = endpoint["addresses"][0].as_str().unwrap_or_default();
                all.push(match port {
                    Some(port) if address.contains(':') => format!("[{address}]:{port}"),
                    Some(port) => format!("{address}:{port}"),
                    None => address.to_owned(),
                });
            }
        }
    }
    let shown = all.iter().take(MOST).cloned().collect::<Vec<_>>().join(",");
    if all.len() > MOST { format!("{shown} + {} more...", all.len() - MOST) } else { shown }
}

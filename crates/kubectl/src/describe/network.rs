//! Ingresses and their classes, endpoints, service addresses.

use serde_json::Value;

use super::parts::{annotations, date, head, list, marks, pairs, text};
use super::service;
use crate::print::go_value::show;
use crate::session::Context;

fn joined(values: &Value, between: &str) -> String {
    list(values).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(between)
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

pub async fn ingress(context: &Context, object: &Value) -> String {
    let (spec, metadata) = (&object["spec"], &object["metadata"]);
    let namespace = text(metadata, "namespace");
    let mut addresses: Vec<&str> = list(&object["status"]["loadBalancer"]["ingress"])
        .iter()
        .map(|ingress| or(text(ingress, "ip"), text(ingress, "hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let default = match &spec["defaultBackend"] {
        Value::Null => "<default>".to_owned(),
        found => backend(context, namespace, found).await,
    };
    let mut out = head(object, false) + &pairs("Labels", &metadata["labels"]);
    out.push_str(&format!("Namespace:\t{namespace}\nAddress:\t{}\n", addresses.join(",")));
    out.push_str(&format!("Ingress Class:\t{}\n", or(text(spec, "ingressClassName"), "<none>")));
    out.push_str(&format!("Default backend:\t{default}\n"));
    if !list(&spec["tls"]).is_empty() {
        out.push_str("TLS:\n");
    }
    for tls in list(&spec["tls"]) {
        let hosts = joined(&tls["hosts"], ",");
        match text(tls, "secretName") {
            "" => out.push_str(&format!("  SNI routes {hosts}\n")),
            secret => out.push_str(&format!("  {secret} terminates {hosts}\n")),
        }
    }
    out.push_str("Rules:\n  Host\tPath\tBackends\n  ----\t----\t--------\n");
    let rules: Vec<&Value> = list(&spec["rules"]).iter().filter(|rule| rule["http"].is_object()).collect();
    for rule in &rules {
        out.push_str(&format!("  {}\t\n", or(text(rule, "host"), "*")));
        for path in list(&rule["http"]["paths"]) {
            let target = backend(context, namespace, &path["backend"]).await;
            out.push_str(&format!("    \t{} \t{target}\n", text(path, "path")));
        }
    }
    if rules.is_empty() {
        out.push_str(&format!("  *\t*\t{default}\n"));
    }
    out + &annotations("Annotations", &metadata["annotations"])
}

/// `web:80 (10.0.0.1:8080)`: a service with its endpoints, or another object.
async fn backend(context: &Context, namespace: &str, backend: &Value) -> String {
    let service = &backend["service"];
    if service.is_object() {
        let (name, port) = (text(service, "name"), &service["port"]);
        let number = port["number"].as_i64().filter(|number| *number != 0);
        let shown = format!("{name}:{}", number.map_or(text(port, "name").to_owned(), |number| number.to_string()));
        let found = match service::find(context, namespace, name).await {
            Ok(found) => found,
            Err(error) => return format!("{shown} (<error: {}>)", error.inner()),
        };
        let same = |candidate: &&Value| match number {
            Some(number) => candidate["port"].as_i64() == Some(number),
            None => candidate["name"] == port["name"],
        };
        let port_name = list(&found["spec"]["ports"]).iter().find(same).map_or("", |port| text(port, "name"));
        let slices = service::slices(context, &found).await;
        return format!("{shown} ({})", service::endpoints(&slices, port_name));
    }
    let resource = &backend["resource"];
    if resource.is_object() {
        let (kind, name) = (text(resource, "kind"), text(resource, "name"));
        return format!("APIGroup: {}, Kind: {kind}, Name: {name}", or(text(resource, "apiGroup"), "<none>"));
    }
    String::new()
}

pub fn ingress_class(object: &Value) -> String {
    let spec = &object["spec"];
    let mut out = head(object, false) + &marks(object);
    out.push_str(&format!("Controller:\t{}\n", text(spec, "controller")));
    let parameters = &spec["parameters"];
    if parameters.is_object() {
        out.push_str("Parameters:\n");
        if let Some(group) = parameters["apiGroup"].as_str() {
            out.push_str(&format!("  APIGroup:\t{group}\n"));
        }
        out.push_str(&format!("  Kind:\t{}\n  Name:\t{}\n", text(parameters, "kind"), text(parameters, "name")));
    }
    out
}

pub fn service_cidr(object: &Value) -> String {
    let mut out = head(object, false) + &marks(object);
    out.push_str(&format!("CIDRs:\t{}\n", joined(&object["spec"]["cidrs"], ", ")));
    let conditions = list(&object["status"]["conditions"]);
    if !conditions.is_empty() {
        out.push_str("Status:\nConditions:\n  Type\tStatus\tLastTransitionTime\tReason\tMessage\n");
        out.push_str("  ----\t------\t------------------\t------\t-------\n");
    }
    for condition in conditions {
        out.push_str(&format!(
            "  {}\t{}\t{}\t{}\t{}\n",
            text(condition, "type"),
            text(condition, "status"),
            date(text(condition, "lastTransitionTime")),
            text(condition, "reason"),
            text(condition, "message")
        ));
    }
    out
}

pub fn ip_address(object: &Value) -> String {
    let parent = &object["spec"]["parentRef"];
    let mut out = head(object, false) + &marks(object);
    if parent.is_object() {
        out.push_str("Parent Reference:\n");
        for (title, field) in
            [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")]
        {
            out.push_str(&format!("  {title}:\t{}\n", text(parent, field)));
        }
    }
    out
}

pub fn endpoints(object: &Value) -> String {
    let mut out = head(object, true) + &marks(object) + "Subsets:\n";
    for subset in list(&object["subsets"]) {
        for (title, field) in [("Addresses", "addresses"), ("NotReadyAddresses", "notReadyAddresses")] {
            let all: Vec<&str> = list(&subset[field]).iter().map(|address| text(address, "ip")).collect();
            out.push_str(&format!("  {title}:\t{}\n", or(&all.join(","), "<none>")));
        }
        if !list(&subset["ports"]).is_empty() {
            out.push_str("  Ports:\n    Name\tPort\tProtocol\n    ----\t----\t--------\n");
        }
        for port in list(&subset["ports"]) {
            let name = or(text(port, "name"), "<unset>");
            out.push_str(&format!("    {name}\t{}\t{}\n", show(&port["port"]), text(port, "protocol")));
        }
        out.push('\n');
    }
    out
}

pub fn endpoint_slice(object: &Value) -> String {
    let mut out = head(object, true) + &marks(object);
    out.push_str(&format!("AddressType:\t{}\n", text(object, "addressType")));
    let ports = list(&object["ports"]);
    match ports.is_empty() {
        true => out.push_str("Ports: <unset>\n"),
        false => out.push_str("Ports:\n  Name\tPort\tProtocol\n  ----\t----\t--------\n"),
    }
    for port in ports {
        let number = port["port"].as_i64().map_or("<unset>".to_owned(), |number| number.to_string());
        let name = or(text(port, "name"), "<unset>");
        out.push_str(&format!("  {name}\t{number}\t{}\n", text(port, "protocol")));
    }
    let endpoints = list(&object["endpoints"]);
    out.push_str(if endpoints.is_empty() { "Endpoints: <none>\n" } else { "Endpoints:\n" });
    for endpoint in endpoints {
        let unset = |field: &str| endpoint[field].as_str().unwrap_or("<unset>").to_owned();
        let addresses = joined(&endpoint["addresses"], ", ");
        let ready = endpoint["conditions"]["ready"].as_bool().map_or("<unset>".to_owned(), |ready| ready.to_string());
        out.push_str(&format!("  - Addresses:\t{}\n    Conditions:\n", or(&addresses, "<none>")));
        out.push_str(&format!("      Ready:\t{ready}\n    Hostname:\t{}\n", unset("hostname")));
        let target = &endpoint["targetRef"];
        if target.is_object() {
            out.push_str(&format!("    TargetRef:\t{}/{}\n", text(target, "kind"), text(target, "name")));
        }
        out.push_str(&format!("    NodeName:\t{}\n    Zone:\t{}\n", unset("nodeName"), unset("zone")));
    }
    out
}

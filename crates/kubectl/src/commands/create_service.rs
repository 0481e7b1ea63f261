//! `create service` and `create ingress`.

use serde_json::{Map, Value, json};

use super::{Command, generate, group, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, array, slice, text};
use crate::session::Context;

const TCP: Flag = slice("tcp", "Port pairs can be specified as '<port>:<targetPort>'.");

pub const SERVICE: Command = group(
    "service",
    "Create a service using a specified subcommand",
    &[
        leaf(
            "clusterip",
            "NAME [--tcp=<port>:<targetPort>] [--dry-run=server|client|none]",
            "Create a ClusterIP service",
            || generate::flags(&[TCP, text("clusterip", "Assign your own ClusterIP or set to 'None' for headless.")]),
            |c| Box::pin(service(c, "ClusterIP")),
        ),
        leaf(
            "externalname",
            "NAME --external-name external.name [--dry-run=server|client|none]",
            "Create an ExternalName service",
            || generate::flags(&[TCP, text("external-name", "External name of service.")]),
            |c| Box::pin(service(c, "ExternalName")),
        ),
        leaf(
            "loadbalancer",
            "NAME [--tcp=port:targetPort] [--dry-run=server|client|none]",
            "Create a LoadBalancer service",
            || generate::flags(&[TCP]),
            |c| Box::pin(service(c, "LoadBalancer")),
        ),
        leaf(
            "nodeport",
            "NAME [--tcp=port:targetPort] [--dry-run=server|client|none]",
            "Create a NodePort service",
            || {
                generate::flags(&[
                    TCP,
                    Flag::new("node-port", Kind::Int, "0", "Port used to expose the service on each node."),
                ])
            },
            |c| Box::pin(service(c, "NodePort")),
        ),
    ],
)
.usage("[flags]")
.aliases(&["svc"]);

pub const INGRESS: Command = leaf(
    "ingress",
    "NAME --rule=host/path=service:port[,tls[=secret]]",
    "Create an ingress with the specified name",
    || {
        generate::flags(&[
            array("rule", "Rule in format host/path=service:port[,tls=secretname]."),
            array("annotation", "Annotation in the format annotation=value."),
            text("class", "Ingress class to be used."),
            text("default-backend", "Default service for backend, in format of svcname:port."),
        ])
    },
    |c| Box::pin(ingress(c)),
)
.aliases(&["ing"]);

/// A selector of labels as an object's: `a=b,c in (d)`.
pub fn selector(text: &str) -> Result<Value> {
    use ferry_meta::selector::{LabelSelector, Operator};
    let parsed = LabelSelector::parse(text).map_err(Error::say)?;
    let (mut labels, mut expressions) = (Map::new(), Vec::new());
    for requirement in parsed.requirements() {
        let values: Vec<String> = requirement.values.iter().map(ToString::to_string).collect();
        let operator = match requirement.operator {
            Operator::In if values.len() == 1 => {
                labels.insert(requirement.key.to_string(), values[0].clone().into());
                continue;
            }
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            _ => "DoesNotExist",
        };
        let mut expression = json!({"key": requirement.key.to_string(), "operator": operator});
        if !values.is_empty() {
            expression["values"] = values.into();
        }
        expressions.push(expression);
    }
    let mut selector = json!({});
    if !labels.is_empty() {
        selector["matchLabels"] = labels.into();
    }
    if !expressions.is_empty() {
        selector["matchExpressions"] = expressions.into();
    }
    Ok(selector)
}

/// The port of the service is only read as a number here; whether it can be one, the server says.
fn port_number(text: &str) -> Result<u16> {
    text.parse().map_err(|_| {
        let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        let why = if digits { "value out of range" } else { "invalid syntax" };
        Error::say(format!("strconv.ParseUint: parsing {}: {why}", crate::text::quote(text)))
    })
}

/// A number or the name of a port, checked only where it is written apart.
fn target_port(text: &str) -> Result<Value> {
    match text.parse::<i64>() {
        Ok(number) if (1..=65535).contains(&number) => Ok(number.into()),
        Ok(_) => Err(Error::say("must be between 1 and 65535, inclusive")),
        Err(_) => match &*ferry_meta::names::port_name(text) {
            [] => Ok(text.into()),
            reasons => Err(Error::say(reasons.join(","))),
        },
    }
}

async fn service(context: &Context, kind: &str) -> Result<()> {
    let flags = &context.flags;
    let name = generate::name(context)?;
    let mut ports = Vec::new();
    for pair in flags.list("tcp") {
        // What stands behind the second colon means nothing.
        let mut parts = pair.split(':');
        let port = parts.next().unwrap_or_default();
        let target = parts.next().unwrap_or(port);
        let number = port_number(port)?;
        let target_value = if pair.contains(':') { target_port(target)? } else { number.into() };
        let label = pair.replace(':', "-");
        let mut entry = json!({"name": label, "port": number, "protocol": "TCP", "targetPort": target_value});
        if kind == "NodePort" && flags.int("node-port") != 0 {
            entry["nodePort"] = flags.int("node-port").into();
        }
        ports.push(entry);
    }
    let cluster_ip = if kind == "ClusterIP" { flags.text("clusterip") } else { "" };
    // A headless service may have none.
    if ports.is_empty() && kind != "ExternalName" && cluster_ip != "None" {
        return Err(Error::say("at least one tcp port specifier must be provided"));
    }
    let mut spec = json!({"selector": {"app": name}, "type": kind});
    if !ports.is_empty() {
        spec["ports"] = ports.into();
    }
    if !cluster_ip.is_empty() {
        spec["clusterIP"] = cluster_ip.into();
    }
    if kind == "ExternalName" {
        if flags.text("external-name").is_empty() {
            return Err(Error::say("required flag(s) \"external-name\" not set"));
        }
        let external = flags.text("external-name");
        if !ferry_meta::names::dns1123_subdomain(external).is_empty() {
            return Err(Error::say(format!("invalid service external name {external}")));
        }
        spec["externalName"] = external.into();
    }
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec,
    });
    generate::finish(context, object).await
}

fn backend(text: &str, bad: impl Fn() -> Error) -> Result<Value> {
    let (service, port) = text.split_once(':').ok_or_else(bad)?;
    let port = port.parse::<i64>().map_or_else(|_| json!({"name": port}), |number| json!({"number": number}));
    Ok(json!({"service": {"name": service, "port": port}}))
}

async fn ingress(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let name = generate::name(context)?;
    if flags.list("rule").is_empty() && flags.text("default-backend").is_empty() {
        return Err(Error::say(
            "not enough information provided: every ingress has to either specify a default-backend (which catches all traffic) or a list of rules (which catch specific paths)",
        ));
    }
    let (mut hosts, mut tls): (Vec<(String, Vec<Value>)>, Vec<Value>) = (Vec::new(), Vec::new());
    for rule in flags.list("rule") {
        let bad = || {
            Error::say(format!(
                "rule {rule} is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]"
            ))
        };
        let mut parts = rule.split(',');
        let (place, service) = parts.next().and_then(|first| first.split_once('=')).ok_or_else(bad)?;
        let at = place.find('/').ok_or_else(bad)?;
        let (host, path) = place.split_at(at);
        let (path, kind) = match path.strip_suffix('*') {
            Some(prefix) => (prefix, "Prefix"),
            None => (path, "Exact"),
        };
        let entry = json!({"path": path, "pathType": kind, "backend": backend(service, bad)?});
        match hosts.iter_mut().find(|(known, _)| known == host) {
            Some((_, paths)) => paths.push(entry),
            None => hosts.push((host.to_owned(), vec![entry])),
        }
        // Other options are left alone, as kubectl leaves them.
        for option in parts {
            let (option, secret) = option.split_once('=').unwrap_or((option, ""));
            if option != "tls" {
                continue;
            }
            if let Some(known) = tls.iter_mut().find(|entry| !secret.is_empty() && entry["secretName"] == *secret) {
                if let Some(hosts) = known["hosts"].as_array_mut().filter(|_| !host.is_empty()) {
                    hosts.push(host.into());
                }
                continue;
            }
            let mut entry = json!({});
            if !host.is_empty() {
                entry["hosts"] = json!([host]);
            }
            if !secret.is_empty() {
                entry["secretName"] = secret.into();
            }
            tls.push(entry);
        }
    }
    let mut spec = json!({});
    if let Some(class) = flags.given("class") {
        spec["ingressClassName"] = class.into();
    }
    if let Some(text) = flags.given("default-backend") {
        let bad = || Error::say("default-backend should be in format servicename:serviceport");
        spec["defaultBackend"] = backend(text, bad)?;
    }
    let rules: Vec<Value> = hosts
        .into_iter()
        .map(|(host, paths)| {
            let mut rule = json!({"http": {"paths": paths}});
            if !host.is_empty() {
                rule["host"] = host.into();
            }
            rule
        })
        .collect();
    if !rules.is_empty() {
        spec["rules"] = rules.into();
    }
    if !tls.is_empty() {
        spec["tls"] = tls.into();
    }
    let mut object =
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name}, "spec": spec});
    for annotation in flags.list("annotation") {
        let Some((key, value)) = annotation.split_once('=') else {
            return Err(Error::say(format!("annotation {annotation} is invalid and should be in format key=[value]")));
        };
        object["metadata"]["annotations"][key] = value.into();
    }
    generate::finish(context, object).await
}

//! Ingresses as resources of the Gateway API: one Gateway with the listeners of all, routes beside the Ingresses, and the
//! ReferenceGrants that let the Gateway read their certificates. What cannot be turned is named.

mod canary;
mod path;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ferry_client::ObjectKey;
use k8s_openapi::api::networking::v1::{Ingress, IngressBackend};
use serde_json::{Value, json};

use crate::CLASS;
use crate::api::GROUP;
use crate::resolve::annotations::{Annotations, BackendProtocol};
pub use crate::resolve::ingress::class;
use crate::resolve::objects::{age, key};

/// The number of a Service's port that an Ingress names: namespace, Service, name of the port.
pub type PortNumber<'a> = &'a dyn Fn(&str, &str, &str) -> Option<i32>;

#[derive(Debug, Default)]
pub struct Converted {
    /// In the order in which they can be applied.
    pub objects: Vec<Value>,
    /// What the objects do not do, or do otherwise, by Ingress.
    pub remarks: Vec<String>,
}

/// A route that is being made, and the listeners that it is for.
struct Route {
    key: ObjectKey,
    host: Option<String>,
    rules: Vec<Value>,
    secret: Option<String>,
    redirects: bool,
}

struct Converter<'a> {
    ports: PortNumber<'a>,
    remarks: Vec<String>,
}

/// Turns Ingresses into a Gateway of this name and their routes.
pub fn convert(ingresses: &[Ingress], gateway: &ObjectKey, ports: PortNumber<'_>) -> Converted {
    let mut converter = Converter { ports, remarks: Vec::new() };
    let mut all: Vec<(&Ingress, Annotations)> =
        ingresses.iter().map(|ingress| (ingress, Annotations::read(ingress.metadata.annotations.as_ref()))).collect();
    // Canaries come last: they take requests from those that are there.
    all.sort_by_key(|(ingress, annotations)| (annotations.canary.is_some(), age(&ingress.metadata)));
    let mut routes: Vec<Route> = Vec::new();
    for (ingress, annotations) in &all {
        if !converter.can_be_turned(ingress, annotations) {
            continue;
        }
        match &annotations.canary {
            Some(canary) => converter.add_canary(&mut routes, ingress, canary),
            None => routes.extend(converter.routes(ingress, annotations)),
        }
    }
    Converted { objects: objects(&routes, gateway), remarks: converter.remarks }
}

impl Converter<'_> {
    fn remark(&mut self, ingress: &Ingress, text: &str) {
        let remark = format!("Ingress {}: {text}", key(&ingress.metadata));
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Who keeps somebody out by an annotation is not turned into a route that lets everybody in.
    fn can_be_turned(&mut self, ingress: &Ingress, annotations: &Annotations) -> bool {
        for (is_used, what) in
            [(annotations.auth.is_some(), "passwords"), (!annotations.sources.is_empty(), "source ranges")]
        {
            if is_used {
                self.remark(ingress, &format!("left as it is: routes have no {what}, and would let everybody in"));
                return false;
            }
        }
        for (is_used, what) in [
            (
                annotations.body_size.is_some(),
                "proxy-body-size: give its routes the annotation gateway.ferry.dev/max-body-size",
            ),
            (
                annotations.requests_per_second.is_some() || annotations.requests_per_minute.is_some(),
                "limit-rps, limit-rpm: give its routes the annotation gateway.ferry.dev/rate-limit",
            ),
            (annotations.compress, "gateway.ferry.dev/compression: give its routes the annotation"),
            (
                annotations.connect_timeout.is_some(),
                "proxy-connect-timeout: routes have a time for the whole request to a backend",
            ),
            (annotations.affinity.is_some(), "affinity: session persistence is not in the standard channel"),
        ] {
            if is_used {
                self.remark(ingress, &format!("not turned: {what}"));
            }
        }
        match annotations.backend_protocol {
            BackendProtocol::Http => {}
            BackendProtocol::Grpc => {
                self.remark(
                    ingress,
                    "backend-protocol GRPC: set appProtocol kubernetes.io/h2c at the port of its Services",
                );
            }
            BackendProtocol::Https | BackendProtocol::Grpcs => {
                self.remark(
                    ingress,
                    "left as it is: TLS to backends needs a BackendTLSPolicy with the authority that verifies them, which an Ingress does not name",
                );
                return false;
            }
        }
        for name in &annotations.ignored {
            self.remark(ingress, &format!("not turned: {name}"));
        }
        true
    }

    /// A route for each host, or for all hosts where it names none.
    fn routes(&mut self, ingress: &Ingress, annotations: &Annotations) -> Vec<Route> {
        let Some(spec) = &ingress.spec else { return Vec::new() };
        let mut by_host: BTreeMap<Option<String>, Vec<Value>> = BTreeMap::new();
        for rule in spec.rules.iter().flatten() {
            let host = rule.host.clone().filter(|host| !host.is_empty());
            if host.as_ref().is_some_and(|host| host.starts_with("*.")) {
                self.remark(
                    ingress,
                    "a wildcard stands for one label of a name in an Ingress, and for any number of them in a route",
                );
            }
            let rules = by_host.entry(host).or_default();
            for one in rule.http.iter().flat_map(|http| &http.paths) {
                let text = one.path.as_deref().unwrap_or("/");
                match (path::turn(text, &one.path_type, annotations), self.backend(ingress, &one.backend)) {
                    (Ok(turned), Some(backend)) => rules.push(turned.rule(annotations, &backend)),
                    (Err(why), _) => self.remark(ingress, &format!("not turned: path {text:?}: {why}")),
                    (_, None) => {}
                }
            }
        }
        if let Some(backend) = spec.default_backend.as_ref().and_then(|backend| self.backend(ingress, backend)) {
            by_host.entry(None).or_default();
            for rules in by_host.values_mut() {
                rules.push(path::Turned::all().rule(annotations, &backend));
            }
        }
        let own = key(&ingress.metadata);
        let several = by_host.len() > 1;
        let mut routes = Vec::new();
        for (number, (host, rules)) in by_host.into_iter().enumerate().filter(|(_, (_, rules))| !rules.is_empty()) {
            let name = if several { format!("{}-{}", own.name, number + 1) } else { own.name.clone() };
            let secret = secret(ingress, host.as_deref());
            let redirects = secret.is_some() && annotations.ssl_redirect.unwrap_or(true);
            if secret.is_none() && annotations.force_ssl_redirect {
                self.remark(ingress, "not turned: force-ssl-redirect of a host without TLS");
            }
            routes.push(Route { key: ObjectKey::new(&own.namespace, &name), host, rules, secret, redirects });
        }
        routes
    }

    fn backend(&mut self, ingress: &Ingress, backend: &IngressBackend) -> Option<Value> {
        let Some(service) = &backend.service else {
            self.remark(ingress, "not turned: a backend that is not a Service");
            return None;
        };
        let named = service.port.as_ref();
        let number = named.and_then(|port| port.number).or_else(|| {
            let namespace = ingress.metadata.namespace.as_deref().unwrap_or_default();
            (self.ports)(namespace, &service.name, named?.name.as_deref()?)
        });
        match number {
            Some(number) => Some(json!({ "name": service.name, "port": number })),
            None => {
                self.remark(
                    ingress,
                    &format!(
                        "not turned: the port of Service {:?} has a name, and the Service has none of it",
                        service.name
                    ),
                );
                None
            }
        }
    }
}

/// The Secret with the certificate of a host.
fn secret(ingress: &Ingress, host: Option<&str>) -> Option<String> {
    let all = ingress.spec.iter().flat_map(|spec| spec.tls.iter().flatten());
    let covers = |hosts: Option<&Vec<String>>| match hosts.filter(|hosts| !hosts.is_empty()) {
        None => true,
        Some(hosts) => {
            host.is_some_and(|host| hosts.iter().any(|named| named == host || covers_one_label(named, host)))
        }
    };
    all.filter(|tls| covers(tls.hosts.as_ref())).find_map(|tls| tls.secret_name.clone())
}

fn covers_one_label(wildcard: &str, host: &str) -> bool {
    let rest = host.split_once('.').map(|(_, rest)| rest);
    wildcard.strip_prefix("*.").is_some_and(|suffix| rest == Some(suffix))
}

/// The name of the listener for a host's certificate.
fn listener_name(route: &Route) -> String {
    match &route.host {
        None => "https".to_owned(),
        Some(host) => format!("https-{}", host.replace("*.", "any.").replace('.', "-")),
    }
}

fn objects(routes: &[Route], gateway: &ObjectKey) -> Vec<Value> {
    if routes.is_empty() {
        return Vec::new();
    }
    let api = format!("{GROUP}/v1");
    let namespaces: BTreeSet<&str> = routes.iter().map(|route| &*route.key.namespace).collect();
    let allowed = json!({ "namespaces": { "from": "Selector", "selector": { "matchExpressions": [
        { "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces },
    ] } } });
    let mut listeners = vec![json!({ "name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": allowed })];
    let (mut named, mut secrets) = (BTreeSet::new(), BTreeMap::<&str, BTreeSet<&str>>::new());
    for route in routes {
        let Some(secret) = &route.secret else { continue };
        let name = listener_name(route);
        if !named.insert(name.clone()) {
            continue;
        }
        let mut listener = json!({
            "name": name, "port": 443, "protocol": "HTTPS", "allowedRoutes": allowed,
            "tls": { "certificateRefs": [{ "name": secret, "namespace": route.key.namespace }] },
        });
        if let Some(host) = &route.host {
            listener["hostname"] = json!(host);
        }
        listeners.push(listener);
        if route.key.namespace != gateway.namespace {
            secrets.entry(&route.key.namespace).or_default().insert(secret);
        }
    }
    let mut objects: Vec<Value> = secrets
        .into_iter()
        .map(|(namespace, names)| {
            let to: Vec<Value> =
                names.into_iter().map(|name| json!({ "group": "", "kind": "Secret", "name": name })).collect();
            json!({
                "apiVersion": format!("{GROUP}/v1beta1"), "kind": "ReferenceGrant",
                "metadata": { "name": format!("{}-certificates", gateway.name), "namespace": namespace },
                "spec": { "from": [{ "group": GROUP, "kind": "Gateway", "namespace": gateway.namespace }], "to": to },
            })
        })
        .collect();
    objects.push(json!({
        "apiVersion": api, "kind": "Gateway",
        "metadata": { "name": gateway.name, "namespace": gateway.namespace },
        "spec": { "gatewayClassName": CLASS, "listeners": listeners },
    }));
    for route in routes {
        objects.extend(of_route(route, gateway, &api));
    }
    objects
}

/// The route, and beside it the one that sends plain requests to HTTPS.
fn of_route(route: &Route, gateway: &ObjectKey, api: &str) -> Vec<Value> {
    let make = |name: &str, sections: &[&str], rules: &Value| {
        let parents: Vec<Value> = sections
            .iter()
            .map(|section| json!({ "name": gateway.name, "namespace": gateway.namespace, "sectionName": section }))
            .collect();
        let mut object = json!({
            "apiVersion": api, "kind": "HTTPRoute",
            "metadata": { "name": name, "namespace": route.key.namespace },
            "spec": { "parentRefs": parents, "rules": rules },
        });
        if let Some(host) = &route.host {
            object["spec"]["hostnames"] = json!([host]);
        }
        object
    };
    let rules = Value::Array(route.rules.clone());
    let secure = listener_name(route);
    match (&route.secret, route.redirects) {
        (None, _) => vec![make(&route.key.name, &["http"], &rules)],
        (Some(_), false) => vec![make(&route.key.name, &["http", &secure], &rules)],
        (Some(_), true) => {
            let redirect = json!([{ "filters": [
                { "type": "RequestRedirect", "requestRedirect": { "scheme": "https", "statusCode": 308 } },
            ] }]);
            let name = format!("{}-to-https", route.key.name);
            vec![make(&route.key.name, &[&secure], &rules), make(&name, &["http"], &redirect)]
        }
    }
}

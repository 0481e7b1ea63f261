//! Services: defaults, rules, and the fields that follow from type and addresses. Handing out addresses and node ports is the
//! server's work; what it needs to know of a Service stands here.

use std::collections::{HashMap, HashSet};

use ferry_meta::{FieldErrors, object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub use super::service_families::default_families;
use super::service_rules;
use super::warnings::{address, balancer};
use crate::cells;
use crate::cursor::{Cursor, default_to, map_mut, maps_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common, label_name};

pub struct Service(pub Plain);

pub fn is_headless(service: &Cursor<'_>) -> bool {
    let spec = service.get("spec");
    spec.array("clusterIPs").first().and_then(Value::as_str) == Some("None")
}

pub fn needs_cluster_ip(service: &Cursor<'_>) -> bool {
    // A type that nobody knows is refused with what it has.
    service.get("spec").text("type") != "ExternalName"
}

pub fn needs_node_port(service: &Cursor<'_>) -> bool {
    let spec = service.get("spec");
    match spec.text("type") {
        "NodePort" => true,
        "LoadBalancer" => spec.flag("allocateLoadBalancerNodePorts") != Some(false),
        _ => false,
    }
}

/// Whether the type may have node ports. A load balancer that is to get none from now on keeps those that its writer leaves in.
fn may_have_node_ports(service: &Cursor<'_>) -> bool {
    ["NodePort", "LoadBalancer"].contains(&service.get("spec").text("type"))
}

pub fn needs_health_check_port(service: &Cursor<'_>) -> bool {
    let spec = service.get("spec");
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

/// Whether it is reached from outside the cluster.
pub fn is_external(spec: &Cursor<'_>) -> bool {
    ["NodePort", "LoadBalancer"].contains(&spec.text("type"))
        || (spec.text("type") == "ClusterIP" && !spec.array("externalIPs").is_empty())
}

/// `clusterIP` and the first of `clusterIPs` tell the same, where only one of them was given or changed.
pub fn normalize_cluster_ips(object: &mut Value, old: Option<&Value>) {
    let single = object::text(object, "/spec/clusterIP").to_owned();
    let list = object.pointer("/spec/clusterIPs").and_then(Value::as_array).cloned().unwrap_or_default();
    let set_list = |object: &mut Value, list: Value| {
        object_at(object, &["spec"]).insert("clusterIPs".into(), list);
    };
    let Some(old) = old else {
        if !single.is_empty() && list.is_empty() {
            set_list(object, json!([single]));
        }
        return;
    };
    let was = object::text(old, "/spec/clusterIP");
    let list_before = object::items(old, "/spec/clusterIPs");
    if single.is_empty() && !was.is_empty() {
        // Cleared alone: the list goes with it.
        if list == list_before {
            object_at(object, &["spec"]).remove("clusterIPs");
        }
    } else if single != was && list == list_before {
        set_list(object, json!([single]));
    }
}

/// An update that leaves out what was handed out keeps it.
pub fn keep_allocated(object: &mut Value, old: &Value) {
    let (new, was) = (Cursor::root(object), Cursor::root(old));
    let mut changes: Vec<(&str, Value)> = Vec::new();
    if needs_cluster_ip(&was) && needs_cluster_ip(&new) {
        let (spec, before) = (new.get("spec"), was.get("spec"));
        if spec.text("clusterIP").is_empty() {
            changes.push(("clusterIP", before.raw("clusterIP").clone()));
        }
        let same = spec.text("clusterIP").is_empty() || spec.text("clusterIP") == before.text("clusterIP");
        if spec.array("clusterIPs").is_empty() && same {
            changes.push(("clusterIPs", before.raw("clusterIPs").clone()));
        }
    }
    if needs_health_check_port(&was)
        && needs_health_check_port(&new)
        && new.get("spec").number("healthCheckNodePort") == 0
    {
        changes.push(("healthCheckNodePort", was.get("spec").raw("healthCheckNodePort").clone()));
    }
    let keep_ports = needs_node_port(&was) && needs_node_port(&new);
    // By name: the writer may have changed anything else of a port.
    let ports: HashMap<String, i64> = was
        .get("spec")
        .items("ports")
        .iter()
        .map(|port| (port.text("name").to_owned(), port.number("nodePort")))
        .collect();
    let spec = object_at(object, &["spec"]);
    for (key, value) in changes.into_iter().filter(|(_, value)| !value.is_null()) {
        spec.insert(key.into(), value);
    }
    if keep_ports {
        let taken: HashSet<i64> = maps_mut(spec, "ports")
            .filter_map(|p| p.get("nodePort").and_then(Value::as_i64))
            .filter(|n| *n != 0)
            .collect();
        for port in maps_mut(spec, "ports") {
            let name = port.get("name").and_then(Value::as_str).unwrap_or_default();
            let has_one = port.get("nodePort").and_then(Value::as_i64).unwrap_or_default() != 0;
            let before = ports.get(name).copied().unwrap_or_default();
            if !has_one && before != 0 && !taken.contains(&before) {
                port.insert("nodePort".into(), before.into());
            }
        }
    }
}

/// What a change of type leaves behind is dropped, unless the client wrote it anew.
fn drop_type_dependent(object: &mut Value, old: &Value) {
    let (new, was) = (Cursor::root(object), Cursor::root(old));
    let (spec, before) = (new.get("spec"), was.get("spec"));
    let same = |key: &str| spec.raw(key) == before.raw(key);
    let mut drop: Vec<&str> = Vec::new();
    if needs_cluster_ip(&was) && !needs_cluster_ip(&new) {
        if same("clusterIP") && same("clusterIPs") {
            drop.extend(["clusterIP", "clusterIPs"]);
        }
        drop.extend(["ipFamilies", "ipFamilyPolicy"].into_iter().filter(|key| same(key)));
    }
    let ports = |at: &Cursor<'_>| {
        let all = at.items("ports").into_iter().map(|port| port.number("nodePort")).filter(|port| *port != 0);
        all.collect::<std::collections::BTreeSet<_>>()
    };
    let drop_ports = may_have_node_ports(&was) && !may_have_node_ports(&new) && ports(&spec).is_subset(&ports(&before));
    if needs_health_check_port(&was) && !needs_health_check_port(&new) && same("healthCheckNodePort") {
        drop.push("healthCheckNodePort");
    }
    if before.text("type") == "LoadBalancer" && spec.text("type") != "LoadBalancer" {
        drop.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"].into_iter().filter(|key| same(key)));
    }
    if is_external(&before) && !is_external(&spec) && same("externalTrafficPolicy") {
        drop.push("externalTrafficPolicy");
    }
    let balanced = spec.text("type") == "LoadBalancer";
    let spec = object_at(object, &["spec"]);
    for key in drop {
        spec.remove(key);
    }
    if drop_ports {
        for port in maps_mut(spec, "ports") {
            port.remove("nodePort");
        }
    }
    if !balanced {
        object_at(object, &["status"]).insert("loadBalancer".into(), json!({}));
    }
}

/// A mere name has no traffic of its own to steer.
fn drop_internal_policy(object: &mut Value) {
    // What it says is judged all the same.
    let known = ["", "Cluster", "Local"].contains(&object::text(object, "/spec/internalTrafficPolicy"));
    if object::text(object, "/spec/type") == "ExternalName" && known {
        object_at(object, &["spec"]).remove("internalTrafficPolicy");
    }
}

impl Strategy for Service {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        default_to(spec, "sessionAffinity", "None");
        match spec.get("sessionAffinity").and_then(Value::as_str) {
            Some("None") => {
                spec.remove("sessionAffinityConfig");
            }
            Some("ClientIP")
                if spec.get("sessionAffinityConfig").is_none_or(|c| c["clientIP"]["timeoutSeconds"].is_null()) =>
            {
                spec.insert("sessionAffinityConfig".into(), json!({"clientIP": {"timeoutSeconds": 10800}}));
            }
            _ => {}
        }
        default_to(spec, "type", "ClusterIP");
        for port in maps_mut(spec, "ports") {
            default_to(port, "protocol", "TCP");
            let unset = port.get("targetPort").is_none_or(|p| p.is_null() || *p == json!(0) || *p == json!(""));
            if unset && let Some(number) = port.get("port").cloned() {
                port.insert("targetPort".into(), number);
            }
        }
        let at = Cursor::root(object);
        let (external, kind) = (is_external(&at.get("spec")), at.get("spec").text("type").to_owned());
        let spec = object_at(object, &["spec"]);
        if external {
            default_to(spec, "externalTrafficPolicy", "Cluster");
        }
        if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&kind.as_str())
            && spec.get("internalTrafficPolicy").is_none_or(Value::is_null)
        {
            spec.insert("internalTrafficPolicy".into(), "Cluster".into());
        }
        if kind == "LoadBalancer" {
            default_to(spec, "allocateLoadBalancerNodePorts", true);
            let status = object_at(object, &["status"]);
            for ingress in map_mut(status, "loadBalancer").into_iter().flat_map(|b| maps_mut(b, "ingress")) {
                if ingress.get("ip").and_then(Value::as_str).is_some_and(|ip| !ip.is_empty()) {
                    default_to(ingress, "ipMode", "VIP");
                }
            }
        }
    }

    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), json!({"loadBalancer": {}}));
        }
        normalize_cluster_ips(object, None);
        drop_internal_policy(object);
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        if context.subresource == "status" {
            return common::keep(object, old, "spec");
        }
        common::keep(object, old, "status");
        normalize_cluster_ips(object, Some(old));
        keep_allocated(object, old);
        drop_type_dependent(object, old);
        drop_internal_policy(object);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        service_rules::validate(&Cursor::root(object), None)
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if context.subresource == "status" {
            return service_rules::status(&new, &old);
        }
        let mut errors = service_rules::changes(&new, &old);
        errors.extend(service_rules::validate(&new, Some(&old)));
        errors
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, _old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return balancer(&Cursor::root(object));
        }
        warnings(&Cursor::root(object))
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        label_name(name, prefix)
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec!["spec.clusterIP", "spec.type"]
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let service = Cursor::root(object);
        let spec = service.get("spec");
        let internal = spec.texts("clusterIPs").next().unwrap_or("<none>");
        let ports = spec.items("ports").iter().map(port_text).collect::<Vec<_>>().join(",");
        vec![
            object::name(object).into(),
            spec.text("type").into(),
            internal.into(),
            external_address(&service).into(),
            (if ports.is_empty() { "<none>".to_owned() } else { ports }).into(),
            cells::age(object, now).into(),
            cells::labels(Some(spec.map("selector"))).into(),
        ]
    }
}

fn port_text(port: &Cursor<'_>) -> String {
    let (number, node, protocol) = (port.number("port"), port.number("nodePort"), port.text("protocol"));
    if node > 0 { format!("{number}:{node}/{protocol}") } else { format!("{number}/{protocol}") }
}

fn external_address(service: &Cursor<'_>) -> String {
    let spec = service.get("spec");
    let external: Vec<&str> = spec.texts("externalIPs").collect();
    match spec.text("type") {
        "ClusterIP" | "NodePort" => cells::joined(external.into_iter()),
        "LoadBalancer" => {
            let mut all = load_balancer(&service.get("status").get("loadBalancer"));
            all.extend(external.iter().map(|ip| (*ip).to_owned()));
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => spec.text("externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses or names of a load balancer, sorted.
pub fn load_balancer(status: &Cursor<'_>) -> Vec<String> {
    let mut all: Vec<String> = status
        .items("ingress")
        .iter()
        .map(|i| if i.text("ip").is_empty() { i.text("hostname") } else { i.text("ip") }.to_owned())
        .filter(|text| !text.is_empty())
        .collect();
    all.sort();
    all.dedup();
    all
}

fn warnings(service: &Cursor<'_>) -> Vec<String> {
    let spec = service.get("spec");
    let mut found = Vec::new();
    if service.get("metadata").map("annotations").contains_key("service.kubernetes.io/topology-aware-hints") {
        found.push("annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead".to_owned());
    }
    let headless = is_headless(service) && spec.text("type") == "ClusterIP";
    if !headless {
        found.extend(spec.items("clusterIPs").iter().filter_map(|ip| address(&ip.path, ip.as_text())));
    } else {
        let mut ignored = |field: &str| found.push(format!("spec.{field} is ignored for headless services"));
        if !spec.text("loadBalancerIP").is_empty() {
            ignored("loadBalancerIP");
        }
        if !spec.array("externalIPs").is_empty() {
            ignored("externalIPs");
        }
        if spec.text("sessionAffinity") != "None" {
            ignored("SessionAffinity");
        }
    }
    found.extend(spec.items("externalIPs").iter().filter_map(|ip| address(&ip.path, ip.as_text())));
    let named = spec.text("type") == "ExternalName";
    let has_external = !spec.array("externalIPs").is_empty();
    if has_external && !headless && !named {
        found.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    found.extend(address(&spec.at("loadBalancerIP"), spec.text("loadBalancerIP")));
    if named && has_external {
        found.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !named && !spec.text("externalName").is_empty() {
        found.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.text("trafficDistribution") == "PreferClose" {
        found.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node ports of an update that was prepared, in the order of its ports.
    fn node_ports(before: Value, after: Value) -> Vec<i64> {
        let whole = |spec: Value| json!({ "metadata": { "name": "s" }, "spec": spec });
        let (old, mut new) = (whole(before), whole(after));
        keep_allocated(&mut new, &old);
        drop_type_dependent(&mut new, &old);
        let number = |port: &Value| port.get("nodePort").and_then(Value::as_i64).unwrap_or_default();
        object::items(&new, "/spec/ports").iter().map(number).collect()
    }

    #[test]
    fn node_ports_stay_with_their_names_and_go_with_the_type() {
        let two =
            json!([{ "name": "a", "port": 80, "nodePort": 30001 }, { "name": "b", "port": 81, "nodePort": 30002 }]);
        let turned = json!([{ "name": "b", "port": 80 }, { "name": "a", "port": 81 }]);
        let given = json!([{ "name": "b", "port": 80, "nodePort": 30001 }, { "name": "a", "port": 81 }]);
        let other =
            json!([{ "name": "a", "port": 80, "nodePort": 30009 }, { "name": "b", "port": 81, "nodePort": 30002 }]);
        for (kind, allocate, ports, wanted) in [
            ("NodePort", None, &turned, [30002, 30001]),
            ("LoadBalancer", None, &turned, [30002, 30001]),
            ("LoadBalancer", Some(false), &turned, [0, 0]),
            // What its writer leaves in stays, whatever is to be given from now on.
            ("LoadBalancer", Some(false), &two, [30001, 30002]),
            ("NodePort", None, &given, [30001, 0]),
            ("ClusterIP", None, &two, [0, 0]),
            ("ClusterIP", None, &other, [30009, 30002]),
        ] {
            let before = json!({ "type": "NodePort", "ports": two });
            let after = json!({ "type": kind, "ports": ports, "allocateLoadBalancerNodePorts": allocate });
            assert_eq!(node_ports(before, after), wanted, "{kind} {allocate:?} {ports}");
        }
    }
}

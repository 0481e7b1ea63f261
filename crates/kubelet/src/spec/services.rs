//! The environment variables that tell a container of the Services there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

/// `kubernetes` of the default namespace always; those of the pod's own namespace when it wants links.
pub(crate) fn variables(services: &[Arc<Service>], namespace: &str, links: bool) -> BTreeMap<String, String> {
    let mut chosen: BTreeMap<&str, &Service> = BTreeMap::new();
    for service in services {
        let (Some(name), Some(own)) = (service.metadata.name.as_deref(), service.metadata.namespace.as_deref()) else {
            continue;
        };
        if own == "default" && name == "kubernetes" {
            chosen.entry(name).or_insert(service);
        } else if own == namespace && links {
            chosen.insert(name, service);
        }
    }
    let mut variables = BTreeMap::new();
    for (name, service) in chosen {
        of_service(name, service, &mut variables);
    }
    variables
}

fn of_service(name: &str, service: &Service, variables: &mut BTreeMap<String, String>) {
    let Some(spec) = &service.spec else { return };
    let Some(address) = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None") else { return };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let Some(first) = ports.first() else { return };
    let prefix = variable_name(name);
    variables.insert(format!("{prefix}_SERVICE_HOST"), address.to_owned());
    variables.insert(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    for (index, port) in ports.iter().enumerate() {
        if let Some(name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            variables.insert(format!("{prefix}_SERVICE_PORT_{}", variable_name(name)), port.port.to_string());
        }
        let protocol = port.protocol.as_deref().filter(|p| !p.is_empty()).unwrap_or("TCP").to_uppercase();
        let lower = protocol.to_lowercase();
        let url = format!("{lower}://{host}:{}", port.port);
        if index == 0 {
            variables.insert(format!("{prefix}_PORT"), url.clone());
        }
        let of_port = format!("{prefix}_PORT_{}_{protocol}", port.port);
        variables.insert(format!("{of_port}_PROTO"), lower);
        variables.insert(format!("{of_port}_PORT"), port.port.to_string());
        variables.insert(format!("{of_port}_ADDR"), address.to_owned());
        variables.insert(of_port, url);
    }
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_appear_as_variables() {
        let service = |namespace: &str, name: &str, ip: &str| {
            Arc::new(
                serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace},
                    "spec": {"clusterIP": ip, "ports": [{"name": "http", "port": 80}]}}))
                .expect("a service"),
            )
        };
        let services = [
            service("default", "kubernetes", "10.96.0.1"),
            service("web", "my-app", "10.96.0.7"),
            service("web", "headless", "None"),
            service("other", "x", "10.96.0.9"),
        ];
        let all = variables(&services, "web", true);
        assert_eq!(all["KUBERNETES_SERVICE_HOST"], "10.96.0.1");
        assert_eq!(all["MY_APP_SERVICE_PORT_HTTP"], "80");
        assert_eq!(all["MY_APP_PORT_80_TCP"], "tcp://10.96.0.7:80");
        assert_eq!(all["MY_APP_PORT"], "tcp://10.96.0.7:80");
        assert!(!all.keys().any(|k| k.starts_with("HEADLESS") || k.starts_with("X_")));
        let few = variables(&services, "web", false);
        assert!(few.contains_key("KUBERNETES_SERVICE_HOST") && !few.contains_key("MY_APP_SERVICE_HOST"));
    }
}

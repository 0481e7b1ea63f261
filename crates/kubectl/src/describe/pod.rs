//! Pods, and templates of them.

use serde_json::Value;

use super::containers::containers;
use super::parts::{annotations, controller, date, head, list, marks, pairs, text, tolerations};
use super::volumes::volumes;

pub fn pod(object: &Value) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut out = head(object, true);
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            out.push_str(&format!("{name}:\t{value}\n"));
        }
    };
    field("Priority", &spec["priority"].as_i64().map(|p| p.to_string()).unwrap_or_default());
    field("Priority Class Name", text(spec, "priorityClassName"));
    field("Runtime Class Name", text(spec, "runtimeClassName"));
    field("Service Account", text(spec, "serviceAccountName"));
    let node = text(spec, "nodeName");
    field("Node", &if node.is_empty() { "<none>".to_owned() } else { format!("{node}/{}", text(status, "hostIP")) });
    if let Some(start) = status["startTime"].as_str() {
        field("Start Time", &date(start));
    }
    out.push_str(&marks(object));
    let phase = text(status, "phase");
    match object["metadata"]["deletionTimestamp"].as_str() {
        Some(stamp) if !matches!(phase, "Failed" | "Succeeded") => out.push_str(&format!(
            "Status:\tTerminating (lasts {})\nTermination Grace Period:\t{}s\n",
            crate::text::age(stamp),
            object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0)
        )),
        _ => out.push_str(&format!("Status:\t{phase}\n")),
    }
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            out.push_str(&format!("{name}:\t{value}\n"));
        }
    };
    field("Reason", text(status, "reason"));
    field("Message", text(status, "message"));
    field("SeccompProfile", text(&spec["securityContext"]["seccompProfile"], "type"));
    field("LocalhostProfile", text(&spec["securityContext"]["seccompProfile"], "localhostProfile"));
    out.push_str(&format!("IP:\t{}\n", text(status, "podIP")));
    match list(&status["podIPs"]) {
        [] => out.push_str("IPs:\t<none>\n"),
        all => {
            out.push_str("IPs:\n");
            all.iter().for_each(|ip| out.push_str(&format!("  IP:\t{}\n", text(ip, "ip"))));
        }
    }
    if let Some(owner) = controller(object) {
        out.push_str(&format!("Controlled By:\t{owner}\n"));
    }
    let nominated = text(status, "nominatedNodeName");
    if !nominated.is_empty() {
        out.push_str(&format!("NominatedNodeName:\t{nominated}\n"));
    }
    if spec["resources"].is_object() {
        out.push_str("Resources:\n");
        super::containers::resources(&mut out, &spec["resources"], "  ");
    }
    if !list(&spec["initContainers"]).is_empty() {
        out.push_str(&containers(
            "Init Containers",
            &spec["initContainers"],
            Some(&status["initContainerStatuses"]),
            Some(object),
            "",
        ));
    }
    out.push_str(&containers("Containers", &spec["containers"], Some(&status["containerStatuses"]), Some(object), ""));
    if !list(&spec["ephemeralContainers"]).is_empty() {
        let statuses = Some(&status["ephemeralContainerStatuses"]);
        out.push_str(&containers("Ephemeral Containers", &spec["ephemeralContainers"], statuses, Some(object), ""));
    }
    if !list(&spec["readinessGates"]).is_empty() {
        out.push_str("Readiness Gates:\n  Type\tStatus\n");
        for gate in list(&spec["readinessGates"]) {
            let found = list(&status["conditions"]).iter().find(|c| c["type"] == gate["conditionType"]);
            let shown = found.map_or("<none>", |c| text(c, "status"));
            out.push_str(&format!("  {} \t{shown} \n", text(gate, "conditionType")));
        }
    }
    if !list(&status["conditions"]).is_empty() {
        out.push_str("Conditions:\n  Type\tStatus\n");
        for condition in list(&status["conditions"]) {
            out.push_str(&format!("  {} \t{} \n", text(condition, "type"), text(condition, "status")));
        }
    }
    out.push_str(&volumes(&spec["volumes"], ""));
    out.push_str(&format!("QoS Class:\t{}\n", text(status, "qosClass")));
    out.push_str(&pairs("Node-Selectors", &spec["nodeSelector"]));
    out.push_str(&tolerations("Tolerations", &spec["tolerations"]));
    spread(&mut out, spec, "");
    out
}

fn spread(out: &mut String, spec: &Value, space: &str) {
    let all = list(&spec["topologySpreadConstraints"]);
    if all.is_empty() {
        return;
    }
    out.push_str(&format!("{space}Topology Spread Constraints:\t"));
    for (index, constraint) in all.iter().enumerate() {
        if index > 0 {
            out.push_str(&format!("{space}\t"));
        }
        out.push_str(&format!(
            "{}:{} when max skew {} is exceeded for selector {}\n",
            text(constraint, "topologyKey"),
            text(constraint, "whenUnsatisfiable"),
            constraint["maxSkew"].as_i64().unwrap_or(0),
            super::parts::selector(&constraint["labelSelector"])
        ));
    }
}

pub fn template(template: &Value) -> String {
    let spec = &template["spec"];
    let mut out = "Pod Template:\n".to_owned();
    out.push_str(&pairs("  Labels", &template["metadata"]["labels"]));
    if template["metadata"]["annotations"].as_object().is_some_and(|map| !map.is_empty()) {
        out.push_str(&annotations("  Annotations", &template["metadata"]["annotations"]));
    }
    if !text(spec, "serviceAccountName").is_empty() {
        out.push_str(&format!("  Service Account:\t{}\n", text(spec, "serviceAccountName")));
    }
    if !list(&spec["initContainers"]).is_empty() {
        out.push_str(&containers("Init Containers", &spec["initContainers"], None, None, "  "));
    }
    out.push_str(&containers("Containers", &spec["containers"], None, None, "  "));
    out.push_str(&volumes(&spec["volumes"], "  "));
    spread(&mut out, spec, "  ");
    if !text(spec, "priorityClassName").is_empty() {
        out.push_str(&format!("  Priority Class Name:\t{}\n", text(spec, "priorityClassName")));
    }
    out.push_str(&pairs("  Node-Selectors", &spec["nodeSelector"]));
    out.push_str(&tolerations("  Tolerations", &spec["tolerations"]));
    out
}

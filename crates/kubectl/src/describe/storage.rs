//! Volumes of the cluster, the drivers of its nodes, and classes of attributes.

use serde_json::Value;

use super::parts::{date, head, list, marks, text};
use super::policy::access_modes;
use super::volumes;
use crate::print::go_value::show;
use crate::print::table::show_labels;

pub fn volume(object: &Value) -> String {
    let (spec, metadata, status) = (&object["spec"], &object["metadata"], &object["status"]);
    let class = metadata["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    let finalizers: Vec<&str> = list(&metadata["finalizers"]).iter().filter_map(Value::as_str).collect();
    let mut out = head(object, false) + &marks(object);
    out.push_str(&format!("Finalizers:\t[{}]\n", finalizers.join(" ")));
    out.push_str(&format!("StorageClass:\t{}\n", class.unwrap_or(text(spec, "storageClassName"))));
    match metadata["deletionTimestamp"].as_str() {
        Some(since) => out.push_str(&format!("Status:\tTerminating (lasts {})\n", crate::text::age(since))),
        None => out.push_str(&format!("Status:\t{}\n", text(status, "phase"))),
    }
    let claim = &spec["claimRef"];
    let claim = match claim.is_object() {
        true => format!("{}/{}", text(claim, "namespace"), text(claim, "name")),
        false => String::new(),
    };
    out.push_str(&format!("Claim:\t{claim}\nReclaim Policy:\t{}\n", text(spec, "persistentVolumeReclaimPolicy")));
    out.push_str(&format!("Access Modes:\t{}\n", access_modes(&spec["accessModes"])));
    if let Some(mode) = spec["volumeMode"].as_str() {
        out.push_str(&format!("VolumeMode:\t{mode}\n"));
    }
    let capacity = spec["capacity"]["storage"].as_str().unwrap_or("0");
    out.push_str(&format!("Capacity:\t{capacity}\n"));
    out.push_str(&node_affinity(&spec["nodeAffinity"]["required"]));
    out.push_str(&format!("Message:\t{}\nSource:\n", text(status, "message")));
    match volumes::source(spec) {
        Some(lines) => out + &lines,
        None => out + "  <unknown>\n",
    }
}

fn node_affinity(required: &Value) -> String {
    if required.is_null() {
        return "Node Affinity:\t<none>\n".into();
    }
    let terms = list(&required["nodeSelectorTerms"]);
    if terms.is_empty() {
        return "Node Affinity:\t\n  Required Terms:\t<none>\n".into();
    }
    let mut out = "Node Affinity:\t\n  Required Terms:\t\n".to_owned();
    for (at, term) in terms.iter().enumerate() {
        out.push_str(&format!("    Term {at}:\t"));
        let expressions = list(&term["matchExpressions"]);
        if expressions.is_empty() {
            out.push_str("<none>\n");
        }
        for (at, expression) in expressions.iter().enumerate() {
            let values: Vec<&str> = list(&expression["values"]).iter().filter_map(Value::as_str).collect();
            let operator = text(expression, "operator").to_lowercase();
            out.push_str(if at > 0 { "    \t" } else { "" });
            out.push_str(&format!("{} {operator}", text(expression, "key")));
            if !values.is_empty() {
                out.push_str(&format!(" [{}]", values.join(", ")));
            }
            out.push('\n');
        }
    }
    out
}

pub fn csi_node(object: &Value) -> String {
    let mut out = head(object, false) + &marks(object);
    out.push_str(&format!("CreationTimestamp:\t{}\n", date(text(&object["metadata"], "creationTimestamp"))));
    out.push_str("Spec:\n");
    if object["spec"]["drivers"].is_array() {
        out.push_str("  Drivers:\n");
    }
    for driver in list(&object["spec"]["drivers"]) {
        out.push_str(&format!("    {}:\n      Node ID:\t{}\n", text(driver, "name"), text(driver, "nodeID")));
        if let Some(count) = driver["allocatable"]["count"].as_i64() {
            out.push_str(&format!("      Allocatables:\n        Count:\t{count}\n"));
        }
        if driver["topologyKeys"].is_array() {
            out.push_str(&format!("      Topology Keys:\t{}\n", show(&driver["topologyKeys"])));
        }
    }
    out
}

pub fn attributes_class(object: &Value) -> String {
    format!(
        "{}Annotations:\t{}\nDriverName:\t{}\nParameters:\t{}\n",
        head(object, false),
        show_labels(&object["metadata"]["annotations"]),
        text(object, "driverName"),
        show_labels(&object["parameters"])
    )
}

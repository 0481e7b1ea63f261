//! Volumes of a pod or of its template.

use serde_json::Value;

use super::parts::{list, text};
use crate::print::go_value::show;

pub fn volumes(all: &Value, space: &str) -> String {
    let all = list(all);
    if all.is_empty() {
        return format!("{space}Volumes:\t<none>\n");
    }
    let indent = if space.is_empty() { "" } else { " " };
    let mut out = format!("{space}Volumes:\n");
    for volume in all {
        out.push_str(&format!("  {indent}{}:\n", text(volume, "name")));
        for (name, value) in lines(volume) {
            out.push_str(&format!("    {name}:\t{value}\n"));
        }
    }
    out
}

fn lines(volume: &Value) -> Vec<(&'static str, String)> {
    let of = |source: &Value, field: &str| text(source, field).to_owned();
    let flag = |source: &Value, field: &str| (source[field] == true).to_string();
    if let source @ Value::Object(_) = &volume["hostPath"] {
        let kind = source["type"].as_str().map_or("<none>".to_owned(), str::to_owned);
        return vec![
            ("Type", "HostPath (bare host directory volume)".into()),
            ("Path", of(source, "path")),
            ("HostPathType", kind),
        ];
    }
    if let source @ Value::Object(_) = &volume["emptyDir"] {
        let limit = if source["sizeLimit"].is_null() { "<unset>".to_owned() } else { show(&source["sizeLimit"]) };
        return vec![
            ("Type", "EmptyDir (a temporary directory that shares a pod's lifetime)".into()),
            ("Medium", of(source, "medium")),
            ("SizeLimit", limit),
        ];
    }
    if let source @ Value::Object(_) = &volume["secret"] {
        return vec![
            ("Type", "Secret (a volume populated by a Secret)".into()),
            ("SecretName", of(source, "secretName")),
            ("Optional", flag(source, "optional")),
        ];
    }
    if let source @ Value::Object(_) = &volume["configMap"] {
        return vec![
            ("Type", "ConfigMap (a volume populated by a ConfigMap)".into()),
            ("Name", of(source, "name")),
            ("Optional", flag(source, "optional")),
        ];
    }
    if let source @ Value::Object(_) = &volume["persistentVolumeClaim"] {
        return vec![
            ("Type", "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)".into()),
            ("ClaimName", of(source, "claimName")),
            ("ReadOnly", flag(source, "readOnly")),
        ];
    }
    if let source @ Value::Object(_) = &volume["nfs"] {
        return vec![
            ("Type", "NFS (an NFS mount that lasts the lifetime of a pod)".into()),
            ("Server", of(source, "server")),
            ("Path", of(source, "path")),
            ("ReadOnly", flag(source, "readOnly")),
        ];
    }
    if volume["projected"].is_object() {
        let mut lines =
            vec![("Type", "Projected (a volume that contains injected data from multiple sources)".to_owned())];
        for source in list(&volume["projected"]["sources"]) {
            if let secret @ Value::Object(_) = &source["secret"] {
                lines.push(("SecretName", of(secret, "name")));
                lines.push(("Optional", flag(secret, "optional")));
            } else if source["downwardAPI"].is_object() {
                lines.push(("DownwardAPI", "true".into()));
            } else if let map @ Value::Object(_) = &source["configMap"] {
                lines.push(("ConfigMapName", of(map, "name")));
                lines.push(("Optional", flag(map, "optional")));
            } else if let token @ Value::Object(_) = &source["serviceAccountToken"] {
                lines.push(("TokenExpirationSeconds", show(&token["expirationSeconds"])));
            }
        }
        return lines;
    }
    vec![("Type", "<unknown>".to_owned())]
}

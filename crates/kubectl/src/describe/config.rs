//! ConfigMaps, Secrets and Namespaces.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::parts::{date, head, list as items, marks, text};
use crate::error::Result;
use crate::resource::{Selection, list};
use crate::session::Context;

pub fn config_map(object: &Value) -> String {
    let mut out = head(object, true) + &marks(object) + "\nData\n====\n";
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        out.push_str(&format!("{key}:\n----\n{}\n\n", value.as_str().unwrap_or_default()));
    }
    out.push_str("\nBinaryData\n====\n");
    for (key, value) in object["binaryData"].as_object().into_iter().flatten() {
        out.push_str(&format!("{key}: {} bytes\n", decoded(value).len()));
    }
    out.push('\n');
    out
}

fn decoded(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default()
}

pub fn secret(object: &Value) -> String {
    let mut out = head(object, true) + &marks(object);
    out.push_str(&format!("\nType:\t{}\n\nData\n====\n", text(object, "type")));
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        let value = decoded(value);
        if key == "token" && object["type"] == "kubernetes.io/service-account-token" {
            out.push_str(&format!("{key}:\t{}\n", String::from_utf8_lossy(&value)));
        } else {
            out.push_str(&format!("{key}:\t{} bytes\n", value.len()));
        }
    }
    out
}

pub async fn namespace(context: &Context, object: &Value) -> Result<String> {
    let mut out = head(object, false) + &marks(object);
    out.push_str(&format!("Status:\t{}\n", text(&object["status"], "phase")));
    if !items(&object["status"]["conditions"]).is_empty() {
        out.push_str("Conditions:\n  Type\tStatus\tLastTransitionTime\tReason\tMessage\n  ----\t------\t------------------\t------\t-------\n");
        for c in items(&object["status"]["conditions"]) {
            out.push_str(&format!(
                "  {}\t{}\t{}\t{}\t{}\n",
                text(c, "type"),
                text(c, "status"),
                date(text(c, "lastTransitionTime")),
                text(c, "reason"),
                text(c, "message")
            ));
        }
    }
    let name = text(&object["metadata"], "name");
    let of = |kind: &'static str| async move {
        let resource = context.kind("v1", kind).await?;
        let selection =
            Selection { resource, namespace: Some(name.to_owned()), labels: String::new(), fields: String::new() };
        list(context, &selection, 500).await
    };
    let (quotas, limits) = (of("ResourceQuota").await?, of("LimitRange").await?);
    match quotas.is_empty() {
        true => out.push_str("\nNo resource quota.\n"),
        false => {
            out.push_str("\nResource Quotas\n");
            for quota in quotas {
                out.push_str(&format!(
                    "  Name:\t{}\n  Resource\tUsed\tHard\n  --------\t---\t---\n",
                    text(&quota["metadata"], "name")
                ));
                for (resource, hard) in quota["status"]["hard"].as_object().into_iter().flatten() {
                    let used = text(&quota["status"]["used"], resource);
                    out.push_str(&format!("  {resource}\t{used}\t{}\n", hard.as_str().unwrap_or_default()));
                }
            }
        }
    }
    match limits.is_empty() {
        true => out.push_str("\nNo LimitRange resource.\n"),
        false => {
            out.push_str("\nResource Limits\n Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n ----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n");
            for range in limits {
                for limit in items(&range["spec"]["limits"]) {
                    out.push_str(&limit_lines(limit));
                }
            }
        }
    }
    Ok(out)
}

fn limit_lines(limit: &Value) -> String {
    let mut names: Vec<&String> = Vec::new();
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        for name in limit[field].as_object().into_iter().flatten().map(|(name, _)| name) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.sort();
    let of =
        |field: &str, name: &str| Some(text(&limit[field], name)).filter(|t| !t.is_empty()).unwrap_or("-").to_owned();
    let line = |name: &&String| {
        format!(
            " {}\t{name}\t{}\t{}\t{}\t{}\t{}\n",
            text(limit, "type"),
            of("min", name),
            of("max", name),
            of("defaultRequest", name),
            of("default", name),
            of("maxLimitRequestRatio", name)
        )
    };
    names.iter().map(line).collect()
}

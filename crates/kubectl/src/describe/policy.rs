//! Service accounts, quotas, limits, budgets, classes, claims and autoscalers: pages of a few lines.

use serde_json::Value;

use super::parts::{date, head, list, marks, selector, text};
use crate::error::Result;
use crate::print::go_value::show;
use crate::print::table::show_labels;
use crate::session::Context;

/// True, False, or that nobody said.
pub fn truth(value: &Value) -> &'static str {
    match value.as_bool() {
        None => "<unset>",
        Some(true) => "True",
        Some(false) => "False",
    }
}

fn number(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or(0)
}

pub fn service_account(object: &Value) -> String {
    let mut out = head(object, true) + &marks(object);
    let mut title = "Image pull secrets:";
    for secret in list(&object["imagePullSecrets"]) {
        out.push_str(&format!("{title}\t{}\n", text(secret, "name")));
        title = "                   ";
    }
    if list(&object["imagePullSecrets"]).is_empty() {
        out.push_str(&format!("{title}\t<none>\n"));
    }
    out
}

pub fn priority_class(object: &Value) -> String {
    format!(
        "Name:\t{}\nValue:\t{}\nGlobalDefault:\t{}\nPreemptionPolicy:\t{}\nDescription:\t{}\nAnnotations:\t{}\n",
        text(&object["metadata"], "name"),
        number(object, "value"),
        object["globalDefault"].as_bool().unwrap_or(false),
        text(object, "preemptionPolicy"),
        text(object, "description"),
        show_labels(&object["metadata"]["annotations"])
    )
}

pub fn storage_class(object: &Value) -> String {
    let annotations = &object["metadata"]["annotations"];
    let is_default = annotations["storageclass.kubernetes.io/is-default-class"] == "true"
        || annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true";
    let mut out = format!(
        "Name:\t{}\nIsDefaultClass:\t{}\nAnnotations:\t{}\nProvisioner:\t{}\nParameters:\t{}\nAllowVolumeExpansion:\t{}\n",
        text(&object["metadata"], "name"),
        if is_default { "Yes" } else { "No" },
        show_labels(annotations),
        text(object, "provisioner"),
        show_labels(&object["parameters"]),
        truth(&object["allowVolumeExpansion"])
    );
    match list(&object["mountOptions"]) {
        [] => out.push_str("MountOptions:\t<none>\n"),
        options => {
            out.push_str("MountOptions:\n");
            options.iter().for_each(|option| out.push_str(&format!("  {}\n", option.as_str().unwrap_or_default())));
        }
    }
    for (title, field) in [("ReclaimPolicy", "reclaimPolicy"), ("VolumeBindingMode", "volumeBindingMode")] {
        if !text(object, field).is_empty() {
            out.push_str(&format!("{title}:\t{}\n", text(object, field)));
        }
    }
    if object["allowedTopologies"].is_array() {
        out.push_str(&topologies(list(&object["allowedTopologies"])));
    }
    out
}

fn topologies(terms: &[Value]) -> String {
    if terms.is_empty() {
        return "AllowedTopologies:\t<none>\n".into();
    }
    let mut out = "AllowedTopologies:\t\n".to_owned();
    for (number, term) in terms.iter().enumerate() {
        out.push_str(&format!("  Term {number}:\t"));
        let wanted = list(&term["matchLabelExpressions"]);
        if wanted.is_empty() {
            out.push_str("<none>\n");
        }
        for (at, label) in wanted.iter().enumerate() {
            let values: Vec<&str> = list(&label["values"]).iter().filter_map(Value::as_str).collect();
            let ahead = if at > 0 { "  \t" } else { "" };
            let shown = if values.is_empty() { String::new() } else { format!(" [{}]", values.join(", ")) };
            out.push_str(&format!("{ahead}{} in{shown}\n", text(label, "key")));
        }
    }
    out
}

pub fn quota(object: &Value) -> String {
    let mut out = head(object, true);
    let mut scopes: Vec<&str> = list(&object["spec"]["scopes"]).iter().filter_map(Value::as_str).collect();
    scopes.sort_unstable();
    if !scopes.is_empty() {
        out.push_str(&format!("Scopes:\t{}\n", scopes.join(", ")));
        for scope in scopes {
            let means = match scope {
                "Terminating" => {
                    "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before being actively terminated by the system."
                }
                "NotTerminating" => {
                    "Matches all pods that do not have an active deadline. These pods usually include long running pods whose container command is not expected to terminate."
                }
                "BestEffort" => {
                    "Matches all pods that do not have resource requirements set. These pods have a best effort quality of service."
                }
                "NotBestEffort" => {
                    "Matches all pods that have at least one resource requirement set. These pods have a burstable or guaranteed quality of service."
                }
                _ => continue,
            };
            out.push_str(&format!(" * {means}\n"));
        }
    }
    out.push_str("Resource\tUsed\tHard\n--------\t----\t----\n");
    for (resource, hard) in object["status"]["hard"].as_object().into_iter().flatten() {
        let used = object["status"]["used"][resource].as_str().unwrap_or("0");
        out.push_str(&format!("{resource}\t{used}\t{}\n", hard.as_str().unwrap_or_default()));
    }
    out
}

pub fn limit_range(object: &Value) -> String {
    let mut out = head(object, true);
    out.push_str("Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n");
    out.push_str("----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n");
    for limit in list(&object["spec"]["limits"]) {
        let fields = ["min", "max", "defaultRequest", "default", "maxLimitRequestRatio"];
        let names: std::collections::BTreeSet<&String> =
            fields.iter().flat_map(|field| limit[*field].as_object().into_iter().flat_map(|map| map.keys())).collect();
        for name in names {
            let cells: Vec<&str> = fields.iter().map(|field| limit[*field][name].as_str().unwrap_or("-")).collect();
            out.push_str(&format!("{}\t{name}\t{}\n", text(limit, "type"), cells.join("\t")));
        }
    }
    out
}

pub fn disruption_budget(object: &Value) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut out = head(object, true);
    if !spec["minAvailable"].is_null() {
        out.push_str(&format!("Min available:\t{}\n", show(&spec["minAvailable"])));
    } else if !spec["maxUnavailable"].is_null() {
        out.push_str(&format!("Max unavailable:\t{}\n", show(&spec["maxUnavailable"])));
    }
    let of = if spec["selector"].is_null() { "<unset>".to_owned() } else { selector(&spec["selector"]) };
    out.push_str(&format!("Selector:\t{of}\nStatus:\n"));
    for (title, field) in [
        ("Allowed disruptions", "disruptionsAllowed"),
        ("Current", "currentHealthy"),
        ("Desired", "desiredHealthy"),
        ("Total", "expectedPods"),
    ] {
        out.push_str(&format!("    {title}:\t{}\n", number(status, field)));
    }
    out
}

pub fn access_modes(modes: &Value) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    list(modes).iter().map(short).filter(|mode| !mode.is_empty()).collect::<Vec<_>>().join(",")
}

/// A claim, or the template of one, which has no name and no status.
pub fn claim_lines(object: &Value, whole: bool) -> String {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let mut out = if whole { head(object, true) } else { String::new() };
    let former = metadata["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    out.push_str(&format!("StorageClass:\t{}\n", former.unwrap_or(text(spec, "storageClassName"))));
    if whole {
        let phase = match metadata["deletionTimestamp"].as_str() {
            Some(stamp) => format!("Terminating (lasts {})", crate::text::age(stamp)),
            None => text(status, "phase").to_owned(),
        };
        out.push_str(&format!("Status:\t{phase}\n"));
    }
    out.push_str(&format!("Volume:\t{}\n", text(spec, "volumeName")));
    out.push_str(&marks(object));
    if whole {
        let finalizers: Vec<&str> = list(&metadata["finalizers"]).iter().filter_map(Value::as_str).collect();
        out.push_str(&format!("Finalizers:\t[{}]\n", finalizers.join(" ")));
    }
    let (capacity, modes) = match text(spec, "volumeName") {
        "" => ("", String::new()),
        _ => (text(&status["capacity"], "storage"), access_modes(&status["accessModes"])),
    };
    out.push_str(&format!("Capacity:\t{capacity}\nAccess Modes:\t{modes}\n"));
    if !text(spec, "volumeMode").is_empty() {
        out.push_str(&format!("VolumeMode:\t{}\n", text(spec, "volumeMode")));
    }
    let source = &spec["dataSource"];
    if source.is_object() {
        out.push_str("DataSource:\n");
        for (title, field) in [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")] {
            if !text(source, field).is_empty() {
                out.push_str(&format!("  {title}:\t{}\n", text(source, field)));
            }
        }
    }
    out
}

pub async fn volume_claim(context: &Context, object: &Value) -> Result<String> {
    let metadata = &object["metadata"];
    let mut out = claim_lines(object, true);
    let namespace = metadata["namespace"].as_str().map(str::to_owned);
    let pods = crate::commands::list_pods(context, namespace, "", "").await?;
    let name = text(metadata, "name");
    let uses = |pod: &&Value| {
        list(&pod["spec"]["volumes"]).iter().any(|volume| volume["persistentVolumeClaim"]["claimName"] == name)
    };
    let users: Vec<&str> = pods.iter().filter(uses).map(|pod| text(&pod["metadata"], "name")).collect();
    out.push_str(&format!("Used By:\t{}\n", if users.is_empty() { "<none>".to_owned() } else { users.join("\n\t") }));
    let conditions = list(&object["status"]["conditions"]);
    if !conditions.is_empty() {
        out.push_str("Conditions:\n  Type\tStatus\tLastProbeTime\tLastTransitionTime\tReason\tMessage\n");
        out.push_str("  ----\t------\t-----------------\t------------------\t------\t-------\n");
    }
    for condition in conditions {
        let (probed, changed) = (text(condition, "lastProbeTime"), text(condition, "lastTransitionTime"));
        out.push_str(&format!(
            "  {} \t{} \t{} \t{} \t{} \t{}\n",
            text(condition, "type"),
            text(condition, "status"),
            date(probed),
            date(changed),
            text(condition, "reason"),
            text(condition, "message")
        ));
    }
    Ok(out)
}

pub fn autoscaler(object: &Value) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut out = head(object, true) + &marks(object);
    out.push_str(&format!("CreationTimestamp:\t{}\n", date(text(&object["metadata"], "creationTimestamp"))));
    let target = &spec["scaleTargetRef"];
    out.push_str(&format!("Reference:\t{}/{}\n", text(target, "kind"), text(target, "name")));
    out.push_str("Metrics:\t( current / target )\n");
    for (at, metric) in list(&spec["metrics"]).iter().enumerate() {
        out.push_str(&measured(metric, &status["currentMetrics"][at]));
    }
    let least = spec["minReplicas"].as_i64().map_or_else(|| "<unset>".to_owned(), |number| number.to_string());
    out.push_str(&format!("Min replicas:\t{least}\nMax replicas:\t{}\n", number(spec, "maxReplicas")));
    let behavior = &spec["behavior"];
    if behavior.is_object() {
        out.push_str("Behavior:\n");
        for (title, field) in [("Scale Up", "scaleUp"), ("Scale Down", "scaleDown")] {
            let rules = &behavior[field];
            if !rules.is_object() {
                continue;
            }
            out.push_str(&format!("  {title}:\n"));
            if let Some(seconds) = rules["stabilizationWindowSeconds"].as_i64() {
                out.push_str(&format!("    Stabilization Window: {seconds} seconds\n"));
            }
            if !list(&rules["policies"]).is_empty() {
                let chosen = rules["selectPolicy"].as_str().unwrap_or("Max");
                out.push_str(&format!("    Select Policy: {chosen}\n    Policies:\n"));
            }
            for policy in list(&rules["policies"]) {
                let (value, period) = (number(policy, "value"), number(policy, "periodSeconds"));
                out.push_str(&format!(
                    "      - Type: {}\tValue: {value}\tPeriod: {period} seconds\n",
                    text(policy, "type")
                ));
            }
        }
    }
    let (current, desired) = (number(status, "currentReplicas"), number(status, "desiredReplicas"));
    out.push_str(&format!("{} pods:\t{current} current / {desired} desired\n", text(target, "kind")));
    if !list(&status["conditions"]).is_empty() {
        out.push_str("Conditions:\n  Type\tStatus\tReason\tMessage\n  ----\t------\t------\t-------\n");
        for condition in list(&status["conditions"]) {
            let of = |field: &str| text(condition, field);
            out.push_str(&format!("  {}\t{}\t{}\t{}\n", of("type"), of("status"), of("reason"), of("message")));
        }
    }
    out
}

/// One metric of an autoscaler, as it is and as it should be.
fn measured(metric: &Value, now: &Value) -> String {
    let quantity = |value: &Value| value.as_str().unwrap_or("<unknown>").to_owned();
    let kind = text(metric, "type");
    let (field, subject) = match kind {
        "Resource" => ("resource", format!("resource {} on pods", text(&metric["resource"], "name"))),
        "ContainerResource" => {
            let of = &metric["containerResource"];
            let (name, container) = (text(of, "name"), text(of, "container"));
            ("containerResource", format!("resource {name} of container \"{container}\" on pods"))
        }
        "Pods" => ("pods", format!("\"{}\" on pods", text(&metric["pods"]["metric"], "name"))),
        "External" => ("external", format!("\"{}\"", text(&metric["external"]["metric"], "name"))),
        "Object" => {
            let of = &metric["object"];
            let about = &of["describedObject"];
            let place = format!("{}/{}", text(about, "kind"), text(about, "name"));
            ("object", format!("\"{}\" on {place}", text(&of["metric"], "name")))
        }
        other => return format!("  <unknown metric type {}>\n", crate::text::quote(other)),
    };
    let (target, current) = (&metric[field]["target"], &now[field]["current"]);
    let by_value = !target["averageValue"].is_null();
    match kind {
        "Resource" | "ContainerResource" if !by_value => {
            let now = match current["averageUtilization"].as_i64() {
                Some(percent) => format!("{percent}% ({})", quantity(&current["averageValue"])),
                None => "<unknown>".to_owned(),
            };
            let wanted = target["averageUtilization"].as_i64().map_or("<auto>".to_owned(), |p| format!("{p}%"));
            format!("  {subject}  (as a percentage of request):\t{now} / {wanted}\n")
        }
        "External" | "Object" if by_value => {
            let (now, wanted) = (quantity(&current["averageValue"]), quantity(&target["averageValue"]));
            format!("  {subject} (target average value):\t{now} / {wanted}\n")
        }
        "External" | "Object" => {
            let (now, wanted) = (quantity(&current["value"]), quantity(&target["value"]));
            format!("  {subject} (target value):\t{now} / {wanted}\n")
        }
        _ => {
            let (now, wanted) = (quantity(&current["averageValue"]), quantity(&target["averageValue"]));
            format!("  {subject}:\t{now} / {wanted}\n")
        }
    }
}

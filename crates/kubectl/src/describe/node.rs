//! Nodes, with what their pods ask for.

use ferry_meta::Quantity;
use ferry_meta::quantity::Format;
use serde_json::Value;

use super::parts::{date, head, list as items, marks, text};
use crate::error::Result;
use crate::print::go_value::show;
use crate::session::Context;

pub async fn node(context: &Context, object: &Value) -> Result<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let name = text(&object["metadata"], "name");
    let mut out = head(object, false);
    let mut roles: Vec<String> = Vec::new();
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty()) {
            roles.push(role.to_owned());
        } else if key == "kubernetes.io/role" {
            roles.push(value.as_str().unwrap_or_default().to_owned());
        }
    }
    roles.sort();
    out.push_str(&format!("Roles:\t{}\n", if roles.is_empty() { "<none>".into() } else { roles.join(",") }));
    out.push_str(&marks(object));
    out.push_str(&format!("CreationTimestamp:\t{}\n", date(text(&object["metadata"], "creationTimestamp"))));
    taints(&mut out, items(&spec["taints"]));
    out.push_str(&format!("Unschedulable:\t{}\n", spec["unschedulable"] == true));
    lease(context, name, &mut out).await?;
    if !items(&status["conditions"]).is_empty() {
        out.push_str("Conditions:\n  Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage\n");
        out.push_str("  ----\t------\t-----------------\t------------------\t------\t-------\n");
        for c in items(&status["conditions"]) {
            out.push_str(&format!(
                "  {} \t{} \t{} \t{} \t{} \t{}\n",
                text(c, "type"),
                text(c, "status"),
                date(text(c, "lastHeartbeatTime")),
                date(text(c, "lastTransitionTime")),
                text(c, "reason"),
                text(c, "message")
            ));
        }
    }
    out.push_str("Addresses:\n");
    for address in items(&status["addresses"]) {
        out.push_str(&format!("  {}:\t{}\n", text(address, "type"), text(address, "address")));
    }
    for (title, field) in [("Capacity", "capacity"), ("Allocatable", "allocatable")] {
        if let Some(map) = status[field].as_object().filter(|map| !map.is_empty()) {
            out.push_str(&format!("{title}:\n"));
            map.iter().for_each(|(name, amount)| out.push_str(&format!("  {name}:\t{}\n", show(amount))));
        }
    }
    out.push_str("System Info:\n");
    for (title, field) in [
        ("Machine ID", "machineID"),
        ("System UUID", "systemUUID"),
        ("Boot ID", "bootID"),
        ("Kernel Version", "kernelVersion"),
        ("OS Image", "osImage"),
        ("Operating System", "operatingSystem"),
        ("Architecture", "architecture"),
        ("Container Runtime Version", "containerRuntimeVersion"),
        ("Kubelet Version", "kubeletVersion"),
    ] {
        out.push_str(&format!("  {title}:\t{}\n", text(&status["nodeInfo"], field)));
    }
    if !text(spec, "podCIDR").is_empty() {
        out.push_str(&format!("PodCIDR:\t{}\n", text(spec, "podCIDR")));
    }
    let ranges: Vec<&str> = items(&spec["podCIDRs"]).iter().filter_map(Value::as_str).collect();
    if !ranges.is_empty() {
        out.push_str(&format!("PodCIDRs:\t{}\n", ranges.join(",")));
    }
    if !text(spec, "providerID").is_empty() {
        out.push_str(&format!("ProviderID:\t{}\n", text(spec, "providerID")));
    }
    let fields = format!("spec.nodeName={name},status.phase!=Succeeded,status.phase!=Failed");
    match crate::commands::list_pods(context, None, "", &fields).await {
        Ok(pods) => usage(&mut out, status, &pods),
        Err(error) if error.reason() == "Forbidden" => out.push_str("Pods:\tnot authorized\n"),
        Err(error) => return Err(error),
    }
    Ok(out)
}

fn taints(out: &mut String, all: &[Value]) {
    if all.is_empty() {
        out.push_str("Taints:\t<none>\n");
        return;
    }
    out.push_str("Taints:");
    let mut lines: Vec<String> = all
        .iter()
        .map(|taint| {
            let value = text(taint, "value");
            let value = if value.is_empty() { String::new() } else { format!("={value}") };
            format!("{}{value}:{}", text(taint, "key"), text(taint, "effect"))
        })
        .collect();
    lines.sort();
    lines.iter().for_each(|line| out.push_str(&format!("\t{line}\n")));
}

async fn lease(context: &Context, name: &str, out: &mut String) -> Result<()> {
    let resource = context.kind("coordination.k8s.io/v1", "Lease").await?;
    match crate::resource::get(context, &resource, Some("kube-node-lease"), name).await {
        Ok(lease) => {
            let or_unset = |field: &str| lease["spec"][field].as_str().map_or("<unset>".to_owned(), date);
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or("<unset>");
            out.push_str(&format!(
                "Lease:\n  HolderIdentity:\t{holder}\n  AcquireTime:\t{}\n  RenewTime:\t{}\n",
                or_unset("acquireTime"),
                or_unset("renewTime")
            ));
        }
        Err(error) => out.push_str(&format!("Lease:\tFailed to get lease: {}\n", error.inner())),
    }
    Ok(())
}

fn amount(value: &Value) -> Option<Quantity> {
    Quantity::parse(&show(value)).ok()
}

/// What a pod asks for: its containers together, or an init container if that is more; restartable ones count with both.
fn of_pod(pod: &Value, part: &str, resource: &str) -> Quantity {
    let zero = || Quantity::from_units(0, if resource == "cpu" { Format::DecimalSi } else { Format::BinarySi });
    let spec = &pod["spec"];
    if let Some(whole) =
        amount(&spec["resources"][part][resource]).filter(|_| !spec["resources"][part][resource].is_null())
    {
        return whole;
    }
    let of = |container: &Value| amount(&container["resources"][part][resource]).unwrap_or_else(zero);
    let mut sum = zero();
    for container in items(&spec["containers"]) {
        sum = sum.add(&of(container));
    }
    let (mut most, mut sidecars) = (zero(), zero());
    for container in items(&spec["initContainers"]) {
        if container["restartPolicy"] == "Always" {
            sidecars = sidecars.add(&of(container));
            sum = sum.add(&of(container));
            most = most.max(sidecars.clone());
        } else {
            most = most.max(sidecars.add(&of(container)));
        }
    }
    let whole = sum.max(most);
    match amount(&spec["overhead"][resource])
        .filter(|_| !spec["overhead"][resource].is_null() && (part == "requests" || !whole.is_zero()))
    {
        Some(overhead) => whole.add(&overhead),
        None => whole,
    }
}

/// In percent; None of a node that has nothing to give.
fn share(amount: &Quantity, whole: &Value, milli: bool) -> Option<i64> {
    let whole = self::amount(whole).filter(|_| !whole.is_null())?;
    let (part, whole) = match milli {
        true => (amount.milli_value(), whole.milli_value()),
        false => (amount.value(), whole.value()),
    };
    (whole != 0).then(|| (part as f64 / whole as f64 * 100.0) as i64)
}

fn usage(out: &mut String, status: &Value, pods: &[Value]) {
    let whole = if status["allocatable"].is_object() { &status["allocatable"] } else { &status["capacity"] };
    out.push_str(&format!("Non-terminated Pods:\t({} in total)\n", pods.len()));
    out.push_str("  Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge\n");
    out.push_str("  ---------\t----\t\t------------\t----------\t---------------\t-------------\t---\n");
    let percent = |amount: &Quantity, resource: &str| share(amount, &whole[resource], resource == "cpu");
    let shown = |amount: &Quantity, resource: &str| format!("{amount} ({}%)", percent(amount, resource).unwrap_or(0));
    for pod in pods {
        // kubectl divides by nothing here, and shows what Go makes of that.
        let cell = |part: &str, resource: &str| {
            let amount = of_pod(pod, part, resource);
            format!("{amount} ({}%)", percent(&amount, resource).unwrap_or(i64::MIN))
        };
        out.push_str(&format!(
            "  {}\t{}\t\t{}\t{}\t{}\t{}\t{}\n",
            text(&pod["metadata"], "namespace"),
            text(&pod["metadata"], "name"),
            cell("requests", "cpu"),
            cell("limits", "cpu"),
            cell("requests", "memory"),
            cell("limits", "memory"),
            crate::text::age(text(&pod["metadata"], "creationTimestamp"))
        ));
    }
    out.push_str("Allocated resources:\n  (Total limits may be over 100 percent, i.e., overcommitted.)\n");
    out.push_str("  Resource\tRequests\tLimits\n  --------\t--------\t------\n");
    let mut rows: Vec<String> = ["cpu", "memory", "ephemeral-storage"].map(str::to_owned).to_vec();
    let standard = ["cpu", "memory", "ephemeral-storage", "pods"];
    let others = whole.as_object().into_iter().flatten().map(|(name, _)| name.clone());
    let (huge, extended): (Vec<String>, Vec<String>) =
        others.filter(|name| !standard.contains(&&**name)).partition(|name| name.starts_with("hugepages-"));
    rows.extend(huge);
    let total = |part: &str, resource: &str| {
        let zero = Quantity::from_units(0, if resource == "cpu" { Format::DecimalSi } else { Format::BinarySi });
        pods.iter().fold(zero, |sum, pod| sum.add(&of_pod(pod, part, resource)))
    };
    for name in rows {
        let (requests, limits) = (total("requests", &name), total("limits", &name));
        out.push_str(&format!("  {name}\t{}\t{}\n", shown(&requests, &name), shown(&limits, &name)));
    }
    for name in extended {
        out.push_str(&format!("  {name}\t{}\t{}\n", total("requests", &name), total("limits", &name)));
    }
}

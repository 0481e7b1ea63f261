//! Containers, with what became of them.

use ferry_meta::quantity::Quantity;
use serde_json::Value;

use super::parts::{date, list, text};
use crate::print::go_value::show;

/// `space` is what stands before the title where they are part of something else.
pub fn containers(title: &str, all: &Value, statuses: Option<&Value>, pod: Option<&Value>, space: &str) -> String {
    let all = list(all);
    let mut out = format!("{space}{title}:{}\n", if all.is_empty() { " <none>" } else { "" });
    for container in all {
        let status = statuses.and_then(|statuses| list(statuses).iter().find(|s| s["name"] == container["name"]));
        basics(&mut out, container, status, space);
        for (field, title) in [("command", "Command"), ("args", "Args")] {
            if !list(&container[field]).is_empty() {
                out.push_str(&format!("    {title}:\n"));
                for line in list(&container[field]).iter().filter_map(Value::as_str).flat_map(|word| word.split('\n')) {
                    out.push_str(&format!("      {line}\n"));
                }
            }
        }
        if let Some(status) = status {
            states(&mut out, status);
        }
        resources(&mut out, &container["resources"], "    ");
        for (field, title) in
            [("livenessProbe", "Liveness"), ("readinessProbe", "Readiness"), ("startupProbe", "Startup")]
        {
            if container[field].is_object() {
                out.push_str(&format!("    {title}:\t{}\n", probe(&container[field])));
            }
        }
        environment(&mut out, container, pod);
        mounts(&mut out, container);
    }
    out
}

fn basics(out: &mut String, container: &Value, status: Option<&Value>, space: &str) {
    let indent = if space.is_empty() { "" } else { " " };
    out.push_str(&format!("  {indent}{}:\n", text(container, "name")));
    if let Some(status) = status {
        out.push_str(&format!("    Container ID:\t{}\n", text(status, "containerID")));
    }
    out.push_str(&format!("    Image:\t{}\n", text(container, "image")));
    if let Some(status) = status {
        out.push_str(&format!("    Image ID:\t{}\n", text(status, "imageID")));
    }
    for (title, field) in [("Port", "containerPort"), ("Host Port", "hostPort")] {
        let ports: Vec<String> = list(&container["ports"])
            .iter()
            .map(|port| {
                let name = text(port, "name");
                let label = if name.is_empty() { String::new() } else { format!(" ({name})") };
                format!("{}/{}{label}", port[field].as_i64().unwrap_or(0), text(port, "protocol"))
            })
            .collect();
        let all = if ports.is_empty() { "<none>".to_owned() } else { ports.join(", ") };
        out.push_str(&format!("    {title}{}:\t{all}\n", if ports.len() > 1 { "s" } else { "" }));
    }
    let profile = &container["securityContext"]["seccompProfile"];
    if profile.is_object() {
        out.push_str(&format!("    SeccompProfile:\t{}\n", text(profile, "type")));
        if profile["type"] == "Localhost" {
            out.push_str(&format!("      LocalhostProfile:\t{}\n", text(profile, "localhostProfile")));
        }
    }
}

fn states(out: &mut String, status: &Value) {
    state(out, "State", &status["state"]);
    if status["lastState"]["terminated"].is_object() {
        state(out, "Last State", &status["lastState"]);
    }
    let ready = if status["ready"] == true { "True" } else { "False" };
    out.push_str(&format!(
        "    Ready:\t{ready}\n    Restart Count:\t{}\n",
        status["restartCount"].as_i64().unwrap_or(0)
    ));
}

fn state(out: &mut String, title: &str, state: &Value) {
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            out.push_str(&format!("{name}:\t{value}\n"));
        }
    };
    let title = format!("    {title}");
    if state["running"].is_object() {
        field(&title, "Running");
        field("      Started", &date(text(&state["running"], "startedAt")));
    } else if state["terminated"].is_object() {
        let ended = &state["terminated"];
        field(&title, "Terminated");
        field("      Reason", text(ended, "reason"));
        field("      Message", text(ended, "message"));
        field("      Exit Code", &ended["exitCode"].as_i64().unwrap_or(0).to_string());
        let signal = ended["signal"].as_i64().filter(|signal| *signal > 0);
        field("      Signal", &signal.map(|signal| signal.to_string()).unwrap_or_default());
        field("      Started", &date(text(ended, "startedAt")));
        field("      Finished", &date(text(ended, "finishedAt")));
    } else {
        field(&title, "Waiting");
        field("      Reason", text(&state["waiting"], "reason"));
    }
}

pub fn resources(out: &mut String, resources: &Value, indent: &str) {
    for (field, title) in [("limits", "Limits"), ("requests", "Requests")] {
        let Some(map) = resources[field].as_object().filter(|map| !map.is_empty()) else { continue };
        out.push_str(&format!("{indent}{title}:\n"));
        for (name, amount) in map {
            out.push_str(&format!("{indent}  {name}:\t{}\n", show(amount)));
        }
    }
}

fn probe(probe: &Value) -> String {
    let number = |field: &str| probe[field].as_i64().unwrap_or(0);
    let attributes = format!(
        "delay={}s timeout={}s period={}s successThreshold={} failureThreshold={}",
        number("initialDelaySeconds"),
        number("timeoutSeconds"),
        number("periodSeconds"),
        number("successThreshold"),
        number("failureThreshold")
    );
    if probe["exec"].is_object() {
        let words: Vec<&str> = list(&probe["exec"]["command"]).iter().filter_map(Value::as_str).collect();
        return format!("exec [{}] {attributes}", words.join(" "));
    }
    if probe["httpGet"].is_object() {
        let get = &probe["httpGet"];
        let host = text(get, "host");
        return format!(
            "http-get {}://{host}:{}{} {attributes}",
            text(get, "scheme").to_lowercase(),
            show(&get["port"]),
            text(get, "path")
        );
    }
    if probe["tcpSocket"].is_object() {
        let socket = &probe["tcpSocket"];
        return format!("tcp-socket {}:{} {attributes}", text(socket, "host"), show(&socket["port"]));
    }
    if probe["grpc"].is_object() {
        return format!("grpc <pod>:{} {} {attributes}", show(&probe["grpc"]["port"]), text(&probe["grpc"], "service"));
    }
    format!("unknown {attributes}")
}

fn environment(out: &mut String, container: &Value, pod: Option<&Value>) {
    let from = list(&container["envFrom"]);
    if !from.is_empty() {
        out.push_str("    Environment Variables from:\n");
        for source in from {
            let (kind, reference) = match source["configMapRef"].is_object() {
                true => ("ConfigMap", &source["configMapRef"]),
                false => ("Secret", &source["secretRef"]),
            };
            let prefix = text(source, "prefix");
            let with = if prefix.is_empty() { String::new() } else { format!(" with prefix '{prefix}'") };
            let optional = reference["optional"] == true;
            out.push_str(&format!("      {}\t{kind}{with}\tOptional: {optional}\n", text(reference, "name")));
        }
    }
    let all = list(&container["env"]);
    out.push_str(&format!("    Environment:{}\n", if all.is_empty() { "\t<none>" } else { "" }));
    for variable in all {
        let name = text(variable, "name");
        let source = &variable["valueFrom"];
        if !source.is_object() {
            for (index, line) in text(variable, "value").split('\n').enumerate() {
                let title = if index == 0 { format!("{name}:") } else { String::new() };
                out.push_str(&format!("      {title}\t{line}\n"));
            }
            continue;
        }
        let line = if source["fieldRef"].is_object() {
            let field = &source["fieldRef"];
            // kubectl shows no label and no annotation by name.
            let path = text(field, "fieldPath");
            let value = pod.filter(|_| !path.contains('[')).map(|pod| of_field(pod, path)).unwrap_or_default();
            format!("{value} ({}:{})", text(field, "apiVersion"), text(field, "fieldPath"))
        } else if source["resourceFieldRef"].is_object() {
            let resource = text(&source["resourceFieldRef"], "resource");
            let (part, name) = resource.split_once('.').unwrap_or((resource, ""));
            let value = match &container["resources"][part][name] {
                Value::Null if part == "limits" => "node allocatable".to_owned(),
                _ => amount(container, &source["resourceFieldRef"]).unwrap_or_else(|| "0".to_owned()),
            };
            format!("{value} ({resource})")
        } else {
            let (kind, reference) = match source["secretKeyRef"].is_object() {
                true => ("in secret", &source["secretKeyRef"]),
                false => ("of config map", &source["configMapKeyRef"]),
            };
            let optional = reference["optional"] == true;
            format!(
                "<set to the key '{}' {kind} '{}'>\tOptional: {optional}",
                text(reference, "key"),
                text(reference, "name")
            )
        };
        out.push_str(&format!("      {name}:\t{line}\n"));
    }
}

fn of_field(pod: &Value, path: &str) -> String {
    let bare = path.trim_start_matches('.');
    if let Some((map, key)) = bare.split_once("['").and_then(|(map, key)| Some((map, key.strip_suffix("']")?))) {
        let field = map.trim_start_matches("metadata.");
        return text(&pod["metadata"][field], key).to_owned();
    }
    let value = bare.split('.').fold(pod, |value, field| &value[field]);
    if value.is_null() { String::new() } else { show(value) }
}

fn mounts(out: &mut String, container: &Value) {
    let mut all: Vec<&Value> = list(&container["volumeMounts"]).iter().collect();
    all.sort_by_key(|mount| text(mount, "mountPath"));
    out.push_str(&format!("    Mounts:{}\n", if all.is_empty() { "\t<none>" } else { "" }));
    for mount in all {
        let mut how = if mount["readOnly"] == true { "ro".to_owned() } else { "rw".to_owned() };
        if !text(mount, "subPath").is_empty() {
            how.push_str(&format!(",path={}", crate::text::quote(text(mount, "subPath"))));
        }
        out.push_str(&format!("      {} from {} ({how})\n", text(mount, "mountPath"), text(mount, "name")));
    }
    let devices = list(&container["volumeDevices"]);
    if !devices.is_empty() {
        out.push_str("    Devices:\n");
        for device in devices {
            out.push_str(&format!("      {} from {}\n", text(device, "devicePath"), text(device, "name")));
        }
    }
}

/// What a container asks for or may have, in units of the divisor and rounded up; none where no such amount is known.
pub fn amount(container: &Value, reference: &Value) -> Option<String> {
    let (part, name) = text(reference, "resource").split_once('.')?;
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !known || !matches!(part, "limits" | "requests") {
        return None;
    }
    let quantity = |text: &str| Quantity::parse(text).ok();
    let value = quantity(container["resources"][part][name].as_str().unwrap_or("0"))?;
    let divisor = quantity(reference["divisor"].as_str().filter(|text| *text != "0").unwrap_or("1"))?;
    let (value, divisor) = match name {
        "cpu" => (value.milli_value(), divisor.milli_value()),
        _ => (value.value(), divisor.value()),
    };
    let rest = value.checked_rem_euclid(divisor)?;
    Some((value.checked_div_euclid(divisor)? + i64::from(rest != 0)).to_string())
}

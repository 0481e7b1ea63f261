//! Lines that all kinds share.

use serde_json::Value;

pub fn align(text: &str) -> String {
    crate::print::tabs::align(text, 0, 2)
}

pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// `Mon, 02 Jan 2006 15:04:05 +0000`, in the zone of this machine.
pub fn date(stamp: &str) -> String {
    match ferry_meta::time::parse(stamp) {
        Some(at) => at.to_zoned(jiff::tz::TimeZone::system()).strftime("%a, %d %b %Y %H:%M:%S %z").to_string(),
        None => "Mon, 01 Jan 0001 00:00:00 +0000".into(),
    }
}

/// `2006-01-02 15:04:05 +0000 UTC`, in the zone of this machine.
pub fn go_time(stamp: &str) -> String {
    match ferry_meta::time::parse(stamp) {
        Some(at) => at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %z %Z").to_string(),
        None => "0001-01-01 00:00:00 +0000 UTC".into(),
    }
}

pub fn pairs(title: &str, map: &Value) -> String {
    match map.as_object().filter(|map| !map.is_empty()) {
        None => format!("{title}:\t<none>\n"),
        Some(map) => {
            let lines = map.iter().map(|(key, value)| format!("\t{key}={}\n", value.as_str().unwrap_or_default()));
            format!("{title}:{}", lines.collect::<String>())
        }
    }
}

const LONGEST: usize = 140;

pub fn annotations(title: &str, map: &Value) -> String {
    let skipped = crate::commands::LAST_APPLIED;
    let kept: Vec<(&String, &str)> = map
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != skipped)
        .map(|(key, value)| (key, value.as_str().unwrap_or_default()))
        .collect();
    if kept.is_empty() {
        return format!("{title}:\t<none>\n");
    }
    let mut out = format!("{title}:");
    for (key, value) in kept {
        let value = value.strip_suffix('\n').unwrap_or(value);
        if value.len() + key.len() + 2 > LONGEST || value.contains('\n') {
            out.push_str(&format!("\t{key}:\n"));
            for line in value.split('\n') {
                let short: String = line.chars().take(LONGEST - 2).collect();
                let more = if short.len() < line.len() { "..." } else { "" };
                out.push_str(&format!("\t  {short}{more}\n"));
            }
        } else {
            out.push_str(&format!("\t{key}: {value}\n"));
        }
    }
    out
}

pub fn head(object: &Value, namespaced: bool) -> String {
    let metadata = &object["metadata"];
    let mut out = format!("Name:\t{}\n", text(metadata, "name"));
    if namespaced {
        out.push_str(&format!("Namespace:\t{}\n", text(metadata, "namespace")));
    }
    out
}

pub fn marks(object: &Value) -> String {
    pairs("Labels", &object["metadata"]["labels"]) + &annotations("Annotations", &object["metadata"]["annotations"])
}

/// Who controls it: `ReplicaSet/web-1`.
pub fn controller(object: &Value) -> Option<String> {
    let owner = list(&object["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true)?;
    Some(format!("{}/{}", text(owner, "kind"), text(owner, "name")))
}

pub fn tolerations(title: &str, all: &Value) -> String {
    let mut all: Vec<&Value> = list(all).iter().collect();
    if all.is_empty() {
        return format!("{title}:\t<none>\n");
    }
    all.sort_by_key(|toleration| text(toleration, "key"));
    let mut out = format!("{title}:");
    for toleration in all {
        let (key, value, effect) = (text(toleration, "key"), text(toleration, "value"), text(toleration, "effect"));
        let mut line = key.to_owned();
        if !value.is_empty() {
            line.push_str(&format!("={value}"));
        }
        if !effect.is_empty() {
            line.push_str(&format!(":{effect}"));
        }
        if toleration["operator"] == "Exists" && value.is_empty() {
            line.push_str(if key.is_empty() && effect.is_empty() { "op=Exists" } else { " op=Exists" });
        }
        if let Some(seconds) = toleration["tolerationSeconds"].as_i64() {
            line.push_str(&format!(" for {seconds}s"));
        }
        out.push_str(&format!("\t{line}\n"));
    }
    out
}

/// When an event was seen last.
pub fn event_time(event: &Value) -> String {
    let series = event["series"]["lastObservedTime"].as_str();
    let last = event["lastTimestamp"].as_str();
    series.or(last).or(event["eventTime"].as_str()).or(event["firstTimestamp"].as_str()).unwrap_or_default().to_owned()
}

pub fn events(all: &[Value]) -> String {
    let mut out = "Events:\n  Type\tReason\tAge\tFrom\tMessage\n  ----\t------\t----\t----\t-------\n".to_owned();
    for event in all {
        let age = |field: &Value| crate::text::age(field.as_str().unwrap_or_default());
        let first = match event["eventTime"].as_str() {
            Some(_) => age(&event["eventTime"]),
            None => age(&event["firstTimestamp"]),
        };
        let count = event["count"].as_i64().unwrap_or(0);
        let interval = if event["series"].is_object() {
            let series = &event["series"];
            format!("{} (x{} over {first})", age(&series["lastObservedTime"]), series["count"].as_i64().unwrap_or(0))
        } else if count > 1 {
            format!("{} (x{count} over {first})", age(&event["lastTimestamp"]))
        } else {
            first
        };
        let source = Some(text(&event["source"], "component")).filter(|name| !name.is_empty());
        let mut message = text(event, "message").trim().to_owned();
        let path = text(&event["involvedObject"], "fieldPath");
        if !path.is_empty() {
            message = format!("{path}: {message}");
        }
        out.push_str(&format!(
            "  {}\t{}\t{interval}\t{}\t{message}\n",
            text(event, "type"),
            text(event, "reason"),
            source.unwrap_or(text(event, "reportingComponent"))
        ));
    }
    out
}

pub fn conditions(all: &Value) -> String {
    let all = list(all);
    if all.is_empty() {
        return String::new();
    }
    let mut out = "Conditions:\n  Type\tStatus\tReason\n  ----\t------\t------\n".to_owned();
    for condition in all {
        out.push_str(&format!(
            "  {} \t{}\t{}\n",
            text(condition, "type"),
            text(condition, "status"),
            text(condition, "reason")
        ));
    }
    out
}

/// `a=b,c in (d)` of a selector.
pub fn selector(selector: &Value) -> String {
    let object = serde_json::json!({"kind": "", "spec": {"selector": selector}});
    let text = crate::commands::selector_of(&object).unwrap_or_default();
    if text.is_empty() { "<none>".into() } else { text }
}

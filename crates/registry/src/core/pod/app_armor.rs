//! AppArmor profiles that are still asked for by annotation.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::cursor::{Cursor, map_mut, maps_mut, object_at};

const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The profile that an annotation stands for.
fn profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let name = annotation.strip_prefix("localhost/")?;
            let good = !name.is_empty() && name.trim() == name && name.len() <= 4095;
            good.then(|| json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}

/// The annotations whose containers have no profile of their own, with the name of the container.
fn alone<'a>(pod: &Cursor<'a>) -> Vec<(&'a str, String, Option<Value>)> {
    let (spec, annotations) = (pod.get("spec"), pod.get("metadata").map("annotations"));
    let containers = LISTS.into_iter().flat_map(|list| spec.items(list));
    containers
        .filter(|container| !container.get("securityContext").has("appArmorProfile"))
        .filter_map(|container| {
            let key = format!("{PREFIX}{}", container.text("name"));
            let annotation = annotations.get(&key)?.as_str()?;
            Some((container.text("name"), key, profile(annotation)))
        })
        .collect()
}

/// Warns of annotations that tell more than the fields do, of a pod or a template as its writer sent it.
pub fn warnings(pod: &Cursor<'_>) -> Vec<String> {
    let spec = pod.get("spec");
    let shared = spec.get("securityContext");
    let shared = shared.raw("appArmorProfile");
    let doubtful = alone(pod).into_iter().filter(|(_, _, profile)| profile.as_ref().is_none_or(|p| p != shared));
    let path = pod.get("metadata").at("annotations");
    doubtful
        .map(|(_, key, _)| {
            format!("{}: deprecated since v1.30; use the \"appArmorProfile\" field instead", path.key(&key))
        })
        .collect()
}

/// Writes into the fields of a new pod what its annotations ask for.
pub fn take_up(object: &mut Value) {
    let pod = Cursor::root(object);
    if pod.get("spec").get("os").text("name") == "windows" {
        return;
    }
    let shared = pod.get("spec").get("securityContext").raw("appArmorProfile").clone();
    let mut asked: HashMap<String, Value> = HashMap::new();
    for (name, _, profile) in alone(&pod) {
        if let Some(profile) = profile.filter(|profile| *profile != shared) {
            asked.entry(name.to_owned()).or_insert(profile);
        }
    }
    if asked.is_empty() {
        return;
    }
    let spec = object_at(object, &["spec"]);
    for list in LISTS {
        for container in maps_mut(spec, list) {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
            let Some(profile) = asked.get(name) else { continue };
            let context = container.entry("securityContext").or_insert_with(|| json!({}));
            if context.is_null() {
                *context = json!({});
            }
            if let Some(context) = map_mut(container, "securityContext") {
                context.insert("appArmorProfile".into(), profile.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_become_fields() {
        let mut pod = json!({
            "metadata": {"annotations": {
                format!("{PREFIX}a"): "localhost/x", format!("{PREFIX}b"): "unconfined", format!("{PREFIX}c"): "odd",
            }},
            "spec": {
                "securityContext": {"appArmorProfile": {"type": "Unconfined"}},
                "containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
            },
        });
        let warned = |name: &str| {
            format!(
                "metadata.annotations[{PREFIX}{name}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
            )
        };
        assert_eq!(warnings(&Cursor::root(&pod)), [warned("a"), warned("c")]);
        take_up(&mut pod);
        let profile = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}});
        assert_eq!(
            pod["spec"]["containers"],
            json!([{"name": "a", "securityContext": profile}, {"name": "b"}, {"name": "c"}])
        );
    }
}

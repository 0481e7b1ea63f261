//! The environment of a container: its variables, where their values come from, and `$(NAME)` in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};

use super::env_file;
use super::fields::{self, Surroundings};
use super::room::Room;
use crate::pod;

/// The objects a container's environment refers to, fetched beforehand. An absent optional one is absent here too.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) config_maps: HashMap<String, std::sync::Arc<ConfigMap>>,
    pub(crate) secrets: HashMap<String, std::sync::Arc<Secret>>,
    /// By volume and path in it: where the file is on this node, and its content.
    pub(crate) files: HashMap<(String, String), (String, String)>,
}

/// A name, and whether its absence is an error.
pub(crate) type Reference = (String, bool);

/// What [`Objects`] has to hold for a container: config maps, then secrets.
pub(crate) fn references(container: &Container) -> (BTreeSet<Reference>, BTreeSet<Reference>) {
    let (mut config_maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    for source in container.env_from.iter().flatten() {
        if let Some(one) = &source.config_map_ref {
            config_maps.insert((one.name.clone(), one.optional != Some(true)));
        }
        if let Some(one) = &source.secret_ref {
            secrets.insert((one.name.clone(), one.optional != Some(true)));
        }
    }
    for source in container.env.iter().flatten().filter_map(|v| v.value_from.as_ref()) {
        if let Some(one) = &source.config_map_key_ref {
            config_maps.insert((one.name.clone(), one.optional != Some(true)));
        }
        if let Some(one) = &source.secret_key_ref {
            secrets.insert((one.name.clone(), one.optional != Some(true)));
        }
    }
    (config_maps, secrets)
}

/// The variables in the order to set them: the container's own by name, then those of Services it does not override.
pub(crate) fn variables(
    pod: &Pod,
    container: &Container,
    objects: &Objects,
    services: BTreeMap<String, String>,
    around: &Surroundings,
) -> Result<Vec<(String, String)>, String> {
    let mut own: BTreeMap<String, String> = BTreeMap::new();
    // What a later one replaces counts, too: nobody says the same very often.
    let (mut room, mut reading) = (Room::of_environment(), Room::of_reading());
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(map) = source.config_map_ref.as_ref().and_then(|r| objects.config_maps.get(&r.name)) {
            for (key, value) in map.data.iter().flatten() {
                room.take(prefix.len() + key.len() + value.len())?;
                own.insert(format!("{prefix}{key}"), value.clone());
            }
        }
        if let Some(secret) = source.secret_ref.as_ref().and_then(|r| objects.secrets.get(&r.name)) {
            for (key, value) in secret.data.iter().flatten() {
                room.take(prefix.len() + key.len() + value.0.len())?;
                own.insert(format!("{prefix}{key}"), String::from_utf8_lossy(&value.0).into_owned());
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let literal = variable.value.as_deref().unwrap_or_default();
        let value = if !literal.is_empty() {
            expand(literal, &mut room, |name| own.get(name).or_else(|| services.get(name)).cloned())?
        } else if let Some(source) = &variable.value_from {
            match sourced(pod, container, source, objects, around, &mut reading)? {
                Some(value) => {
                    room.take(value.len())?;
                    value
                }
                None => continue,
            }
        } else {
            String::new()
        };
        room.take(variable.name.len())?;
        own.insert(variable.name.clone(), value);
    }
    let rest: Vec<_> = services.into_iter().filter(|(name, _)| !own.contains_key(name)).collect();
    Ok(own.into_iter().chain(rest).collect())
}

fn sourced(
    pod: &Pod,
    container: &Container,
    source: &k8s_openapi::api::core::v1::EnvVarSource,
    objects: &Objects,
    around: &Surroundings,
    reading: &mut Room,
) -> Result<Option<String>, String> {
    let namespace = pod::namespace(pod);
    if let Some(field) = &source.field_ref {
        return fields::field(pod, &field.field_path, around).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return fields::resource(pod, Some(container), selector, around).map(Some);
    }
    if let Some(one) = &source.config_map_key_ref {
        let value = objects.config_maps.get(&one.name).and_then(|m| m.data.as_ref()?.get(&one.key).cloned());
        if value.is_none() && one.optional != Some(true) {
            return Err(format!("couldn't find key {} in ConfigMap {namespace}/{}", one.key, one.name));
        }
        return Ok(value);
    }
    if let Some(one) = &source.secret_key_ref {
        let value = objects.secrets.get(&one.name).and_then(|s| s.data.as_ref()?.get(&one.key).cloned());
        if value.is_none() && one.optional != Some(true) {
            return Err(format!("couldn't find key {} in Secret {namespace}/{}", one.key, one.name));
        }
        return Ok(value.map(|v| String::from_utf8_lossy(&v.0).into_owned()));
    }
    if let Some(one) = &source.file_key_ref {
        let Some((place, content)) = objects.files.get(&(one.volume_name.clone(), one.path.clone())) else {
            return Err(format!("cannot find the volume {:?} referenced by FileKeyRef", one.volume_name));
        };
        reading.take(content.len())?;
        // What is wrong with the file may be a secret.
        let value = env_file::value(content, &one.key).map_err(|_| "couldn't parse env file".to_owned())?;
        if value.is_none() && one.optional != Some(true) {
            return Err(format!("environment variable key {:?} not found in file {place:?}", one.key));
        }
        return Ok(value);
    }
    // A source that nobody here knows has no value.
    Err("the variable has no source that is known here".to_owned())
}

/// Replaces `$(NAME)`; `$$` is a dollar sign, and what names no variable stays as it is. Two references in each of forty values
/// are a million million in the last: `room` ends that.
pub(crate) fn expand(text: &str, room: &mut Room, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    room.take(text.len())?;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // Where none is closed, none after it is: a megabyte of `$(` is not searched to its end half a million times.
    let mut may_close = true;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let reference = after.strip_prefix('(').filter(|_| may_close).and_then(|inner| {
            let closed = inner.split_once(')');
            may_close = closed.is_some();
            closed
        });
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = reference {
            match value(name) {
                Some(value) => {
                    room.take(value.len())?;
                    out.push_str(&value);
                }
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn references_in_text_are_replaced() {
        let check = |text: &str, expected: &str| {
            let value = |name: &str| (name == "A").then(|| "1".to_owned());
            let expanded = expand(text, &mut Room::of_path(), value);
            assert_eq!(expanded.as_deref(), Ok(expected), "{text}");
        };
        check("$(A)", "1");
        check("x$(A)y$(B)", "x1y$(B)");
        check("$$(A)", "$(A)");
        check("$$$(A)", "$1");
        check("$A $( $", "$A $( $");
        check("$(A", "$(A");
    }

    #[test]
    fn values_come_from_every_source() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [{
            "name": "c",
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "gone", "optional": true}}],
            "env": [
                {"name": "LITERAL", "value": "$(P_a)-$(KUBERNETES_SERVICE_HOST)-$(NONE)"},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "MISSING", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "zz", "optional": true}}},
                {"name": "EMPTY"}]}]}}))
        .expect("a pod");
        let mut objects = Objects::default();
        let map = json!({"metadata": {"name": "m"}, "data": {"a": "1"}});
        objects.config_maps.insert("m".into(), Arc::new(serde_json::from_value(map).expect("a map")));
        let secret = json!({"metadata": {"name": "s"}, "data": {"k": "aGk="}});
        objects.secrets.insert("s".into(), Arc::new(serde_json::from_value(secret).expect("a secret")));
        let services = BTreeMap::from([("KUBERNETES_SERVICE_HOST".to_owned(), "10.96.0.1".to_owned())]);
        let container = &pod::containers(&pod)[0];
        let all = variables(&pod, container, &objects, services, &Surroundings::default()).expect("variables");
        let expected = [
            ("EMPTY", ""),
            ("LITERAL", "1-10.96.0.1-$(NONE)"),
            ("NAME", "p"),
            ("P_a", "1"),
            ("SECRET", "hi"),
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
        ];
        assert_eq!(all, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
        objects.secrets.clear();
        let missing = variables(&pod, container, &objects, BTreeMap::new(), &Surroundings::default());
        assert_eq!(missing, Err("couldn't find key k in Secret n/s".to_owned()));
    }

    /// Each was looked for up to the end of the text: a megabyte held a worker for half a minute.
    #[test]
    fn references_that_nothing_closes_are_looked_for_once() {
        let text = "$(".repeat(1 << 19);
        let began = std::time::Instant::now();
        let expanded = expand(&text, &mut Room::of_arguments(), |_| Some("x".to_owned()));
        assert!(expanded.is_ok_and(|expanded| expanded == text));
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    }

    /// A few kilobytes that stand for more than any memory, each in another way: the kubelet made all of it.
    #[test]
    fn an_environment_does_not_grow_without_end() {
        let of = |env: serde_json::Value, env_from: serde_json::Value| {
            let annotations = json!({"long": "x".repeat(100_000)});
            let container = json!({"name": "c", "env": env, "envFrom": env_from});
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "annotations": annotations},
                "spec": {"containers": [container]}}))
            .expect("a pod");
            let mut objects = Objects::default();
            let map = json!({"metadata": {"name": "m"}, "data": {"a": "x".repeat(100_000)}});
            objects.config_maps.insert("m".into(), Arc::new(serde_json::from_value(map).expect("a map")));
            let secret = json!({"metadata": {"name": "s"}, "data": {"a": "eHh4".repeat(25_000)}});
            objects.secrets.insert("s".into(), Arc::new(serde_json::from_value(secret).expect("a secret")));
            let comments = "# nothing\n".repeat(100_000);
            objects.files.insert(("v".into(), "f".into()), (String::new(), comments));
            let container = &pod::containers(&pod)[0];
            variables(&pod, container, &objects, BTreeMap::new(), &Surroundings::default()).map(|all| all.len())
        };
        let many = |one: &dyn Fn(usize) -> serde_json::Value, count: usize| (0..count).map(one).collect::<Vec<_>>();
        let doubled = |at: usize| match at {
            0 => json!({"name": "V0", "value": "xxxxxxxxxx"}),
            _ => json!({"name": format!("V{at}"), "value": format!("$(V{0})$(V{0})", at - 1)}),
        };
        let of_map = |at: usize| json!({"prefix": format!("P{at}"), "configMapRef": {"name": "m"}});
        let of_secret = |at: usize| json!({"prefix": format!("P{at}"), "secretRef": {"name": "s"}});
        let from =
            |source: serde_json::Value| move |at: usize| json!({"name": format!("V{at}"), "valueFrom": source.clone()});
        let key = json!({"name": "m", "key": "a"});
        let file = json!({"volumeName": "v", "path": "f", "key": "K", "optional": true});
        let none = || json!([]);
        let longer = Err("the environment is longer than 6291456 bytes".to_owned());
        let reading = Err("what is to be read for variables of files is longer than 268435456 bytes".to_owned());
        for (env, env_from, want) in [
            (json!(many(&doubled, 15)), none(), Ok(15)),
            (json!(many(&doubled, 60)), none(), longer.clone()),
            (none(), json!(many(&of_map, 60)), Ok(60)),
            (none(), json!(many(&of_map, 1000)), longer.clone()),
            (none(), json!(many(&of_secret, 1000)), longer.clone()),
            (json!(many(&from(json!({"configMapKeyRef": key})), 1000)), none(), longer.clone()),
            (json!(many(&from(json!({"secretKeyRef": {"name": "s", "key": "a"}})), 1000)), none(), longer.clone()),
            (json!(many(&from(json!({"fieldRef": {"fieldPath": "metadata.annotations"}})), 1000)), none(), longer),
            (json!(many(&from(json!({"fileKeyRef": file.clone()})), 100)), none(), Ok(0)),
            (json!(many(&from(json!({"fileKeyRef": file})), 1000)), none(), reading),
        ] {
            assert_eq!(of(env, env_from), want);
        }
    }
}

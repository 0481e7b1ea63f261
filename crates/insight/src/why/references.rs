//! ConfigMaps and Secrets that a pod names, and whether they and their keys are there.

use ferry_meta::object;
use serde_json::Value;

use super::containers::called;
use super::{Finding, Reason, named, near, rollout};
use crate::world::{Presence, World, word};

/// Something that a pod cannot start without, or uses to pull its images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub plural: &'static str,
    pub name: String,
    /// The keys that are asked for, each with whether it may be absent. None: whatever there is.
    pub keys: Vec<(String, bool)>,
    pub optional: bool,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Environment { container: String },
    Volume { volume: String },
    PullSecret,
}

pub(crate) fn of_pod(pod: &Value) -> Vec<Reference> {
    let mut found = Vec::new();
    for list in ["/spec/initContainers", "/spec/containers"] {
        for container in object::items(pod, list) {
            environment(container, &mut found);
        }
    }
    for volume in object::items(pod, "/spec/volumes") {
        volumes(volume, &mut found);
    }
    for secret in object::items(pod, "/spec/imagePullSecrets") {
        found.push(Reference {
            plural: "secrets",
            name: object::text(secret, "/name").to_owned(),
            keys: Vec::new(),
            optional: true,
            place: Place::PullSecret,
        });
    }
    found.retain(|one| !one.name.is_empty());
    found
}

/// A ServiceAccount whose pull Secret is not there: its pods pull without it.
pub(super) fn of_account(world: &World, account: &Value) -> Option<Finding> {
    let namespace = object::namespace(account);
    let gone: Vec<&str> = object::items(account, "/imagePullSecrets")
        .iter()
        .map(|secret| object::text(secret, "/name"))
        .filter(|name| *world.presence("secrets", name) == Presence::Absent)
        .collect();
    let first = gone.first()?;
    let cause = format!(
        "its pull Secret {} does not exist in namespace {namespace}: its pods pull images without it",
        named(&gone)
    );
    let first = word(first);
    Some(Finding::new(Reason::PullSecretOfAccount, account, cause).advise(format!(
        "kubectl create secret docker-registry -n {namespace} {first} --docker-server=HOST --docker-username=USER --docker-password=PASSWORD"
    )))
}

fn is_optional(source: &Value) -> bool {
    source["optional"].as_bool() == Some(true)
}

fn environment(container: &Value, found: &mut Vec<Reference>) {
    let place = Place::Environment { container: object::text(container, "/name").to_owned() };
    let mut add = |plural, source: &Value, keys: Vec<(String, bool)>| {
        found.push(Reference {
            plural,
            name: object::text(source, "/name").to_owned(),
            keys,
            optional: is_optional(source),
            place: place.clone(),
        });
    };
    for variable in object::items(container, "/env") {
        for (field, plural) in [("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")] {
            if let Some(source) = variable.pointer(&format!("/valueFrom/{field}")) {
                add(plural, source, vec![(object::text(source, "/key").to_owned(), is_optional(source))]);
            }
        }
    }
    for all in object::items(container, "/envFrom") {
        for (field, plural) in [("configMapRef", "configmaps"), ("secretRef", "secrets")] {
            if let Some(source) = all.get(field) {
                add(plural, source, Vec::new());
            }
        }
    }
}

fn volumes(volume: &Value, found: &mut Vec<Reference>) {
    let place = Place::Volume { volume: object::text(volume, "/name").to_owned() };
    let mut add = |plural, name: &str, source: &Value| {
        let keys = object::items(source, "/items").iter();
        found.push(Reference {
            plural,
            name: name.to_owned(),
            keys: keys.map(|item| (object::text(item, "/key").to_owned(), is_optional(source))).collect(),
            optional: is_optional(source),
            place: place.clone(),
        });
    };
    if let Some(source) = volume.get("configMap") {
        add("configmaps", object::text(source, "/name"), source);
    }
    if let Some(source) = volume.get("secret") {
        add("secrets", object::text(source, "/secretName"), source);
    }
    for source in object::items(volume, "/projected/sources") {
        if let Some(inner) = source.get("configMap") {
            add("configmaps", object::text(inner, "/name"), inner);
        }
        if let Some(inner) = source.get("secret") {
            add("secrets", object::text(inner, "/name"), inner);
        }
    }
}

/// The first object or key that a volume of the pod names and that is not there.
pub(super) fn missing_for_volume(world: &World, pod: &Value) -> Option<Finding> {
    let of_volume = |one: &Reference| matches!(one.place, Place::Volume { .. });
    of_pod(pod).iter().filter(|one| of_volume(one)).find_map(|one| missing(world, pod, one))
}

/// What a volume names and the kubelet did not find, where it is there by now: it was made after the kubelet's Event.
pub(super) fn come_since(world: &World, pod: &Value, told: &str) -> Option<String> {
    let of_volume = |one: &&Reference| matches!(one.place, Place::Volume { .. });
    let references = of_pod(pod);
    let found = references.iter().filter(of_volume).find(|one| {
        let is_there = matches!(world.presence(one.plural, &one.name), Presence::Present(_));
        is_there && told.ends_with(&format!("{} {:?} not found", one.plural.trim_end_matches('s'), one.name))
    })?;
    let kind = if found.plural == "secrets" { "Secret" } else { "ConfigMap" };
    Some(format!("the {kind} {:?}", found.name))
}

/// The first object or key that the environment of a container names and that is not there.
pub(super) fn missing_for_container(world: &World, pod: &Value, container: &str) -> Option<Finding> {
    let of_it = |one: &Reference| matches!(&one.place, Place::Environment { container: of } if of == container);
    of_pod(pod).iter().filter(|one| of_it(one)).find_map(|one| missing(world, pod, one))
}

/// The ConfigMap with the CA of the API server, which every pod with a token mounts.
const ROOT_CA: &str = "kube-root-ca.crt";

fn missing(world: &World, pod: &Value, one: &Reference) -> Option<Finding> {
    let (kind, command) = match one.plural {
        "configmaps" => ("ConfigMap", "configmap"),
        _ => ("Secret", "secret generic"),
    };
    let place = match &one.place {
        Place::Environment { container } => format!("the environment of {}", called(pod, container)),
        Place::Volume { volume } => format!("its volume {volume:?}"),
        Place::PullSecret => "spec.imagePullSecrets".to_owned(),
    };
    let (name, namespace) = (&one.name, object::namespace(pod));
    match world.presence(one.plural, name) {
        Presence::Absent if !one.optional => {
            let reason = if kind == "Secret" { Reason::SecretMissing } else { Reason::ConfigMapMissing };
            let keys: Vec<String> =
                one.keys.iter().map(|(key, _)| word(&format!("--from-literal={key}=VALUE")).into_owned()).collect();
            let keys = if keys.is_empty() { String::new() } else { format!(" {}", keys.join(" ")) };
            let cause = format!("{place} needs the {kind} {name:?}, and there is none in namespace {namespace}");
            // Nobody writes this one by hand.
            if (kind, name.as_str()) == ("ConfigMap", ROOT_CA) {
                return Some(
                    Finding::new(reason, pod, cause)
                        .detail("a controller writes it into every namespace (root-ca-certificate-publisher)")
                        .advise(rollout::CONTROLLERS),
                );
            }
            Some(
                Finding::new(reason, pod, cause)
                    .detail(near::elsewhere(world, one.plural, name))
                    .detail(near::there(world, one.plural, name))
                    .advise(format!("create it: kubectl create {command} -n {namespace} {}{keys}", word(name)))
                    .advise("or correct the name in the pod, or mark the reference optional"),
            )
        }
        Presence::Present(content) => {
            let (key, _) = one.keys.iter().find(|(key, optional)| !optional && !content.keys.contains(key))?;
            let has = if content.keys.is_empty() {
                "it has no keys at all".to_owned()
            } else {
                format!("it has {}", named(&near::sorted(key, content.keys.iter().collect())))
            };
            let cause = format!("{place} needs the key {key:?} of the {kind} {name:?}, which has no such key");
            let plural = one.plural.trim_end_matches('s');
            Some(
                Finding::new(Reason::KeyMissing, pod, cause)
                    .detail(has)
                    .advise(format!("add the key: kubectl edit -n {namespace} {plural}/{name}"))
                    .advise("or name another key in the pod"),
            )
        }
        _ => None,
    }
}

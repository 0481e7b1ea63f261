//! Reads what the objects around an object name: ConfigMaps and Secrets of pods, Services behind webhooks, what is left
//! of something that is being deleted.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::object;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Error};
use crate::gather::{BEHIND, BEHIND_SLICES, MUTATING, REMAINING, VALIDATING};
use crate::resolve::{self, Resource, segment};
use crate::why;
use crate::world::{Content, Presence, Serving, World, is_true, known_kind};

/// So many pods are looked at for what they name, and so many objects are asked for.
const PODS: usize = 16;
const NAMED: usize = 64;

/// ConfigMaps, Secrets and classes that pods which are not ready name, and the Secrets of an Ingress or a
/// Gateway.
pub(crate) async fn add_named(cluster: &Cluster, world: &mut World, namespace: &str) {
    let mut wanted: BTreeSet<(&'static str, String)> = BTreeSet::new();
    for pod in world.own_pods_first().into_iter().filter(|pod| !is_true(pod, "Ready")).take(PODS) {
        wanted.extend(why::references_of(pod).into_iter().map(|one| (one.plural, one.name)));
    }
    for tls in object::items(&world.target, "/spec/tls") {
        let name = object::text(tls, "/secretName");
        if !name.is_empty() && known_kind(&world.target) == "Ingress" {
            wanted.insert(("secrets", name.to_owned()));
        }
    }
    if known_kind(&world.target) == "ServiceAccount" {
        let secrets = object::items(&world.target, "/imagePullSecrets").iter();
        wanted.extend(secrets.map(|secret| ("secrets", object::text(secret, "/name").to_owned())));
    }
    if known_kind(&world.target) == "Gateway" {
        let named = why::secrets_of_gateway(&world.target).into_iter().map(|(_, name)| ("secrets", name.to_owned()));
        wanted.extend(named);
    }
    let asked = wanted.into_iter().take(NAMED).map(|(plural, name)| async move {
        let found = cluster.get(&format!("/api/v1/namespaces/{namespace}/{plural}/{}", segment(&name))).await;
        (plural, name, found)
    });
    let mut absent = Vec::new();
    for (plural, name, found) in join_all(asked).await {
        if let Err(Error::Refused { code: 401 | 403, .. }) = &found {
            world.unseen.push(format!("{}/{name}, which you may not read", plural.trim_end_matches('s')));
        }
        if let Ok(None) = &found {
            absent.push((plural, name.clone()));
        }
        world.note(plural, &name, presence(found));
    }
    let claims = world.own_pods_first().into_iter().take(PODS).flat_map(why::claims_of);
    let unclaimed = claims.filter(|name| world.is_absent("persistentvolumeclaims", name));
    absent.extend(unclaimed.map(|name| ("persistentvolumeclaims", name)));
    absent.truncate(MISSING);
    for (plural, name) in absent {
        add_similar(cluster, world, namespace, plural, &name).await;
    }
}

/// So many that are missing are looked for elsewhere.
const MISSING: usize = 4;

/// What is called like an object that is missing, here and elsewhere. Who may not look does without.
async fn add_similar(cluster: &Cluster, world: &mut World, namespace: &str, plural: &str, name: &str) {
    let there = format!("/api/v1/{plural}?fieldSelector=metadata.name%3D{}&limit=20", segment(name));
    let here = format!("/api/v1/namespaces/{namespace}/{plural}?limit=500");
    let (there, here) = futures::join!(cluster.metadata(&there), cluster.metadata(&here));
    let namespaces = there.unwrap_or_default().iter().map(|item| object::namespace(item).to_owned()).collect();
    world.note_elsewhere(plural, name, namespaces);
    world.put(&why::names_of(plural), here.unwrap_or_default());
}

fn presence(found: Result<Option<Value>, Error>) -> Presence {
    match found {
        Ok(Some(item)) => Presence::Present(content(&item)),
        Ok(None) => Presence::Absent,
        // Who may not read it does not know.
        Err(_) => Presence::Unknown,
    }
}

/// The role and the ServiceAccounts that a binding names.
pub(crate) async fn add_access(cluster: &Cluster, world: &mut World) {
    if !matches!(known_kind(&world.target), "RoleBinding" | "ClusterRoleBinding") {
        return;
    }
    const ROOT: &str = "/apis/rbac.authorization.k8s.io/v1";
    let (plural, role) = (why::role_plural(&world.target), object::text(&world.target, "/roleRef/name"));
    let place = match plural {
        "roles" => format!("/namespaces/{}", object::namespace(&world.target)),
        _ => String::new(),
    };
    let mut wanted = vec![(plural, role.to_owned(), format!("{ROOT}{place}/{plural}/{}", segment(role)))];
    wanted.extend(why::accounts(&world.target).take(NAMED).map(|(namespace, name)| {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}", segment(namespace), segment(name));
        (why::ACCOUNTS, format!("{namespace}/{name}"), path)
    }));
    let asked = wanted.into_iter().map(|(plural, name, path)| async move { (plural, name, cluster.get(&path).await) });
    for (plural, name, found) in join_all(asked).await {
        world.note(plural, &name, presence(found));
    }
}

/// The names of its keys; values stay where they are. A certificate is shown to everybody anyway.
pub(crate) fn content(item: &Value) -> Content {
    let maps = ["/data", "/binaryData"].into_iter().flat_map(|pointer| object::map(item, pointer).keys());
    let decoded = |text: &str| serde_json::from_slice::<Value>(&STANDARD.decode(text).ok()?).ok();
    let registries = match object::text(item, "/type") {
        "kubernetes.io/dockerconfigjson" => {
            decoded(object::text(item, "/data/.dockerconfigjson")).map(|config| config["auths"].clone())
        }
        "kubernetes.io/dockercfg" => decoded(object::text(item, "/data/.dockercfg")),
        _ => None,
    };
    let shown = item.pointer("/data/tls.crt").and_then(Value::as_str);
    let certificate = match shown.map(|shown| STANDARD.decode(shown).unwrap_or_default()) {
        None => Serving::Unseen,
        Some(pem) => ferry_x509::Certificate::first_of_pem(&pem).map_or(Serving::Unreadable, Serving::Read),
    };
    Content {
        certificate,
        keys: maps.cloned().collect(),
        kind: object::text(item, "/type").to_owned(),
        registries: registries
            .as_ref()
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|map| map.keys().cloned())
            .collect(),
    }
}

/// Set in a Service whose endpoints could not be listed.
pub(crate) const UNLISTED: &str = "unlisted";

/// The Services that webhooks and APIServices call, or that an ExternalName means, with their endpoints.
pub(crate) async fn add_behind(cluster: &Cluster, world: &mut World) {
    let is_webhook = known_kind(&world.target).ends_with("WebhookConfiguration");
    let configurations = [VALIDATING, MUTATING].into_iter().flat_map(|list| world.all(list));
    let configurations = configurations.chain(Some(&world.target).filter(|_| is_webhook));
    let mut services: BTreeSet<(String, String)> = configurations
        .flat_map(|item| object::items(item, "/webhooks"))
        .filter_map(|hook| hook.pointer("/clientConfig/service"))
        .map(|service| (object::text(service, "/namespace").to_owned(), object::text(service, "/name").to_owned()))
        .collect();
    let called = match known_kind(&world.target) {
        "APIService" => world.target.pointer("/spec/service"),
        "CustomResourceDefinition" => world.target.pointer("/spec/conversion/webhook/clientConfig/service"),
        _ => None,
    };
    if let Some(service) = called {
        services.insert((object::text(service, "/namespace").to_owned(), object::text(service, "/name").to_owned()));
    }
    if let Some((namespace, name)) =
        why::service_meant(&world.target).filter(|_| known_kind(&world.target) == "Service")
    {
        services.insert((namespace.to_owned(), name.to_owned()));
    }
    if services.is_empty() {
        return;
    }
    let asked = services.into_iter().take(NAMED).map(|(namespace, name)| async move {
        let (place, one) = (segment(&namespace), segment(&name));
        let path = format!("/api/v1/namespaces/{place}/services/{one}");
        let slices = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{place}/endpointslices?labelSelector=kubernetes.io/service-name%3D{one}"
        );
        let (service, slices) = futures::join!(cluster.get(&path), cluster.list(&slices));
        let found = match service {
            Ok(Some(service)) => Some(service),
            Ok(None) => Some(json!({ "absent": true, "metadata": { "name": name, "namespace": namespace } })),
            Err(_) => None,
        };
        (found, slices)
    });
    let (mut services, mut slices) = (Vec::new(), Vec::new());
    for (service, more) in join_all(asked).await {
        let mut service = service;
        match more {
            Ok(more) => slices.extend(more),
            // Who may not list them does not know whether one is ready.
            Err(error) => {
                if let Some(map) = service.as_mut().and_then(Value::as_object_mut) {
                    map.insert(UNLISTED.into(), true.into());
                }
                world.could_not_read(BEHIND_SLICES, &error);
            }
        }
        services.extend(service);
    }
    world.put(BEHIND, services);
    world.put(BEHIND_SLICES, slices);
}

/// What is left in a namespace, or belongs to an owner, while it is being deleted. Only what is held itself or owned.
pub(crate) async fn add_remaining(cluster: &Cluster, world: &mut World, namespace: &str) {
    let kind = known_kind(&world.target).to_owned();
    let name = object::name(&world.target).to_owned();
    let resources: Vec<Resource> = match &*kind {
        "CustomResourceDefinition" => {
            let spec = &world.target["spec"];
            let version = object::items(spec, "/versions").first().map(|version| object::text(version, "/name"));
            let mut resource = Resource::new(
                object::text(spec, "/group"),
                version.unwrap_or_default(),
                object::text(spec, "/names/plural"),
                object::text(spec, "/names/kind"),
            );
            resource.namespaced = false;
            vec![resource]
        }
        _ => match cluster.groups().await {
            Ok(groups) => resolve::all_namespaced(&groups),
            Err(error) => {
                world.could_not_read(REMAINING, &error);
                return;
            }
        },
    };
    let place = if kind == "Namespace" { name.as_str() } else { namespace };
    let asked = resources.iter().map(|resource| async move {
        let path = format!("{}?limit=500", resource.path(place));
        (resource, cluster.metadata(&path).await)
    });
    let (uid, mut found) = (object::uid(&world.target).to_owned(), Vec::new());
    let mut unread: Vec<String> = Vec::new();
    for (resource, items) in join_all(asked).await {
        let items = match items {
            Ok(items) => items,
            Err(error) if error.is_absent() => continue,
            Err(error) => {
                unread.push(match error {
                    Error::Refused { code: 403, .. } => format!("{}, which you may not list", resource.plural),
                    error => error.to_string(),
                });
                continue;
            }
        };
        for mut item in items {
            let owned = !uid.is_empty() && !object::items(&item, "/metadata/ownerReferences").is_empty();
            let held = object::finalizers(&item).next().is_some();
            let keep = match &*kind {
                "Namespace" => held || object::is_being_deleted(&item),
                "CustomResourceDefinition" => true,
                _ => owned,
            };
            if keep && let Some(map) = item.as_object_mut() {
                map.insert("kind".into(), resource.kind.clone().into());
                map.insert("resource".into(), resource.title().into());
                found.push(item);
            }
        }
    }
    if !matches!(&*kind, "Namespace" | "CustomResourceDefinition") {
        found = below(&uid, found);
    }
    // What was found is there; that nothing else is, only who has seen everything can say.
    if unread.is_empty() || !found.is_empty() {
        world.put(REMAINING, found);
    }
    if let Some(first) = unread.first() {
        let more = if unread.len() > 1 { format!(" and {} more", unread.len() - 1) } else { String::new() };
        world.unseen.push(format!("{first}{more}"));
    }
}

/// What belongs to an owner, and what belongs to that, and so on: the nearest first.
fn below(owner: &str, mut all: Vec<Value>) -> Vec<Value> {
    let mut owners = BTreeSet::from([owner.to_owned()]);
    let mut found = Vec::new();
    loop {
        let is_of = |item: &Value| {
            object::items(item, "/metadata/ownerReferences")
                .iter()
                .any(|one| owners.contains(object::text(one, "/uid")))
        };
        let (next, rest): (Vec<Value>, Vec<Value>) = all.into_iter().partition(is_of);
        if next.is_empty() {
            return found;
        }
        owners.extend(next.iter().map(|item| object::uid(item).to_owned()));
        found.extend(next);
        all = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_an_owner_is_followed_down() {
        let item = |uid: &str, owner: &str| json!({ "metadata": { "uid": uid, "name": uid, "ownerReferences": [{ "uid": owner }] } });
        let all = vec![item("pod", "set"), item("other", "x"), item("set", "top"), item("self", "self")];
        let found = below("top", all);
        assert_eq!(found.iter().map(object::uid).collect::<Vec<_>>(), ["set", "pod"]);
    }

    #[test]
    fn values_of_secrets_are_not_kept() {
        let auths = STANDARD.encode(r#"{"auths":{"r.example.com":{"auth":"c2VjcmV0"}}}"#);
        let secret = json!({ "type": "kubernetes.io/dockerconfigjson", "data": { ".dockerconfigjson": auths } });
        let seen = content(&secret);
        assert_eq!(seen.registries, ["r.example.com"]);
        assert_eq!(seen.keys, [".dockerconfigjson"]);
        assert!(!format!("{seen:?}").contains("c2VjcmV0"));
        assert_eq!(content(&json!({ "data": { "a": "1" }, "binaryData": { "b": "2" } })).keys, ["a", "b"]);
    }

    #[test]
    fn what_cannot_be_decoded_names_no_registry() {
        let secret = json!({ "type": "kubernetes.io/dockerconfigjson", "data": { ".dockerconfigjson": "!" } });
        assert_eq!(content(&secret).registries, Vec::<String>::new());
    }
}

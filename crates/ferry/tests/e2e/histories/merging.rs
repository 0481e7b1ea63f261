//! Patches of one object through all servers at once: each adds a key of its own, and none takes away another's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use rand::rngs::StdRng;
use serde_json::json;

use super::{DEADLINE, World, insist};

/// Apart from the objects whose histories are told.
const NAMESPACE: &str = "kube-public";

/// By object, the keys that were acknowledged.
#[derive(Default)]
pub struct Merged(Mutex<BTreeMap<String, BTreeSet<String>>>);

/// Adds a key; whoever finds no object makes it.
pub async fn add(world: &World, random: &mut StdRng, round: usize, number: u64) {
    let api: Api<ConfigMap> = Api::namespaced(world.some_client(random).await, NAMESPACE);
    let (name, key) = (format!("merged{round}"), format!("k{number}"));
    let data = json!({ &key: "here" });
    let patch = Patch::Merge(json!({ "data": data }));
    let parameters = PatchParams::default();
    let done = match tokio::time::timeout(DEADLINE, api.patch(&name, &parameters, &patch)).await {
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            let made = serde_json::from_value(json!({ "metadata": { "name": name }, "data": data })).unwrap();
            matches!(tokio::time::timeout(DEADLINE, api.create(&PostParams::default(), &made)).await, Ok(Ok(_)))
        }
        outcome => matches!(outcome, Ok(Ok(_))),
    };
    if done {
        world.merged.0.lock().unwrap().entry(name).or_default().insert(key);
    }
}

/// What was acknowledged is there.
pub async fn check(world: &World, random: &mut StdRng) {
    let acknowledged = std::mem::take(&mut *world.merged.0.lock().unwrap());
    for (name, keys) in &acknowledged {
        let api: Api<ConfigMap> = Api::namespaced(world.some_client(random).await, NAMESPACE);
        let there = insist(|| async { api.get(name).await }).await.data.unwrap_or_default();
        let lost: Vec<_> = keys.iter().filter(|key| !there.contains_key(*key)).collect();
        assert!(lost.is_empty(), "{name} has lost {lost:?} of {keys:?}");
    }
    println!("    {} patches, none lost", acknowledged.values().map(BTreeSet::len).sum::<usize>());
}

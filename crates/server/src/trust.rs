//! The ConfigMap `extension-apiserver-authentication`: what servers behind this one know clients and front proxies by.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferry_client::{Api, Informer, Selection};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::server_options::Authorities;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const PAUSE: Duration = Duration::from_secs(5);

type Data = BTreeMap<String, String>;

/// What is to be there: our own say, joined with that of other API servers on the same store.
fn wanted(own: &Data, have: &Data) -> Data {
    let mut data = have.clone();
    for (key, value) in own {
        let before = have.get(key).map(String::as_str).unwrap_or_default();
        let joined = if key.ends_with("-ca-file") { join_bundles(before, value) } else { join_lists(before, value) };
        data.insert(key.clone(), joined);
    }
    data
}

const END: &str = "-----END CERTIFICATE-----";

/// The certificates of both, each once.
fn join_bundles(one: &str, two: &str) -> String {
    let mut certificates: Vec<String> = Vec::new();
    for part in one.split_inclusive(END).chain(two.split_inclusive(END)) {
        let Some(start) = part.find("-----BEGIN CERTIFICATE-----").filter(|_| part.ends_with(END)) else { continue };
        let certificate = part[start..].to_owned();
        if !certificates.contains(&certificate) {
            certificates.push(certificate);
        }
    }
    certificates.iter().map(|certificate| format!("{certificate}\n")).collect()
}

fn join_lists(one: &str, two: &str) -> String {
    let read = |text: &str| serde_json::from_str::<Vec<String>>(text).unwrap_or_default();
    let mut names = read(one);
    for name in read(two) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    json!(names).to_string()
}

async fn write(maps: &Api<ConfigMap>, data: &Data) -> Result<(), kube::Error> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME, "namespace": NAMESPACE }, "data": data,
    });
    maps.patch(NAME, &PatchParams::apply("kube-apiserver").force(), &Patch::Apply(&map)).await.map(|_| ())
}

/// Writes it now, and whenever an authority changes or somebody takes something out of it.
pub async fn publish(client: Client, authorities: Arc<Authorities>, tasks: &Tasks) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let there = maps.get_opt(NAME).await?.and_then(|map| map.data).unwrap_or_default();
    write(&maps, &wanted(&authorities.published(), &there)).await?;

    let only = Selection::fields(format!("metadata.name={NAME}"));
    let informer: Informer<ConfigMap> = Informer::over(maps.clone(), tasks, only);
    let (mut changes, mut renewed) = (informer.subscribe(), authorities.changes());
    tasks.spawn_critical_once("client trust", async move {
        informer.synced().await;
        loop {
            let have = informer.get(NAMESPACE, NAME).and_then(|map| map.data.clone()).unwrap_or_default();
            let data = wanted(&authorities.published(), &have);
            if data != have
                && let Err(error) = write(&maps, &data).await
            {
                tracing::warn!("{NAME} cannot be written: {}", ferry_client::write::short(&error));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            tokio::select! {
                _ = changes.next() => {}
                _ = renewed.changed() => {}
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_say_it_together() {
        let certificate = |name: &str| format!("-----BEGIN CERTIFICATE-----\n{name}\n{END}\n");
        let own = |ca: &str, names: &str| {
            let entries =
                [("requestheader-client-ca-file", certificate(ca)), ("requestheader-allowed-names", names.to_owned())];
            entries.map(|(key, value)| (key.to_owned(), value)).into_iter().collect::<Data>()
        };
        let (one, two) = (own("a", r#"["x"]"#), own("b", r#"["x","y"]"#));
        let first = wanted(&one, &Data::new());
        assert_eq!(first, one);
        let both = wanted(&two, &first);
        assert_eq!(both["requestheader-client-ca-file"], certificate("a") + &certificate("b"));
        assert_eq!(both["requestheader-allowed-names"], r#"["x","y"]"#);
        // It comes to rest.
        assert_eq!(wanted(&one, &both), both);
        assert_eq!(wanted(&two, &both), both);
    }
}

//! What the server serves: two documents that tell of all groups at once, kept on disk for six hours.

mod cache;
mod mapper;

pub use cache::folder;
pub use mapper::Mapper;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::{Call, Client};
use crate::error::{Error, Result};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub subresources: Vec<String>,
    /// The first version of its group that has it.
    pub preferred: bool,
}

impl Resource {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `deployments.apps`.
    pub fn qualified(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// `deployment.apps`, as in messages about one object.
    pub fn kind_name(&self) -> String {
        qualified(&self.kind.to_lowercase(), &self.group)
    }

    fn root(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// Where its objects are; no namespace means all of them.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        match namespace.filter(|name| self.namespaced && !name.is_empty()) {
            Some(namespace) => {
                format!("{}/namespaces/{}/{}", self.root(), crate::client::escaped(namespace), self.plural)
            }
            None => format!("{}/{}", self.root(), self.plural),
        }
    }

    pub fn object(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}", self.collection(namespace), crate::client::escaped(name))
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

pub fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Discovered {
    pub resources: Vec<Resource>,
    /// `apps/v1`, in the order of the server.
    pub versions: Vec<String>,
    /// Groups whose server does not answer.
    pub stale: Vec<String>,
}

/// Asks the server.
pub async fn ask(client: &Client) -> Result<Discovered> {
    let fetch = |path: &'static str| client.json(Call::get(path).accept(AGGREGATED).unheard());
    let (core, groups) = futures::join!(fetch("/api"), fetch("/apis"));
    let mut found = Discovered::default();
    let mut first = None;
    for document in [core, groups] {
        match document {
            Ok(document) if document["kind"] == "APIGroupDiscoveryList" => collect(&mut found, &document),
            Ok(document) => one_by_one(client, &document, &mut found).await?,
            Err(error) => first = first.or(Some(error)),
        }
    }
    match first {
        Some(error) if found.resources.is_empty() => Err(error),
        _ => Ok(found),
    }
}

fn collect(found: &mut Discovered, document: &Value) {
    for group in items(&document["items"]) {
        let name = text(&group["metadata"]["name"]);
        let mut known: Vec<String> = Vec::new();
        for version in items(&group["versions"]) {
            let version_name = text(&version["version"]);
            let api_version = if name.is_empty() { version_name.clone() } else { format!("{name}/{version_name}") };
            if version["freshness"] == "Stale" {
                found.stale.push(api_version.clone());
            }
            found.versions.push(api_version);
            for resource in items(&version["resources"]) {
                let plural = text(&resource["resource"]);
                let preferred = !known.contains(&plural);
                if preferred {
                    known.push(plural.clone());
                }
                found.resources.push(Resource {
                    group: name.clone(),
                    version: version_name.clone(),
                    kind: text(&resource["responseKind"]["kind"]),
                    singular: text(&resource["singularResource"]),
                    namespaced: resource["scope"] == "Namespaced",
                    verbs: texts(&resource["verbs"]),
                    short_names: texts(&resource["shortNames"]),
                    categories: texts(&resource["categories"]),
                    subresources: items(&resource["subresources"])
                        .iter()
                        .map(|sub| text(&sub["subresource"]))
                        .collect(),
                    plural,
                    preferred,
                });
            }
        }
    }
}

/// A server that knows no aggregated discovery.
async fn one_by_one(client: &Client, document: &Value, found: &mut Discovered) -> Result<()> {
    let mut wanted: Vec<(String, String)> = Vec::new();
    for version in texts(&document["versions"]) {
        wanted.push((String::new(), version));
    }
    for group in items(&document["groups"]) {
        for version in items(&group["versions"]) {
            wanted.push((text(&group["name"]), text(&version["version"])));
        }
    }
    let mut known: Vec<(String, String)> = Vec::new();
    for (group, version) in wanted {
        let api_version = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
        let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{api_version}") };
        found.versions.push(api_version.clone());
        let list = match client.json(Call::get(path)).await {
            Ok(list) => list,
            Err(error @ Error::Connection { .. }) => return Err(error),
            Err(_) => {
                found.stale.push(api_version);
                continue;
            }
        };
        let (subresources, whole): (Vec<&Value>, Vec<&Value>) =
            items(&list["resources"]).iter().partition(|entry| text(&entry["name"]).contains('/'));
        for resource in whole {
            let plural = text(&resource["name"]);
            let preferred = !known.contains(&(group.clone(), plural.clone()));
            known.push((group.clone(), plural.clone()));
            let prefix = format!("{plural}/");
            let below = subresources.iter().filter_map(|sub| sub["name"].as_str()?.strip_prefix(&prefix));
            found.resources.push(Resource {
                group: group.clone(),
                version: version.clone(),
                kind: text(&resource["kind"]),
                singular: text(&resource["singularName"]),
                namespaced: resource["namespaced"] == Value::Bool(true),
                verbs: texts(&resource["verbs"]),
                short_names: texts(&resource["shortNames"]),
                categories: texts(&resource["categories"]),
                subresources: below.map(str::to_owned).collect(),
                plural,
                preferred,
            });
        }
    }
    Ok(())
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(list: &Value) -> Vec<String> {
    items(list).iter().map(text).collect()
}

//! What the server serves: every resource once, in its preferred version.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::api::ApiResource;
use serde_json::Value;

/// A resource (never a subresource) and what can be done with it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerResource {
    pub resource: ApiResource,
    pub namespaced: bool,
    pub verbs: Vec<String>,
}

impl ServerResource {
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

/// All resources; `failed` names the group versions that did not answer, as `group/version: why`.
#[derive(Clone, Debug, Default)]
pub struct ServerResources {
    pub resources: Vec<ServerResource>,
    pub failed: Vec<String>,
}

/// A kind as one version serves it, and the names of its resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerKind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
}

/// Every resource in every version, from the two documents that tell of all groups at once.
pub async fn kinds(client: &Client) -> Result<Vec<ServerKind>, kube::Error> {
    let mut found = Vec::new();
    for path in ["/api", "/apis"] {
        let request = http::Request::get(path)
            .header(http::header::ACCEPT, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        let document: Value = client.request(request).await?;
        for group in items(&document["items"]) {
            for version in items(&group["versions"]) {
                found.extend(items(&version["resources"]).iter().map(|resource| ServerKind {
                    group: text(&group["metadata"]["name"]),
                    version: text(&version["version"]),
                    kind: text(&resource["responseKind"]["kind"]),
                    plural: text(&resource["resource"]),
                    singular: text(&resource["singularResource"]),
                }));
            }
        }
    }
    Ok(found)
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Asks the server. An aggregated API that is down costs its own resources only.
pub async fn resources(client: &Client) -> Result<ServerResources, kube::Error> {
    let mut found = ServerResources::default();
    let mut known = HashSet::new();
    for version in client.list_core_api_versions().await?.versions {
        let list = client.list_core_api_resources(&version).await?;
        collect(&mut found.resources, &mut known, list, "", &version);
    }
    for group in client.list_api_groups().await?.groups {
        let preferred = group.preferred_version.as_ref().map(|version| version.version.clone());
        let mut versions: Vec<String> = group.versions.iter().map(|version| version.version.clone()).collect();
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        for version in versions {
            let api_version = format!("{}/{version}", group.name);
            match client.list_api_group_resources(&api_version).await {
                Ok(list) => collect(&mut found.resources, &mut known, list, &group.name, &version),
                Err(error) => found.failed.push(format!("{api_version}: {}", crate::write::short(&error))),
            }
        }
    }
    Ok(found)
}

fn collect(
    found: &mut Vec<ServerResource>,
    known: &mut HashSet<(String, String)>,
    list: APIResourceList,
    group: &str,
    version: &str,
) {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    for resource in list.resources {
        // A slash marks a subresource.
        if resource.name.contains('/') || !known.insert((group.to_owned(), resource.name.clone())) {
            continue;
        }
        found.push(ServerResource {
            resource: ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                api_version: api_version.clone(),
                kind: resource.kind,
                plural: resource.name,
            },
            namespaced: resource.namespaced,
            verbs: resource.verbs,
        });
    }
}

//! Which resource is behind a kind, as the server serves it now.

use std::collections::HashMap;
use std::time::Duration;

use ferry_client::write;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::Client;
use kube::api::ApiResource;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long an answer is believed.
const FRESH: Duration = Duration::from_secs(30);

pub(super) struct Mapping {
    client: Client,
    known: Mutex<HashMap<(String, String), (Instant, ApiResource)>>,
}

/// Both parts of an API version.
pub(super) fn group_version(text: &str) -> Result<(&str, &str), String> {
    match text.split_once('/') {
        None => Ok(("", text)),
        Some((_, rest)) if rest.contains('/') => Err(format!("unexpected GroupVersion string: {text}")),
        Some(both) => Ok(both),
    }
}

impl Mapping {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// In the version that the server prefers: what objects say of versions may be outdated.
    pub(super) async fn resource(&self, group: &str, kind: &str) -> Result<ApiResource, String> {
        let key = (group.to_owned(), kind.to_owned());
        let now = Instant::now();
        {
            let mut known = self.known.lock();
            known.retain(|_, (at, _)| now.saturating_duration_since(*at) < FRESH);
            if let Some((_, resource)) = known.get(&key) {
                return Ok(resource.clone());
            }
        }
        let found = self.find(group, kind).await.map_err(|error| write::short(&error))?;
        let resource = found.ok_or_else(|| format!("no matches for kind {kind:?} in group {group:?}"))?;
        self.known.lock().insert(key, (now, resource.clone()));
        Ok(resource)
    }

    async fn find(&self, group: &str, kind: &str) -> Result<Option<ApiResource>, kube::Error> {
        for version in self.versions(group).await? {
            let api_version = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
            let list = if group.is_empty() {
                self.client.list_core_api_resources(&version).await?
            } else {
                self.client.list_api_group_resources(&api_version).await?
            };
            let found = list.resources.into_iter().find(|one| one.kind == kind && !one.name.contains('/'));
            if let Some(found) = found {
                let (group, kind) = (group.to_owned(), kind.to_owned());
                return Ok(Some(ApiResource { group, version, api_version, kind, plural: found.name }));
            }
        }
        Ok(None)
    }

    /// Of a group, the preferred one first.
    async fn versions(&self, group: &str) -> Result<Vec<String>, kube::Error> {
        if group.is_empty() {
            return Ok(vec!["v1".into()]);
        }
        let request = http::Request::get(format!("/apis/{group}")).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let found: APIGroup = match self.client.request(request).await {
            Err(error) if write::is_not_found(&error) => return Ok(Vec::new()),
            other => other?,
        };
        let preferred = found.preferred_version.map(|version| version.version);
        let mut versions: Vec<String> = found.versions.into_iter().map(|version| version.version).collect();
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_have_two_parts_at_most() {
        assert_eq!(group_version("v1"), Ok(("", "v1")));
        assert_eq!(group_version("apps/v1"), Ok(("apps", "v1")));
        assert_eq!(group_version(""), Ok(("", "")));
        assert_eq!(group_version("a/b/c"), Err("unexpected GroupVersion string: a/b/c".into()));
    }
}

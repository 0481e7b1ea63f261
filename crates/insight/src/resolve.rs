//! Names of resources as people type them: plural, singular, kind, short name, with or without group and version.

use ferry_meta::object;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub namespaced: bool,
}

impl Resource {
    pub(crate) fn new(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced: true,
        }
    }

    /// The path of the collection.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let root = match &*self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match self.namespaced && !namespace.is_empty() {
            true => format!("{root}/namespaces/{}/{}", segment(namespace), self.plural),
            false => format!("{root}/{}", self.plural),
        }
    }

    pub(crate) fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.path(namespace), segment(name))
    }

    /// `deployment.apps`, as kubectl prints it.
    pub fn title(&self) -> String {
        let kind = self.kind.to_lowercase();
        if self.group.is_empty() { kind } else { format!("{kind}.{}", self.group) }
    }
}

/// A name as one part of a path, whatever is in it.
pub(crate) fn segment(name: &str) -> String {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte);
    name.bytes().map(|byte| if keeps(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Looks a name up in the groups of aggregated discovery. Earlier groups win, as they do with kubectl.
pub(crate) fn find(groups: &[Value], wanted: &str) -> Option<Resource> {
    let wanted = wanted.to_lowercase();
    let mut parts = wanted.splitn(3, '.');
    let first = parts.next().unwrap_or_default();
    let (second, rest) = (parts.next(), parts.next());
    // `pods`, `deployments.apps`, `crontabs.stable.example.com`, `deployments.v1.apps`.
    let whole_group = second.map(|second| rest.map_or(second.to_owned(), |rest| format!("{second}.{rest}")));
    let fits_group = |group: &str| match &whole_group {
        None => true,
        Some(whole) => group == whole,
    };
    let mut by_short_name = None;
    for group in groups {
        let group_name = object::name(group);
        for version in object::items(group, "/versions") {
            let version_name = object::text(version, "/version");
            let named_version = second == Some(version_name) && rest.unwrap_or_default() == group_name;
            if !named_version && !fits_group(group_name) {
                continue;
            }
            for resource in object::items(version, "/resources") {
                let found = || Resource {
                    group: group_name.to_owned(),
                    version: version_name.to_owned(),
                    plural: object::text(resource, "/resource").to_owned(),
                    kind: object::text(resource, "/responseKind/kind").to_owned(),
                    namespaced: object::text(resource, "/scope") == "Namespaced",
                };
                let names = ["/resource", "/singularResource", "/responseKind/kind"];
                if names.iter().any(|name| object::text(resource, name).eq_ignore_ascii_case(first)) {
                    return Some(found());
                }
                let short = object::items(resource, "/shortNames").iter().any(|name| name.as_str() == Some(first));
                if short && by_short_name.is_none() {
                    by_short_name = Some(found());
                }
            }
        }
    }
    by_short_name
}

/// Every kind that stands in namespaces and can be listed and deleted, each in its preferred version.
pub(crate) fn all_namespaced(groups: &[Value]) -> Vec<Resource> {
    let mut found: Vec<Resource> = Vec::new();
    for group in groups {
        for version in object::items(group, "/versions") {
            for resource in object::items(version, "/resources") {
                let can =
                    |verb: &str| object::items(resource, "/verbs").iter().any(|known| known.as_str() == Some(verb));
                let plural = object::text(resource, "/resource");
                let known = found.iter().any(|other| other.plural == plural && other.group == object::name(group));
                if object::text(resource, "/scope") == "Namespaced" && can("list") && can("delete") && !known {
                    found.push(Resource::new(
                        object::name(group),
                        object::text(version, "/version"),
                        plural,
                        object::text(resource, "/responseKind/kind"),
                    ));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn groups() -> Vec<Value> {
        let resource = |plural: &str, singular: &str, kind: &str, short: &[&str], scope: &str| {
            json!({
                "resource": plural, "singularResource": singular, "responseKind": { "kind": kind },
                "shortNames": short, "scope": scope,
            })
        };
        vec![
            json!({ "metadata": {}, "versions": [{ "version": "v1", "resources": [
                resource("pods", "pod", "Pod", &["po"], "Namespaced"),
                resource("nodes", "node", "Node", &["no"], "Cluster"),
            ] }] }),
            json!({ "metadata": { "name": "apps" }, "versions": [{ "version": "v1", "resources": [
                resource("deployments", "deployment", "Deployment", &["deploy"], "Namespaced"),
            ] }] }),
            json!({ "metadata": { "name": "stable.example.com" }, "versions": [
                { "version": "v2", "resources": [resource("pods", "pod", "Pod", &["po", "ct"], "Namespaced")] },
                { "version": "v1", "resources": [resource("pods", "pod", "Pod", &["ct"], "Namespaced")] },
            ] }),
        ]
    }

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(segment("system:node-1.example"), "system:node-1.example");
        assert_eq!(segment("web?watch=1"), "web%3Fwatch%3D1");
        assert_eq!(segment("../x#é"), "..%2Fx%23%C3%A9");
    }

    #[test]
    fn names_are_read_as_kubectl_reads_them() {
        for (name, want) in [
            ("po", "/api/v1/namespaces/n/pods"),
            ("Pod", "/api/v1/namespaces/n/pods"),
            ("pods", "/api/v1/namespaces/n/pods"),
            ("no", "/api/v1/nodes"),
            ("deploy", "/apis/apps/v1/namespaces/n/deployments"),
            ("deployment.apps", "/apis/apps/v1/namespaces/n/deployments"),
            ("deployments.v1.apps", "/apis/apps/v1/namespaces/n/deployments"),
            ("pods.stable.example.com", "/apis/stable.example.com/v2/namespaces/n/pods"),
            ("pods.v1.stable.example.com", "/apis/stable.example.com/v1/namespaces/n/pods"),
            ("ct", "/apis/stable.example.com/v2/namespaces/n/pods"),
            ("deployment.v2.apps", ""),
            ("nothing", ""),
        ] {
            let found = find(&groups(), name).map(|resource| resource.path("n"));
            assert_eq!(found.unwrap_or_default(), want, "{name}");
        }
    }
}

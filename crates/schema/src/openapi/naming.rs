//! What operations are called: tags, identifiers, descriptions.

use super::Operation;

/// What stands below a name in a path: `status`, `proxy`.
fn subresource(path: &str) -> Option<&str> {
    path.split_once("/{name}/").map(|(_, rest)| rest.split('/').next().unwrap_or_default())
}

/// ` a `, ` an `, or a space where a noun is plural.
fn article(noun: &str) -> &'static str {
    if noun.ends_with('s') && !noun.ends_with("ss") {
        return " ";
    }
    let vowel = noun.starts_with(|first: char| "aeiouAEIOU".contains(first));
    if vowel { " an " } else { " a " }
}

pub(super) fn describe(operation: &Operation) -> String {
    let kind = &operation.kind.kind;
    let action = &*operation.action;
    if let Some(below) = subresource(&operation.path) {
        let of = &operation.parent;
        return match action {
            "get" => format!("read {below} of the specified {of}"),
            "post" => format!("create {below} of{}{of}", article(of)),
            "put" => format!("replace {below} of the specified {of}"),
            "patch" => format!("partially update {below} of the specified {of}"),
            _ => format!("connect {} requests to {below} of {of}", operation.method.to_uppercase()),
        };
    }
    let old = "deprecated: use the 'watch' parameter with a list operation instead";
    match action {
        "list" if operation.watched && !operation.custom => format!("list or watch objects of kind {kind}"),
        "list" => format!("list objects of kind {kind}"),
        "get" => format!("read the specified {kind}"),
        "post" => format!("create{}{kind}", article(kind)),
        "put" => format!("replace the specified {kind}"),
        "patch" => format!("partially update the specified {kind}"),
        "delete" => format!("delete{}{kind}", article(kind)),
        "deletecollection" => format!("delete collection of {kind}"),
        "watch" => format!(
            "watch changes to an object of kind {kind}. {old}, filtered to a single item with the 'fieldSelector' parameter."
        ),
        "watchlist" => format!("watch individual changes to a list of {kind}. {old}."),
        other => format!("{other} {} requests to {kind}", operation.method.to_uppercase()),
    }
}

fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().collect::<String>() + chars.as_str())
}

/// `rbac.authorization.k8s.io` → `RbacAuthorization`.
pub(super) fn group_words(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    group.trim_end_matches(".k8s.io").split(['.', '-']).map(upper).collect()
}

/// `core_v1`, `apps`: the tag of a group, with its version where there is one.
pub(super) fn tag(group: &str, version: &str) -> String {
    let group = lower(&group_words(group));
    if version.is_empty() { group } else { format!("{group}_{version}") }
}

/// The group and version that serve a path, which need not be those of the kind.
pub(super) fn served_by(path: &str) -> (&str, &str) {
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match segments.as_slice() {
        ["api", version, ..] => ("", version),
        ["apis", group, version, ..] => (group, version),
        _ => ("", ""),
    }
}

/// `patchAppsV1NamespacedDeploymentStatus`.
pub(super) fn identifier(operation: &Operation) -> String {
    let (group, version) = served_by(&operation.path);
    let (verb, many) = match &*operation.action {
        "get" => ("read".to_owned(), ""),
        "post" => ("create".to_owned(), ""),
        "put" => ("replace".to_owned(), ""),
        "deletecollection" => ("delete".to_owned(), "Collection"),
        "watchlist" => ("watch".to_owned(), ""),
        other => (other.to_owned(), ""),
    };
    let method = if operation.action == "connect" { upper(&operation.method) } else { String::new() };
    let namespaced = if operation.path.contains("{namespace}") { "Namespaced" } else { "" };
    let mut suffix = subresource(&operation.path).map(upper).unwrap_or_default();
    if operation.path.ends_with("{path}") {
        suffix += "WithPath";
    }
    let list = if operation.action == "watchlist" { "List" } else { "" };
    let everywhere = if operation.everywhere { "ForAllNamespaces" } else { "" };
    let kind = &operation.parent;
    let words = group_words(group);
    let version = upper(version);
    format!("{verb}{words}{version}{method}{many}{namespaced}{kind}{suffix}{list}{everywhere}")
}

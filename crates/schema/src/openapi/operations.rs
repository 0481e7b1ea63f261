//! Operations on paths: parameters, bodies and answers.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::Operation;
use crate::catalogue::META;
use ferry_meta::GroupVersionKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

/// (name, type, description) of query parameters.
type Query = (&'static str, &'static str, &'static str);

const DRY_RUN: Query = (
    "dryRun",
    "string",
    "When present, indicates that modifications should not be persisted. An invalid or unrecognized dryRun directive will \
     result in an error response and no further processing of the request. Valid values are: - All: all dry run stages \
     will be processed",
);
const FIELD_MANAGER: Query = (
    "fieldManager",
    "string",
    "fieldManager is a name associated with the actor or entity that is making these changes. The value must be less than \
     or 128 characters long, and only contain printable characters, as defined by \
     https://golang.org/pkg/unicode/#IsPrint.",
);
const PATCH_MANAGER: Query = (
    "fieldManager",
    "string",
    "fieldManager is a name associated with the actor or entity that is making these changes. The value must be less than \
     or 128 characters long, and only contain printable characters, as defined by \
     https://golang.org/pkg/unicode/#IsPrint. This field is required for apply requests (application/apply-patch) but \
     optional for non-apply patch types (JsonPatch, MergePatch, StrategicMergePatch).",
);
const FIELD_VALIDATION: Query = (
    "fieldValidation",
    "string",
    "fieldValidation instructs the server on how to handle objects in the request (POST/PUT/PATCH) containing unknown or \
     duplicate fields. Valid values are: - Ignore: This will ignore any unknown fields that are silently dropped from the \
     object, and will ignore all but the last duplicate field that the decoder encounters. This is the default behavior \
     prior to v1.23. - Warn: This will send a warning via the standard warning response header for each unknown field that \
     is dropped from the object, and for each duplicate field that is encountered. The request will still succeed if there \
     are no other errors, and will only persist the last of any duplicate fields. This is the default in v1.23+ - Strict: \
     This will fail the request with a BadRequest error if any unknown fields would be dropped from the object, or if any \
     duplicate fields are present. The error returned from the server will contain all unknown and duplicate fields \
     encountered.",
);
const FORCE: Query = (
    "force",
    "boolean",
    "Force is going to \"force\" Apply requests. It means user will re-acquire conflicting fields owned by other people. \
     Force flag must be unset for non-apply patch requests.",
);
/// Query parameters of lists and deletions, in alphabetical order as upstream sorts them.
static PARAMETERS: LazyLock<Vec<(&'static str, Query)>> = LazyLock::new(|| {
    let parse = |line: &'static str| {
        let mut cells = line.splitn(4, '\t');
        let (of, name, kind, text) = (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
        // The texts have line breaks, and live as long as the process.
        let text: &'static str = Box::leak(text.replace("\\n", "\n").into_boxed_str());
        Some((of, (name, kind, text)))
    };
    include_str!("parameters.tsv").lines().skip(1).filter_map(parse).collect()
});

fn parameters_of(of: &str) -> Vec<Query> {
    PARAMETERS.iter().filter(|(known, _)| *known == of).map(|(_, query)| *query).collect()
}

fn query(action: &str) -> Vec<Query> {
    match action {
        "list" | "watch" | "watchlist" => parameters_of("list"),
        "post" | "put" => vec![DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION],
        "patch" => vec![DRY_RUN, PATCH_MANAGER, FIELD_VALIDATION, FORCE],
        "delete" => std::iter::once(DRY_RUN).chain(parameters_of("delete")).collect(),
        "deletecollection" => {
            let watching = ["allowWatchBookmarks", "watch"];
            let list = parameters_of("list").into_iter().filter(|(name, _, _)| !watching.contains(name));
            let mut all: Vec<Query> = std::iter::once(DRY_RUN).chain(parameters_of("delete")).chain(list).collect();
            all.sort_by_key(|(name, _, _)| *name);
            all
        }
        _ => Vec::new(),
    }
}

/// `{name}`, `{namespace}` and `{path}` of a path whose objects are of this kind.
pub(super) fn path_parameters(operation: &Operation, dialect: Dialect) -> Vec<Value> {
    let mut parameters = Vec::new();
    let named = format!("name of the {}", parent_kind(operation));
    for (name, description) in [
        ("name", &*named),
        ("namespace", "object name and auth scope, such as for teams and projects"),
        ("path", "path to the resource"),
    ] {
        if operation.path.contains(&format!("{{{name}}}")) {
            parameters.push(parameter(name, "path", "string", description, dialect));
        }
    }
    if !parameters.is_empty() {
        parameters.push(parameter(
            "pretty",
            "query",
            "string",
            "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or \
             command-line HTTP tool (curl and wget).",
            dialect,
        ));
    }
    parameters
}

fn parameter(name: &str, place: &str, kind: &str, description: &str, dialect: Dialect) -> Value {
    let mut parameter = json!({"name": name, "in": place, "description": description});
    if place == "path" {
        parameter["required"] = true.into();
    }
    match dialect {
        Dialect::V2 => {
            parameter["type"] = kind.into();
            parameter["uniqueItems"] = true.into();
        }
        Dialect::V3 => parameter["schema"] = json!({"type": kind, "uniqueItems": true}),
    }
    parameter
}

fn reference(name: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => json!({"$ref": format!("#/definitions/{name}")}),
        Dialect::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
    }
}

fn type_name(kind: &GroupVersionKind) -> Option<String> {
    crate::builtin().kind(kind).map(|ty| ty.name().to_owned()).or_else(|| super::custom::type_name(kind))
}

const ANSWERS: [&str; 4] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];
const STREAMS: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

pub(super) fn operation(operation: &Operation, dialect: Dialect) -> Value {
    let kind = &operation.kind;
    let list = GroupVersionKind { kind: format!("{}List", kind.kind), ..kind.clone() };
    let answer = match &*operation.action {
        "list" => type_name(&list),
        "watch" | "watchlist" => Some(format!("{META}.WatchEvent")),
        "delete" | "deletecollection" => Some(format!("{META}.Status")),
        "connect" => None,
        _ => type_name(kind),
    };
    let body = match &*operation.action {
        "post" | "put" => type_name(kind),
        "patch" => Some(format!("{META}.Patch")),
        "delete" | "deletecollection" => Some(format!("{META}.DeleteOptions")),
        _ => None,
    };
    // Custom resources know neither protobuf nor strategic merges; clients choose their patches by what is listed here.
    let custom = is_custom(&operation.path);
    let mut types: Vec<&str> = if custom { ANSWERS[..2].to_vec() } else { ANSWERS.to_vec() };
    if !custom && matches!(&*operation.action, "list" | "watch" | "watchlist") {
        types.extend(STREAMS);
    }
    let parameters: Vec<Value> =
        query(&operation.action).into_iter().map(|(n, t, d)| parameter(n, "query", t, d, dialect)).collect();
    let mut out = json!({
        "tags": [tag(kind, &operation.path)],
        "description": describe(operation),
        "operationId": identifier(operation),
        "responses": responses(operation, answer.as_deref(), &types, dialect),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    });
    if !parameters.is_empty() {
        out["parameters"] = parameters.into();
    }
    let consumes: &[&str] = match (&*operation.action, custom) {
        ("patch", false) => &PATCHES,
        ("patch", true) => {
            &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]
        }
        (_, true) => &["application/json", "application/yaml"],
        _ => &["*/*"],
    };
    match (dialect, body) {
        (Dialect::V2, body) => {
            out["consumes"] = json!(consumes);
            out["produces"] = json!(types);
            out["schemes"] = json!(["https"]);
            if let Some(body) = body {
                let required = !operation.action.starts_with("delete");
                let mut parameter = json!({"name": "body", "in": "body", "schema": reference(&body, dialect)});
                if required {
                    parameter["required"] = true.into();
                }
                match out.get_mut("parameters").and_then(Value::as_array_mut) {
                    Some(list) => list.insert(0, parameter),
                    None => out["parameters"] = json!([parameter]),
                }
            }
        }
        (Dialect::V3, Some(body)) => {
            let content: serde_json::Map<String, Value> = consumes
                .iter()
                .map(|media| ((*media).to_owned(), json!({"schema": reference(&body, dialect)})))
                .collect();
            out["requestBody"] = json!({"content": content});
            if !operation.action.starts_with("delete") {
                out["requestBody"]["required"] = true.into();
            }
        }
        (Dialect::V3, None) => {}
    }
    out
}

/// Whether a path belongs to a group that no built-in kind is of.
fn is_custom(path: &str) -> bool {
    let group = path.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
    group.is_some_and(|group| !crate::builtin().kinds().any(|known| known.group == group))
}

fn responses(operation: &Operation, answer: Option<&str>, types: &[&str], dialect: Dialect) -> Value {
    let response = |description: &str| {
        let mut response = json!({"description": description});
        match (dialect, answer) {
            (Dialect::V2, Some(name)) => response["schema"] = reference(name, dialect),
            (Dialect::V2, None) => response["schema"] = json!({"type": "string"}),
            (Dialect::V3, answer) => {
                let schema = answer.map_or_else(|| json!({"type": "string"}), |name| reference(name, dialect));
                let types: &[&str] = if answer.is_some() { types } else { &["*/*"] };
                let content: serde_json::Map<String, Value> =
                    types.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
                response["content"] = content.into();
            }
        }
        response
    };
    let mut responses = json!({"200": response("OK"), "401": {"description": "Unauthorized"}});
    match &*operation.action {
        "post" => {
            responses["201"] = response("Created");
            responses["202"] = response("Accepted");
        }
        // Nobody is told that applying to a custom resource may create it.
        "patch" if is_custom(&operation.path) => {}
        "put" | "patch" => responses["201"] = response("Created"),
        "delete" => responses["202"] = response("Accepted"),
        _ => {}
    }
    responses
}

fn describe(operation: &Operation) -> String {
    let kind = &operation.kind.kind;
    let below = operation.path.split_once("/{name}/").map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    if let Some(below) = below {
        let of = parent_kind(operation);
        return match &*operation.action {
            "get" => format!("read {below} of the specified {of}"),
            "post" => format!("create {below} of a {of}"),
            "put" => format!("replace {below} of the specified {of}"),
            "patch" => format!("partially update {below} of the specified {of}"),
            _ => format!("connect {} requests to {below} of {of}", operation.method.to_uppercase()),
        };
    }
    match &*operation.action {
        "list" => format!("list or watch objects of kind {kind}"),
        "get" => format!("read the specified {kind}"),
        "post" => format!("create a {kind}"),
        "put" => format!("replace the specified {kind}"),
        "patch" => format!("partially update the specified {kind}"),
        "delete" => format!("delete a {kind}"),
        "deletecollection" => format!("delete collection of {kind}"),
        "watch" => format!("watch changes to an object of kind {kind}"),
        "watchlist" => format!("watch individual changes to a list of {kind}"),
        other => format!("{other} {} requests to {kind}", operation.method.to_uppercase()),
    }
}

fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

/// `rbac.authorization.k8s.io` → `RbacAuthorization`.
fn group_words(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    group.trim_end_matches(".k8s.io").split(['.', '-']).map(upper).collect()
}

/// The group and version that serve a path, which need not be those of the kind.
fn served_by(path: &str) -> (String, String) {
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match segments.as_slice() {
        ["api", version, ..] => (String::new(), (*version).to_owned()),
        ["apis", group, version, ..] => ((*group).to_owned(), (*version).to_owned()),
        _ => (String::new(), String::new()),
    }
}

fn tag(_kind: &GroupVersionKind, path: &str) -> String {
    let (group, version) = served_by(path);
    let group = group_words(&group);
    let mut chars = group.chars();
    let group =
        chars.next().map_or_else(String::new, |first| first.to_lowercase().collect::<String>() + chars.as_str());
    format!("{group}_{version}")
}

/// `patchAppsV1NamespacedDeploymentStatus`.
fn identifier(operation: &Operation) -> String {
    let (group, version) = served_by(&operation.path);
    let verb = match &*operation.action {
        "get" => "read".to_owned(),
        "post" => "create".to_owned(),
        "put" => "replace".to_owned(),
        "deletecollection" => "deleteCollection".to_owned(),
        "watchlist" => "watch".to_owned(),
        "connect" => format!("connect{}", upper(&operation.method)),
        other => other.to_owned(),
    };
    let namespaced = if operation.path.contains("{namespace}") { "Namespaced" } else { "" };
    let mut suffix = String::new();
    let mut behind_name = false;
    for segment in operation.path.split('/') {
        if behind_name && !segment.starts_with('{') {
            suffix += &upper(segment);
        }
        if segment == "{path}" {
            suffix += "WithPath";
        }
        behind_name |= segment == "{name}";
    }
    let list = if operation.action == "watchlist" { "List" } else { "" };
    let everywhere = namespaced.is_empty()
        && matches!(&*operation.action, "list" | "watchlist")
        && match crate::builtin().kind(&operation.kind) {
            Some(_) => is_namespaced_path(operation),
            None => operation.everywhere,
        };
    let everywhere = if everywhere { "ForAllNamespaces" } else { "" };
    // Subresources of another kind (eviction, scale) are named after their parent's path.
    let kind = if suffix.is_empty() { operation.kind.kind.clone() } else { parent_kind(operation) };
    format!("{verb}{}{}{namespaced}{kind}{suffix}{list}{everywhere}", group_words(&group), upper(&version))
}

fn parent_kind(operation: &Operation) -> String {
    if !operation.path.contains("/{name}/") {
        return operation.kind.kind.clone();
    }
    let plural =
        operation.path.split("/{name}").next().and_then(|before| before.rsplit('/').next()).unwrap_or_default();
    // Where the parent's kind is the operation's own, its spelling is known.
    let own = &operation.kind.kind;
    if own.to_lowercase().starts_with(plural.trim_end_matches('s')) && !own.ends_with("Options") {
        return own.clone();
    }
    let singular =
        plural.strip_suffix("ies").map_or_else(|| plural.trim_end_matches('s').to_owned(), |p| format!("{p}y"));
    let catalogue = crate::builtin();
    let (group, version) = served_by(&operation.path);
    let found = catalogue
        .kinds()
        .find(|kind| kind.group == group && kind.version == version && kind.kind.to_lowercase() == singular);
    found.map_or_else(|| upper(&singular), |kind| kind.kind.clone())
}

/// A list of a namespaced kind across namespaces: its metadata has a namespace, which cannot be told from the type; the
/// kinds that have none are few and known by their path having no sibling under `namespaces`.
fn is_namespaced_path(operation: &Operation) -> bool {
    const CLUSTER_WIDE: [&str; 5] =
        ["Namespace", "Node", "PersistentVolume", "ComponentStatus", "CustomResourceDefinition"];
    let kind = &*operation.kind.kind;
    !CLUSTER_WIDE.contains(&kind)
        && !kind.starts_with("Cluster")
        && !kind.contains("Class")
        && !kind.contains("Configuration")
        && !kind.contains("AdmissionPolicy")
        && !matches!(
            kind,
            "APIService"
                | "CSIDriver"
                | "CSINode"
                | "CertificateSigningRequest"
                | "DeviceTaintRule"
                | "FlowSchema"
                | "IPAddress"
                | "ResourceSlice"
                | "ServiceCIDR"
                | "StorageVersion"
                | "StorageVersionMigration"
                | "VolumeAttachment"
        )
}

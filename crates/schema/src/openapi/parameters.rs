//! Parameters of operations: those in the path, those in the query, and those that all operations on a path share.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::Operation;
use super::operations::Dialect;

/// A parameter in a path or a query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    name: &'static str,
    place: &'static str,
    kind: &'static str,
    description: String,
}

impl Parameter {
    pub(super) fn value(&self, dialect: Dialect) -> Value {
        let mut parameter = json!({"name": self.name, "in": self.place, "description": self.description});
        if self.place == "path" {
            parameter["required"] = true.into();
        }
        match dialect {
            Dialect::V2 => {
                parameter["type"] = self.kind.into();
                parameter["uniqueItems"] = true.into();
            }
            Dialect::V3 => parameter["schema"] = json!({"type": self.kind, "uniqueItems": true}),
        }
        parameter
    }
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
const PRETTY: Query = (
    "pretty",
    "string",
    "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or \
     command-line HTTP tool (curl and wget).",
);

/// Query parameters by what they belong to: lists, deletions, the log of a pod, a kind of options.
static QUERIES: LazyLock<Vec<(&'static str, Query)>> = LazyLock::new(|| {
    let parse = |line: &'static str| {
        let mut cells = line.splitn(4, '\t');
        let (of, name, kind, text) = (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
        // The texts have line breaks, and live as long as the process.
        let text: &'static str = Box::leak(text.replace("\\n", "\n").into_boxed_str());
        Some((of, (name, kind, text)))
    };
    include_str!("parameters.tsv").lines().skip(1).filter_map(parse).collect()
});

fn queries_of(of: &str) -> Vec<Query> {
    QUERIES.iter().filter(|(known, _)| *known == of).map(|(_, query)| *query).collect()
}

fn query(operation: &Operation) -> Vec<Query> {
    let action = &*operation.action;
    let mut all = match action {
        "list" | "watch" | "watchlist" => queries_of("list"),
        "get" if operation.path.ends_with("/log") => queries_of("log"),
        // Custom resources tell of one more when they are read, and of none that is special to deleting many.
        "get" if operation.custom => {
            queries_of("list").into_iter().filter(|(name, _, _)| *name == "resourceVersion").collect()
        }
        "deletecollection" if operation.custom => queries_of("list"),
        "post" | "put" => vec![DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION],
        "patch" => vec![DRY_RUN, PATCH_MANAGER, FIELD_VALIDATION, FORCE],
        "delete" => std::iter::once(DRY_RUN).chain(queries_of("delete")).collect(),
        "deletecollection" => {
            let watching = ["allowWatchBookmarks", "watch"];
            let list = queries_of("list").into_iter().filter(|(name, _, _)| !watching.contains(name));
            std::iter::once(DRY_RUN).chain(queries_of("delete")).chain(list).collect()
        }
        "connect" => queries_of(&operation.kind.kind),
        _ => Vec::new(),
    };
    if action != "connect" {
        all.push(PRETTY);
    }
    all
}

/// Everything an operation takes besides its body, in the order of the names.
pub(super) fn of(operation: &Operation) -> Vec<Parameter> {
    let in_path = |name: &'static str, description: String| {
        let there = operation.path.contains(&format!("{{{name}}}"));
        there.then_some(Parameter { name, place: "path", kind: "string", description })
    };
    let scope = "object name and auth scope, such as for teams and projects";
    let mut all: Vec<Parameter> = [
        in_path("name", format!("name of the {}", operation.kind.kind)),
        in_path("namespace", scope.to_owned()),
        in_path("path", "path to the resource".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect();
    all.extend(query(operation).into_iter().map(|(name, kind, text)| {
        let description = text.to_owned();
        Parameter { name, place: "query", kind, description }
    }));
    all.sort();
    all
}

/// The parameters that all operations on a path have.
pub(super) fn common(on_path: &[&Operation]) -> Vec<Parameter> {
    let mut lists = on_path.iter().map(|operation| of(operation));
    let mut common = lists.next().unwrap_or_default();
    for list in lists {
        common.retain(|parameter| list.iter().any(|other| same(other, parameter)));
    }
    common
}

/// Whether they are one parameter: told by where it is and what it is called.
pub(super) fn same(left: &Parameter, right: &Parameter) -> bool {
    (left.name, left.place) == (right.name, right.place)
}

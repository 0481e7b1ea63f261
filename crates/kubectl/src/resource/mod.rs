//! Which objects a command line means: types and names, selectors, files.

mod builder;
pub mod files;

pub use builder::{Builder, MISSING, Selection, Target, tuple};

use serde_json::Value;

use crate::client::{Call, query};
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::session::Context;

/// One object: of the server, or of a file.
#[derive(Clone, Debug)]
pub struct Info {
    pub resource: Resource,
    pub namespace: Option<String>,
    pub name: String,
    pub object: Value,
    /// The file it stands in; empty for one of the server.
    pub source: String,
}

impl Info {
    pub fn path(&self) -> String {
        self.resource.object(self.namespace.as_deref(), &self.name)
    }

    pub fn collection(&self) -> String {
        self.resource.collection(self.namespace.as_deref())
    }

    /// `deployment.apps/web`.
    pub fn shown(&self) -> String {
        format!("{}/{}", self.resource.kind_name(), self.name)
    }
}

/// One object of the server, by name.
pub async fn get(context: &Context, resource: &Resource, namespace: Option<&str>, name: &str) -> Result<Value> {
    match context.client().await?.json(Call::get(resource.object(namespace, name))).await {
        Err(error) => Err(missing(context, namespace, error).await),
        found => found,
    }
}

/// Where an object is not there, perhaps its namespace is not: then that is what is said.
pub async fn missing(context: &Context, namespace: Option<&str>, error: Error) -> Error {
    let Some(namespace) = namespace.filter(|name| !name.is_empty() && *name != "default" && error.is_not_found())
    else {
        return error;
    };
    let Ok(client) = context.client().await else { return error };
    match client.json(Call::get(format!("/api/v1/namespaces/{namespace}"))).await {
        Err(other) if other.is_not_found() => other,
        _ => error,
    }
}

/// All objects that a selection means, chunk by chunk.
pub async fn list(context: &Context, selection: &Selection, limit: i64) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    let mut pages = Pages::new(selection, limit, "");
    while let Some(mut page) = pages.next(context, crate::client::JSON).await? {
        let kind = page["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
        let api_version = page["apiVersion"].clone();
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            found.extend(items.into_iter().map(|mut item| {
                name_kind(&mut item, &kind, &api_version);
                item
            }));
        }
    }
    Ok(found)
}

/// Items of a list do not say what they are.
pub fn name_kind(item: &mut Value, kind: &str, api_version: &Value) {
    if let Some(map) = item.as_object_mut() {
        map.entry("kind").or_insert_with(|| kind.into());
        map.entry("apiVersion").or_insert_with(|| api_version.clone());
    }
}

/// A list in chunks.
pub struct Pages<'a> {
    selection: &'a Selection,
    limit: i64,
    include: &'a str,
    next: Option<String>,
}

impl<'a> Pages<'a> {
    pub fn new(selection: &'a Selection, limit: i64, include: &'a str) -> Self {
        Self { selection, limit, include, next: Some(String::new()) }
    }

    pub async fn next(&mut self, context: &Context, accept: &str) -> Result<Option<Value>> {
        let Some(token) = self.next.take() else { return Ok(None) };
        let selection = self.selection;
        let limit = if self.limit > 0 { self.limit.to_string() } else { String::new() };
        let path = query(
            &selection.resource.collection(selection.namespace.as_deref()),
            &[
                ("labelSelector", &selection.labels),
                ("fieldSelector", &selection.fields),
                ("includeObject", self.include),
                ("limit", &limit),
                ("continue", &token),
            ],
        );
        let page =
            context.client().await?.json(Call::get(path).accept(accept)).await.map_err(|e| explained(e, selection))?;
        let token = page["metadata"]["continue"].as_str().unwrap_or_default();
        if !token.is_empty() {
            self.next = Some(token.to_owned());
        }
        Ok(Some(page))
    }
}

/// Which list it was that the server does not have or does not understand.
fn explained(error: Error, selection: &Selection) -> Error {
    let Error::Status(mut status) = error else { return error };
    if matches!(status["reason"].as_str(), Some("BadRequest" | "NotFound")) {
        use crate::text::quote;
        let r = &selection.resource;
        let subject = quote(&format!("{}/{}, Resource={}", r.group, r.version, r.plural));
        let said = status["message"].as_str().unwrap_or_default();
        status["message"] = match (&*selection.labels, &*selection.fields) {
            ("", "") => format!("Unable to list {subject}: {said}"),
            (labels, fields) => format!(
                "Unable to find {subject} that match label selector {}, field selector {}: {said}",
                quote(labels),
                quote(fields)
            ),
        }
        .into();
    }
    Error::Status(status)
}

/// Reads what targets name: one error does not keep the others from being read where the command goes on.
pub async fn read_all(context: &Context, targets: &[Target], chunk: i64) -> (Vec<Info>, Vec<Error>) {
    let (mut infos, mut errors) = (Vec::new(), Vec::new());
    for target in targets {
        match target {
            Target::Many(selection) => match list(context, selection, chunk).await {
                Ok(items) => infos.extend(items.into_iter().map(|object| of_object(&selection.resource, object))),
                Err(error) => errors.push(error),
            },
            Target::One { resource, namespace, name } => {
                match get(context, resource, namespace.as_deref(), name).await {
                    Ok(object) => infos.push(of_object(resource, object)),
                    Err(error) => errors.push(error),
                }
            }
            Target::File(info) => infos.push(info.clone()),
        }
    }
    (infos, errors)
}

/// All of them, or the first error.
pub async fn read(context: &Context, targets: &[Target]) -> Result<Vec<Info>> {
    let (infos, errors) = read_all(context, targets, 500).await;
    Error::all(errors)?;
    Ok(infos)
}

pub fn of_object(resource: &Resource, object: Value) -> Info {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let namespace = resource.namespaced.then(|| text("namespace"));
    Info { resource: resource.clone(), namespace, name: text("name"), source: String::new(), object }
}

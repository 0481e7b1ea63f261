//! Which objects a command line means: types and names, selectors, files.

mod builder;
pub mod files;
mod pages;

pub use builder::{Builder, MISSING, Selection, Target, tuple};
pub use pages::Pages;

use serde_json::Value;

use crate::client::Call;
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
    while let Some(items) = pages.items(context).await? {
        for item in items {
            found.push(item?);
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

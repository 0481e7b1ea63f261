//! Lists of the server, part by part.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Selection, name_kind};
use crate::client::{Call, JSON, TABLE, query};
use crate::error::{Error, Result};
use crate::lean;
use crate::session::Context;

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

    async fn ask(&mut self, context: &Context, accept: &str) -> Result<Option<bytes::Bytes>> {
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
        let client = context.client().await?;
        let body = client.bytes(Call::get(path).accept(accept)).await.map_err(|e| explained(e, selection))?;
        Ok(Some(body))
    }

    fn go_on(&mut self, metadata: &Value) {
        let token = metadata["continue"].as_str().unwrap_or_default();
        self.next = (!token.is_empty()).then(|| token.to_owned());
    }

    /// The next part of the list as it is. Nobody shows the managed fields of a table's rows: they are not kept.
    pub async fn next(&mut self, context: &Context, accept: &str) -> Result<Option<Value>> {
        let Some(body) = self.ask(context, accept).await? else { return Ok(None) };
        let page = match accept == TABLE && self.include.is_empty() {
            true => lean::from_slice(&body),
            false => serde_json::from_slice(&body),
        };
        let page: Value = page.map_err(|error| unread(&body, &error))?;
        self.go_on(&page["metadata"]);
        Ok(Some(page))
    }

    /// The objects of the next part, each of them made when it is asked for: a tree takes many times the room of its text.
    pub async fn items(&mut self, context: &Context) -> Result<Option<impl Iterator<Item = Result<Value>>>> {
        let Some(body) = self.ask(context, JSON).await? else { return Ok(None) };
        let page: Page = serde_json::from_slice(&body).map_err(|error| unread(&body, &error))?;
        self.go_on(&page.metadata);
        let kind = page.kind.trim_end_matches("List").to_owned();
        let api_version = page.api_version;
        Ok(Some(page.items.unwrap_or_default().into_iter().map(move |item| {
            let mut item = serde_json::from_str(item.get()).map_err(|error| unread(item.get().as_bytes(), &error))?;
            name_kind(&mut item, &kind, &api_version);
            Ok(item)
        })))
    }
}

/// A part of a list whose items are text yet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: Value,
    #[serde(default)]
    metadata: Value,
    items: Option<Vec<Box<RawValue>>>,
}

fn unread(body: &[u8], error: &serde_json::Error) -> Error {
    Error::say(crate::refusal::unread(body, error))
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

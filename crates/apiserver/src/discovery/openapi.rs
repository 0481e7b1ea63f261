//! `/openapi/v2` and `/openapi/v3`: made from the table on demand, kept packed until the table changes.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use ferry_meta::{ApiError, GroupVersion, GroupVersionKind};
use ferry_registry::{Resource, ResourceTable};
use ferry_schema::openapi::{self, CustomKind, Operation};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use http::header::{CONTENT_TYPE, ETAG, HeaderValue, LOCATION, VARY};
use http::{Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use crate::discovery::hex;
use crate::nonresource::tagged_response;
use crate::request::context::RequestContext;
use crate::request::verb::Subresource;
use crate::response::answer::{Answer, full};
use crate::server::Core;

/// A document and its hash.
type Document = (Bytes, String);

/// A document as it is kept: all of them are twelve megabytes of text, which few clients read, and seldom.
struct Packed {
    bytes: Box<[u8]>,
    hash: String,
}

impl Packed {
    fn new((text, hash): &Document) -> std::io::Result<Self> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text)?;
        Ok(Self { bytes: encoder.finish()?.into(), hash: hash.clone() })
    }

    fn document(&self) -> std::io::Result<Document> {
        let mut text = Vec::new();
        DeflateDecoder::new(&*self.bytes).read_to_end(&mut text)?;
        Ok((text.into(), self.hash.clone()))
    }
}

/// The documents of one table, by name.
type Made = (Arc<ResourceTable>, BTreeMap<String, Arc<Packed>>);

#[derive(Default)]
pub(crate) struct Documents {
    made: Mutex<Option<Made>>,
}

impl Documents {
    fn kept(&self, table: &Arc<ResourceTable>, name: &str) -> Option<Arc<Packed>> {
        let made = self.made.lock();
        let (_, documents) = made.as_ref().filter(|(of, _)| Arc::ptr_eq(of, table))?;
        documents.get(name).cloned()
    }

    /// The document under a name, made by `make` for this table where it is not there yet.
    fn get(&self, table: &Arc<ResourceTable>, name: &str, make: impl FnOnce() -> Vec<u8>) -> Document {
        if let Some(Ok(document)) = self.kept(table, name).map(|packed| packed.document()) {
            return document;
        }
        // Made outside of the lock: two at once do the work twice and agree.
        let text = make();
        let hash = hex(&Sha512::digest(&text)).to_uppercase();
        let document: Document = (text.into(), hash);
        let Ok(packed) = Packed::new(&document) else { return document };
        let mut made = self.made.lock();
        if !made.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, table)) {
            *made = Some((table.clone(), BTreeMap::new()));
        }
        if let Some((_, documents)) = &mut *made {
            documents.insert(name.to_owned(), Arc::new(packed));
        }
        document
    }
}

pub(crate) async fn handle(core: &Arc<Core>, context: &RequestContext, rest: &[&str]) -> Result<Answer, ApiError> {
    let name = match rest {
        ["v2"] => "v2".to_owned(),
        ["v3"] => String::new(),
        ["v3", rest @ ..] => rest.join("/"),
        _ => return Ok(Answer::no_such_page()),
    };
    let Some(form) = Form::wanted(context.header("accept"), &name) else {
        let mut nothing = Response::new(full(""));
        *nothing.status_mut() = StatusCode::NOT_ACCEPTABLE;
        return Ok(Answer::Ready(nothing));
    };
    if let Some((body, hash)) = remote_document(core, &name) {
        return Ok(tagged_response(context, "application/json", body, &format!("\"{hash}\""), "no-cache, private"));
    }
    let table = core.table();
    if rest.len() > 1 && !names(&table).contains(&name) {
        let mut nothing = Response::new(full(""));
        *nothing.status_mut() = StatusCode::NOT_FOUND;
        return Ok(Answer::Ready(nothing));
    }
    // Descriptions of every type are put together: too long for a worker that others wait for.
    let server = core.clone();
    let wanted = name.clone();
    let made = tokio::task::spawn_blocking(move || document(&server, &table, &wanted, form)).await;
    let (mut body, hash) = made.map_err(ApiError::internal)?;
    if name.is_empty() {
        body = with_remote(core, body);
    }
    let asked = context.query.text("hash");
    if !asked.is_empty() && asked != hash && !name.is_empty() {
        return Ok(moved(&format!("/openapi/v3/{name}?hash={hash}"), form.media_type(&name), &format!("\"{hash}\"")));
    }
    let cache = if asked.is_empty() { "no-cache, private" } else { "public, immutable" };
    Ok(tagged_response(context, form.media_type(&name), body, &format!("\"{hash}\""), cache))
}

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Protobuf,
}

impl Form {
    /// What is asked for first, of what is offered; the list of v3 documents is JSON alone.
    fn wanted(accept: &str, name: &str) -> Option<Self> {
        let protobuf = if name == "v2" { "spec.v2" } else { "spec.v3" };
        // The list of documents is written whatever is accepted.
        if accept.trim().is_empty() || name.is_empty() {
            return Some(Self::Json);
        }
        accept.split(',').find_map(|clause| match clause.split(';').next().unwrap_or_default().trim() {
            "application/json" | "application/*" | "*/*" => Some(Self::Json),
            // The sign between name and version is no letter of media types, so that both spellings are about.
            media => {
                let rest = media.strip_prefix("application/com.github.proto-openapi.")?.strip_prefix(protobuf)?;
                ["@v1.0+protobuf", ".v1.0+protobuf"].contains(&rest).then_some(Self::Protobuf)
            }
        })
    }

    fn media_type(self, name: &str) -> &'static str {
        match (self, name) {
            // Upstream leaves it to be guessed from the text.
            (Self::Json, "") => "text/plain; charset=utf-8",
            (Self::Json, _) => "application/json",
            (Self::Protobuf, "v2") => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
            (Self::Protobuf, _) => "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
        }
    }
}

/// The document of a group version that another server answers.
fn remote_document(core: &Core, name: &str) -> Option<Document> {
    let remotes = core.aggregation.remotes();
    let (group, version) = name.strip_prefix("apis/")?.split_once('/')?;
    remotes.iter().find(|r| r.group == group && r.version == version)?.openapi.clone()
}

/// The list of documents with those of other servers.
fn with_remote(core: &Core, index: Bytes) -> Bytes {
    let remotes = core.aggregation.remotes();
    if remotes.is_empty() {
        return index;
    }
    let mut list: Value = serde_json::from_slice(&index).unwrap_or_default();
    for remote in remotes.iter() {
        let Some((_, hash)) = &remote.openapi else { continue };
        let name = format!("apis/{}/{}", remote.group, remote.version);
        list["paths"][&name] = json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash={hash}")});
    }
    list.to_string().into()
}

fn moved(to: &str, media_type: &str, tag: &str) -> Answer {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    for (name, text) in [(LOCATION, to), (CONTENT_TYPE, media_type), (ETAG, tag), (VARY, "Accept")] {
        if let Ok(value) = HeaderValue::from_str(text) {
            response.headers_mut().insert(name, value);
        }
    }
    Answer::Ready(response)
}

fn document(core: &Core, table: &Arc<ResourceTable>, name: &str, form: Form) -> Document {
    match form {
        Form::Json => core.openapi.get(table, name, || make(core, table, name).to_string().into_bytes()),
        Form::Protobuf => {
            // The hash is the document's, in whatever form it is read.
            let (json, hash) = document(core, table, name, Form::Json);
            let (body, _) = core.openapi.get(table, &format!("{name} as protobuf"), || {
                let document: Value = serde_json::from_slice(&json).unwrap_or_default();
                if name == "v2" { openapi::protobuf::v2(&document) } else { openapi::protobuf::v3(&document) }
            });
            (body, hash)
        }
    }
}

fn make(core: &Core, table: &Arc<ResourceTable>, name: &str) -> Value {
    match name {
        "" => {
            let paths: serde_json::Map<String, Value> = names(table)
                .into_iter()
                .map(|name| {
                    let (_, hash) = document(core, table, &name, Form::Json);
                    let url = format!("/openapi/v3/{name}?hash={hash}");
                    (name, json!({"serverRelativeURL": url}))
                })
                .collect();
            json!({"paths": paths})
        }
        "v2" => {
            let all: Vec<&Arc<Resource>> = table.rows().iter().collect();
            let customs = customs(&all);
            let mut names = names(table);
            // Nobody tells of the resources of custom groups here.
            names.retain(|name| !customs.iter().any(|custom| *name == format!("apis/{}", custom.kind.group_version())));
            openapi::v2(&names, &all.iter().flat_map(|row| operations(row)).collect::<Vec<_>>(), &customs)
        }
        name => {
            let rows: Vec<&Arc<Resource>> =
                table.rows().iter().filter(|row| root(row).trim_start_matches('/') == name).collect();
            let operations: Vec<Operation> = rows.iter().flat_map(|row| operations(row)).collect();
            let customs = customs(&rows);
            if customs.is_empty() { openapi::v3(name, &operations) } else { openapi::v3_custom(&operations, &customs) }
        }
    }
}

/// The kinds among these rows that definitions made.
fn customs<'a>(rows: &[&'a Arc<Resource>]) -> Vec<CustomKind<'a>> {
    rows.iter()
        .filter_map(|row| {
            let schema = row.strategy.published_schema()?;
            Some(CustomKind { kind: row.gvk.clone(), list_kind: &row.list_kind, plural: &row.plural, schema })
        })
        .collect()
}

/// `/api/v1`, `/apis/apps/v1`.
fn root(row: &Resource) -> String {
    let version: GroupVersion = row.gvk.group_version();
    if version.group.is_empty() { format!("/api/{version}") } else { format!("/apis/{version}") }
}

fn names(table: &ResourceTable) -> Vec<String> {
    let mut names: Vec<String> =
        ["version", "api", "apis", ".well-known/openid-configuration", "openid/v1/jwks"].map(String::from).into();
    for row in table.rows() {
        names.push(root(row).trim_start_matches('/').to_owned());
        // The groups of custom resources have no document of their own.
        if !row.gvk.group.is_empty() && row.strategy.published_schema().is_none() {
            names.push(format!("apis/{}", row.gvk.group));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The methods that a proxy passes on.
const PROXIED: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// Everything that can be asked of a row.
fn operations(row: &Resource) -> Vec<Operation> {
    let root = root(row);
    let custom = row.strategy.published_schema().is_some();
    let scope = if row.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{root}{scope}/{}", row.plural);
    let item = format!("{collection}/{{name}}");
    let everywhere = format!("{root}/{}", row.plural);
    let mut all = Vec::new();
    let mut add = |path: &str, method: &str, action: &str, body: &GroupVersionKind| {
        all.push(Operation {
            path: path.into(),
            method: method.into(),
            action: action.into(),
            kind: if custom { row.gvk.clone() } else { body.clone() },
            body: body.clone(),
            list_kind: row.list_kind.clone(),
            parent: row.gvk.kind.clone(),
            everywhere: row.namespaced && !path.contains("{namespace}"),
            custom,
            watched: row.verbs.iter().any(|verb| verb == "watch"),
            // Namespaces do, without saying so.
            returns_deleted: row.strategy.delete_returns_object() && row.gvk.kind != "Namespace",
        });
    };
    for verb in &row.verbs {
        match &**verb {
            "list" => {
                add(&collection, "get", "list", &row.gvk);
                if row.namespaced {
                    add(&everywhere, "get", "list", &row.gvk);
                }
            }
            "create" => add(&collection, "post", "post", &row.gvk),
            "deletecollection" => add(&collection, "delete", "deletecollection", &row.gvk),
            "get" => add(&item, "get", "get", &row.gvk),
            "update" => add(&item, "put", "put", &row.gvk),
            "patch" => add(&item, "patch", "patch", &row.gvk),
            "delete" => add(&item, "delete", "delete", &row.gvk),
            // The paths that watches had before the parameter.
            "watch" if !custom => {
                let watched = |path: &str| path.replacen(&root, &format!("{root}/watch"), 1);
                add(&watched(&collection), "get", "watchlist", &row.gvk);
                add(&watched(&item), "get", "watch", &row.gvk);
                if row.namespaced {
                    add(&watched(&everywhere), "get", "watchlist", &row.gvk);
                }
            }
            _ => {}
        }
    }
    for subresource in &row.subresources {
        let path = format!("{item}/{}", subresource.name);
        let connects =
            crate::request::route::is_stream(row, &Subresource::from(&*subresource.name)) && subresource.name != "log";
        if connects && subresource.name == "proxy" {
            for method in PROXIED {
                add(&path, method, "connect", &subresource.kind);
                add(&format!("{path}/{{path}}"), method, "connect", &subresource.kind);
            }
            continue;
        }
        for verb in &subresource.verbs {
            let method = match &**verb {
                "get" => "get",
                "create" => "post",
                "update" => "put",
                "patch" => "patch",
                "delete" => "delete",
                _ => continue,
            };
            let action = if connects { "connect" } else { method };
            add(&path, method, action, &subresource.kind);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_kept_packed_until_the_table_changes() {
        let documents = Documents::default();
        let table = Arc::new(ResourceTable::new(Vec::new()));
        let text = "{\"description\": \"what a field is for\"}, ".repeat(1000);
        let first = documents.get(&table, "v2", || text.clone().into_bytes());
        assert_eq!((&*first.0, first.1.len()), (text.as_bytes(), 128));
        assert_eq!(documents.get(&table, "v2", || panic!("it is there")), first);
        let kept = documents.kept(&table, "v2").expect("kept").bytes.len();
        assert!(kept < text.len() / 20, "{kept} of {}", text.len());
        let other = Arc::new(ResourceTable::new(Vec::new()));
        assert_eq!(documents.get(&other, "v2", || b"new".to_vec()).0, "new");
        assert!(documents.kept(&table, "v2").is_none());
    }
}

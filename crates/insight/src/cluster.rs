//! Reading from any API server, by path.

use ferry_meta::object;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Client;
use kube::core::WatchEvent;
use serde_json::Value;

use crate::resolve::{self, Resource};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing of that name, or no such resource.
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Usage(String),
    #[error("{path}: {message}")]
    Refused { path: String, code: u16, message: String },
    /// What was found does not tell whether the object is well.
    #[error("the API server did not answer everything that it was asked: {0}")]
    Cut(String),
    /// More than is kept of a list: what is there is not known as a whole.
    #[error("there are more than {0}")]
    TooMany(usize),
    #[error("the API server cannot be asked for {path}")]
    Api { path: String, source: Box<kube::Error> },
}

impl Error {
    fn new(path: &str, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                Self::Refused { path: path.to_owned(), code: status.code, message: status.message.clone() }
            }
            other => Self::Api { path: path.to_owned(), source: Box::new(other) },
        }
    }

    /// The server answers, and cannot do what is asked.
    pub(crate) fn is_of_server(&self) -> bool {
        matches!(self, Self::Refused { code: 500.., .. })
    }

    /// Nobody has answered: the server is gone, has too much to do, or cannot do what is asked.
    pub(crate) fn is_no_answer(&self) -> bool {
        matches!(self, Self::Api { .. } | Self::Refused { code: 429, .. }) || self.is_of_server()
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { code: 404..=406, .. })
    }
}

/// So many objects are asked for at once, and so many of one list are kept.
const PAGE: usize = 500;
const MOST: usize = 20_000;

/// Without what takes the most room and is not needed: a manifest that was applied, and which field was set by whom, where
/// no finalizer is to be followed to whoever set it.
fn slim(mut item: Value, kind: &str) -> Value {
    let held = object::is_being_deleted(&item) && object::finalizers(&item).next().is_some();
    if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) {
        if !held {
            metadata.remove("managedFields");
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    if let Some(item) = item.as_object_mut() {
        item.entry("kind").or_insert_with(|| kind.into());
    }
    item
}

/// The API server of a cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl Cluster {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Where objects are looked for when no namespace is named.
    pub fn default_namespace(&self) -> &str {
        self.client.default_namespace()
    }

    fn request(path: &str, accept: &str) -> Result<http::Request<Vec<u8>>, Error> {
        let request = http::Request::get(path).header("accept", accept).body(Vec::new());
        request.map_err(|error| Error::Usage(format!("{path}: {error}")))
    }

    pub(crate) async fn read(&self, path: &str, accept: &str) -> Result<Value, Error> {
        let request = Self::request(path, accept)?;
        self.client.request(request).await.map_err(|error| Error::new(path, error))
    }

    /// None: there is none.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>, Error> {
        match self.read(path, "application/json").await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The metadata of what a path lists.
    pub(crate) async fn metadata(&self, path: &str) -> Result<Vec<Value>, Error> {
        const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let mut list = self.read(path, METADATA).await?;
        Ok(match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        })
    }

    /// The items of a list, each with the kind that the list implies.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<Value>, Error> {
        self.pages(path, |items| if items.len() > MOST { Err(Error::TooMany(MOST)) } else { Ok(()) }).await
    }

    /// The same, page by page. After each, `keep` takes away what is not needed of all that was read so far.
    pub(crate) async fn pages(
        &self,
        path: &str,
        mut keep: impl FnMut(&mut Vec<Value>) -> Result<(), Error>,
    ) -> Result<Vec<Value>, Error> {
        let and = if path.contains('?') { '&' } else { '?' };
        let (mut found, mut next) = (Vec::new(), String::new());
        loop {
            let mut page = self.read(&format!("{path}{and}limit={PAGE}{next}"), "application/json").await?;
            let kind = object::text(&page, "/kind").trim_end_matches("List").to_owned();
            if let Value::Array(items) = page["items"].take() {
                found.extend(items.into_iter().map(|item| slim(item, &kind)));
            }
            keep(&mut found)?;
            match object::text(&page, "/metadata/continue") {
                "" => return Ok(found),
                token => next = format!("&continue={}", resolve::segment(token)),
            }
        }
    }

    pub(crate) async fn text(&self, path: &str) -> Result<String, Error> {
        let request = Self::request(path, "*/*")?;
        self.client.request_text(request).await.map_err(|error| Error::new(path, error))
    }

    /// One item per change of what the path lists; what is there already comes first.
    pub(crate) async fn changes(&self, path: &str) -> Result<BoxStream<'static, ()>, Error> {
        let request = Self::request(path, "application/json")?;
        let events = self.client.request_events::<Value>(request).await.map_err(|error| Error::new(path, error))?;
        let events = events.take_while(|event| std::future::ready(event.is_ok()));
        Ok(events.filter(|event| std::future::ready(!matches!(event, Ok(WatchEvent::Bookmark(_))))).map(drop).boxed())
    }

    /// The groups of aggregated discovery.
    pub(crate) async fn groups(&self) -> Result<Vec<Value>, Error> {
        const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let mut groups = Vec::new();
        for path in ["/api", "/apis"] {
            let mut found = self.read(path, AGGREGATED).await?;
            if let Value::Array(items) = found["items"].take() {
                groups.extend(items);
            }
        }
        Ok(groups)
    }

    /// `deploy/web`, or `deploy` and `web`, as kubectl reads them.
    pub async fn resolve(&self, kind: &str) -> Result<Resource, Error> {
        resolve::find(&self.groups().await?, kind)
            .ok_or_else(|| Error::NotFound(format!("the server doesn't have a resource type {kind:?}")))
    }
}

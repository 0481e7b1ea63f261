//! Typed access to one resource, with the method names of `kube::Api`.
//!
//! It differs in that nothing but the thinnest layer is generic: requests are sent and answers decoded by code that is
//! compiled once, in this crate.

use std::marker::PhantomData;

use bytes::Bytes;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::{Request, Status};
use kube::{Client, Error, Resource};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::codec::Wire;

type Built = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// The objects of one kind, in one namespace or in all.
pub struct Api<K> {
    client: Client,
    request: Request,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), request: Request::new(&self.request.url_path), kind: PhantomData }
    }
}

/// A page of a list.
#[derive(Clone, Debug, Default)]
pub struct List<K> {
    pub metadata: ListMeta,
    pub items: Vec<K>,
}

impl<K> IntoIterator for List<K> {
    type Item = K;
    type IntoIter = std::vec::IntoIter<K>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

impl<K: Resource> Api<K> {
    pub fn all(client: Client) -> Self
    where
        K::DynamicType: Default,
    {
        Self::all_with(client, &K::DynamicType::default())
    }

    pub fn all_with(client: Client, kind: &K::DynamicType) -> Self {
        Self { client, request: Request::new(K::url_path(kind, None)), kind: PhantomData }
    }

    pub fn namespaced(client: Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        let kind = K::DynamicType::default();
        Self { client, request: Request::new(K::url_path(&kind, Some(namespace))), kind: PhantomData }
    }

    pub fn namespaced_with(client: Client, namespace: &str, kind: &K::DynamicType) -> Self
    where
        K: Resource<Scope = kube::core::DynamicResourceScope>,
    {
        Self { client, request: Request::new(K::url_path(kind, Some(namespace))), kind: PhantomData }
    }
}

impl<K> Api<K> {
    pub fn into_client(self) -> Client {
        self.client
    }

    pub fn resource_url(&self) -> &str {
        &self.request.url_path
    }

    /// Sends a request whose answer is of no interest as long as it is not an error.
    async fn send(&self, request: Built) -> Result<(), Error> {
        exchange(&self.client, request.map_err(Error::BuildRequest)?).await.map(|_| ())
    }

    pub async fn delete(&self, name: &str, parameters: &DeleteParams) -> Result<(), Error> {
        self.send(self.request.delete(name, parameters)).await
    }

    pub async fn delete_collection(&self, parameters: &DeleteParams, selection: &ListParams) -> Result<(), Error> {
        self.send(self.request.delete_collection(parameters, selection)).await
    }

    pub async fn get_scale(&self, name: &str) -> Result<Scale, Error> {
        self.ask(self.request.get_subresource("scale", name)).await
    }

    pub async fn create_token_request(
        &self,
        name: &str,
        parameters: &PostParams,
        request: &TokenRequest,
    ) -> Result<TokenRequest, Error> {
        let body = request.encode().map_err(Error::SerdeError)?;
        self.ask(self.request.create_subresource("token", name, parameters, body)).await
    }

    async fn ask<T: Wire>(&self, request: Built) -> Result<T, Error> {
        let answer = exchange(&self.client, request.map_err(Error::BuildRequest)?).await?;
        T::decode(&answer).map_err(Error::SerdeError)
    }
}

impl<K: Wire> Api<K> {
    pub async fn get(&self, name: &str) -> Result<K, Error> {
        let parameters = GetParams::default();
        let request = if K::METADATA_ONLY {
            self.request.get_metadata(name, &parameters)
        } else {
            self.request.get(name, &parameters)
        };
        self.ask(request).await
    }

    pub async fn get_opt(&self, name: &str) -> Result<Option<K>, Error> {
        match self.get(name).await {
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            other => other.map(Some),
        }
    }

    pub async fn list(&self, selection: &ListParams) -> Result<List<K>, Error> {
        let request =
            if K::METADATA_ONLY { self.request.list_metadata(selection) } else { self.request.list(selection) };
        let answer = exchange(&self.client, request.map_err(Error::BuildRequest)?).await?;
        let page = page(&answer)?;
        let items = page.items.unwrap_or_default().into_iter().map(|item| K::decode(item.get().as_bytes()));
        Ok(List { metadata: page.metadata, items: items.collect::<Result<_, _>>().map_err(Error::SerdeError)? })
    }

    pub async fn create(&self, parameters: &PostParams, object: &K) -> Result<K, Error> {
        let body = object.encode().map_err(Error::SerdeError)?;
        self.ask(self.request.create(parameters, body)).await
    }

    pub async fn replace(&self, name: &str, parameters: &PostParams, object: &K) -> Result<K, Error> {
        let body = object.encode().map_err(Error::SerdeError)?;
        self.ask(self.request.replace(name, parameters, body)).await
    }

    pub async fn replace_status(&self, name: &str, parameters: &PostParams, object: &K) -> Result<K, Error> {
        self.replace_subresource("status", name, parameters, object).await
    }

    pub async fn replace_subresource(
        &self,
        subresource: &str,
        name: &str,
        parameters: &PostParams,
        object: &K,
    ) -> Result<K, Error> {
        let body = object.encode().map_err(Error::SerdeError)?;
        self.ask(self.request.replace_subresource(subresource, name, parameters, body)).await
    }

    pub async fn patch<P: Serialize>(
        &self,
        name: &str,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, Error> {
        let request = if K::METADATA_ONLY {
            self.request.patch_metadata(name, parameters, patch)
        } else {
            self.request.patch(name, parameters, patch)
        };
        self.ask(request).await
    }

    pub async fn patch_status<P: Serialize>(
        &self,
        name: &str,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, Error> {
        self.patch_subresource("status", name, parameters, patch).await
    }

    pub async fn patch_subresource<P: Serialize>(
        &self,
        subresource: &str,
        name: &str,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, Error> {
        self.ask(self.request.patch_subresource(subresource, name, parameters, patch)).await
    }
}

fn page(answer: &[u8]) -> Result<Page<'_>, Error> {
    serde_json::from_slice(answer).map_err(Error::SerdeError)
}

/// Sends a request and gives the answer's body, or the Status that it is.
pub(crate) async fn exchange(client: &Client, request: http::Request<Vec<u8>>) -> Result<Bytes, Error> {
    let (head, body) = client.send(request.map(Body::from)).await?.into_parts();
    let bytes = body.collect_bytes().await?;
    if head.status.is_success() {
        return Ok(bytes);
    }
    let status = serde_json::from_slice::<Status>(&bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&bytes);
        Status::failure(&text, "Failed to parse error data").with_code(head.status.as_u16())
    });
    Err(Error::Api(status.boxed()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    /// A server that gives this answer to a request that begins so.
    fn server(expected: &'static str, code: u16, body: &'static str) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| async move {
            assert_eq!(format!("{} {}", request.method(), request.uri()), expected);
            let body = Body::from(body.as_bytes().to_vec());
            Ok::<_, std::convert::Infallible>(http::Response::builder().status(code).body(body).expect("an answer"))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn pages_are_decoded_item_by_item() {
        let cases = [
            (r#"{"metadata":{"continue":"c"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}"#, "ab"),
            (r#"{"metadata":{},"items":null}"#, ""),
            (r#"{"metadata":{}}"#, ""),
        ];
        for (body, names) in cases {
            let api: Api<ConfigMap> = Api::namespaced(server("GET /api/v1/namespaces/n/configmaps?", 200, body), "n");
            let list = api.list(&ListParams::default()).await.expect("a list");
            let seen: String = list.into_iter().filter_map(|map| map.metadata.name).collect();
            assert_eq!(seen, names, "{body}");
        }
    }

    #[tokio::test]
    async fn errors_are_the_servers_words_or_what_came_instead() {
        let status = r#"{"kind":"Status","status":"Failure","reason":"NotFound","message":"no","code":404}"#;
        for (code, body, expected) in [(404, status, "no"), (502, "bad gateway", "bad gateway")] {
            let api: Api<ConfigMap> = Api::namespaced(server("GET /api/v1/namespaces/n/configmaps/x", code, body), "n");
            let error = api.get("x").await.expect_err("an error");
            assert_eq!(crate::write::short(&error), expected);
            assert_eq!(crate::write::status_of(&error).map(|status| status.code), Some(code));
            assert_eq!(api.get_opt("x").await.is_ok(), code == 404);
        }
        let api: Api<ConfigMap> = Api::namespaced(server("GET /api/v1/namespaces/n/configmaps/x", 200, "{"), "n");
        assert!(matches!(api.get("x").await, Err(Error::SerdeError(_))));
    }
}

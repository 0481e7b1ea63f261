//! `/localVolumes`: folders of this node that are volumes, for the API server, which asks on behalf of the provisioner.

use http::{Method, Response, StatusCode, Uri};

use super::{Body, Server, flag, json, query, text};
use crate::local_volumes::{LocalVolumes, Refusal, Removal};

impl Server {
    pub(super) async fn local_volumes(&self, method: &Method, name: Option<&str>, uri: &Uri) -> Response<Body> {
        let Some(volumes) = &self.local_volumes else {
            return text(StatusCode::NOT_FOUND, "this node makes no local volumes\n");
        };
        match answer(volumes, method, name, uri).await {
            Ok(answer) => answer,
            Err(Refusal { code, why }) => text(code, why),
        }
    }
}

async fn answer(
    volumes: &LocalVolumes,
    method: &Method,
    name: Option<&str>,
    uri: &Uri,
) -> Result<Response<Body>, Refusal> {
    let query = query(uri);
    match (method, name) {
        (&Method::GET, None) => Ok(json(&volumes.empty().await?.into())),
        (&Method::PUT, Some(name)) => {
            let bytes = query.iter().find(|(key, _)| key == "bytes").and_then(|(_, value)| value.parse().ok());
            let missing = || Refusal { code: StatusCode::BAD_REQUEST, why: "bytes is missing or no number".to_owned() };
            let path = volumes.make(name, bytes.ok_or_else(missing)?).await?;
            Ok(text(StatusCode::OK, path.to_string_lossy()))
        }
        (&Method::DELETE, Some(name)) => Ok(match volumes.remove(name, flag(&query, &["onlyEmpty"])).await? {
            Removal::Done => text(StatusCode::OK, "removed"),
            Removal::Underway => text(StatusCode::ACCEPTED, "removing"),
            Removal::NotEmpty => text(StatusCode::OK, "not empty"),
            Removal::MadeLately => text(StatusCode::ACCEPTED, "made lately"),
        }),
        _ => Err(Refusal { code: StatusCode::METHOD_NOT_ALLOWED, why: "405 method not allowed".to_owned() }),
    }
}

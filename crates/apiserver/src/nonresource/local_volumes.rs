//! `/ferry/v1/local-volumes/NODE[/NAME]`: the kubelet of a node makes or removes the folder of a volume.
//!
//! A path of its own, so that whoever asks for folders needs no right to a kubelet as a whole (`nodes/proxy`), with which
//! one enters every container. The kubelet sees this server's certificate, as for logs.

use std::time::Duration;

use ferry_meta::{ApiError, Reason};
use ferry_semantics::local_volumes::is_name;
use http::{Method, Request};

use crate::request::body::{self, Read};
use crate::request::context::RequestContext;
use crate::response::answer::{Answer, full};
use crate::server::Core;
use crate::subresources::kubelet_of;
use crate::transport::kubelet;

/// More than a kubelet takes for an answer, whatever there is to remove.
const PATIENCE: Duration = Duration::from_secs(25);
/// Ten thousand names.
const LARGEST: usize = 1 << 20;

pub(super) async fn handle(
    core: &Core,
    context: &RequestContext,
    node: &str,
    name: Option<&str>,
) -> Result<Answer, ApiError> {
    let path = match (&context.method, name) {
        (&Method::GET, None) => "/localVolumes".to_owned(),
        (&Method::PUT | &Method::DELETE, Some(name)) if !is_name(name) => {
            return Err(ApiError::bad_request("a local volume is called pvc-UID, after the UID of its claim"));
        }
        (&Method::PUT, Some(name)) => {
            let bytes = context.query.integer("bytes")?.filter(|bytes| *bytes >= 0);
            let bytes = bytes.ok_or_else(|| ApiError::bad_request("bytes is missing or negative"))?;
            format!("/localVolumes/{name}?bytes={bytes}")
        }
        (&Method::DELETE, Some(name)) => {
            format!("/localVolumes/{name}?onlyEmpty={}", context.query.flag("onlyEmpty"))
        }
        _ => return Err(ApiError::method_not_allowed()),
    };
    let asked = tokio::time::timeout(PATIENCE, ask(core, context.method.clone(), node, path)).await;
    asked.unwrap_or_else(|_| {
        let why = format!("the kubelet of {node} did not answer in time");
        Err(ApiError::new(503, Reason::ServiceUnavailable, why))
    })
}

async fn ask(core: &Core, method: Method, node: &str, path: String) -> Result<Answer, ApiError> {
    let target = kubelet_of(core, node, path)?;
    let request = Request::builder().method(method).uri(&*target.path).body(full(""));
    let request = request.map_err(|error| ApiError::internal(error.to_string()))?;
    let answer = kubelet::forward(&core.tasks, &target, request).await?;
    let code = answer.status().as_u16();
    let unread = |why: &str| ApiError::new(503, Reason::ServiceUnavailable, format!("the kubelet of {node}: {why}"));
    let body = match body::read(answer.into_body(), LARGEST).await.map_err(|error| unread(&error.to_string()))? {
        Read::Whole(body) => body,
        Read::TooLarge => return Err(unread("the answer is too large")),
        Read::TooSlow => return Err(unread("the answer did not come in time")),
    };
    let text = String::from_utf8_lossy(&body).trim_end().to_owned();
    match code {
        200..=299 => Ok(Answer::text(code, text)),
        // Of another kubelet: it has no such page.
        404 => Err(ApiError::new(404, Reason::NotFound, format!("the kubelet of {node} makes no local volumes"))),
        400 => Err(ApiError::bad_request(text)),
        409 => Err(ApiError::new(409, Reason::Conflict, text)),
        _ => Err(ApiError::new(code, Reason::InternalError, text)),
    }
}

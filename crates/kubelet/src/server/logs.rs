//! Logs of containers over HTTP.

use std::path::PathBuf;

use bytes::Bytes;
use http::{Response, StatusCode, Uri};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;

use super::{Body, Server, flag, query, text};
use crate::logs::{Options, Wanted, read};
use crate::pod;
use crate::runtime::{PodState, Record, RunState};

impl Server {
    pub(super) async fn logs(&self, namespace: &str, name: &str, container: &str, uri: &Uri) -> Response<Body> {
        let Some(object) = self.pods.get(namespace, name) else {
            return text(StatusCode::NOT_FOUND, format!("pod {name:?} not found in namespace {namespace:?}\n"));
        };
        if pod::container(&object, container).is_none() {
            return text(StatusCode::NOT_FOUND, format!("container {container:?} not found in pod {name:?}\n"));
        }
        let query = query(uri);
        let options = match options(&query, self.context.clock.now()) {
            Ok(options) => options,
            Err(why) => return text(StatusCode::UNPROCESSABLE_ENTITY, why),
        };
        let state = match self.state(&object).await {
            Ok(state) => state,
            Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        let record = match choose(&object, &state, container, flag(&query, &["previous"])) {
            Ok(record) => record.clone(),
            Err(why) => return text(StatusCode::BAD_REQUEST, why),
        };
        self.stream(record, options).await
    }

    async fn stream(&self, record: Record, options: Options) -> Response<Body> {
        let path = PathBuf::from(&record.log_path);
        let is_there = tokio::fs::symlink_metadata(&path).await.is_ok_and(|about| about.is_file());
        if !is_there {
            return text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("failed to try resolving symlinks in path {:?}: no such file or directory", record.log_path),
            );
        }
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(16);
        let (runtime, changes) = (self.context.runtime.clone(), self.context.runtime_state.changes.subscribe());
        self.tasks.spawn_until_stopped("log", async move {
            if let Err(error) = read(runtime, record.id, path, options, sender, changes).await {
                tracing::debug!("reading a log: {error}");
            }
        });
        let body = futures::stream::unfold(receiver, |mut receiver| async {
            let data = receiver.recv().await?;
            Some((Ok(Frame::data(data)), receiver))
        });
        let mut response = text(StatusCode::OK, "");
        *response.body_mut() = StreamBody::new(body).boxed_unsync();
        response
    }
}

/// The container whose log is meant.
fn choose<'a>(
    object: &k8s_openapi::api::core::v1::Pod,
    state: &'a PodState,
    container: &str,
    previous: bool,
) -> Result<&'a Record, String> {
    let name = pod::name(object);
    let mut records = state.records.iter().filter(|r| r.name == container && r.state != RunState::Created);
    let latest = records.next();
    let reported = pod::container_status(pod::status(object), container);
    let waiting = reported.and_then(|s| s.state.as_ref()).and_then(|s| s.waiting.as_ref());
    if previous {
        // Between two runs, the one that ended last is the previous one.
        let found = if waiting.is_some() { latest } else { records.next() };
        return found.ok_or_else(|| format!("previous terminated container {container:?} in pod {name:?} not found"));
    }
    latest.ok_or_else(|| {
        let reason = waiting.and_then(|w| w.reason.clone()).unwrap_or_default();
        match (reason.as_str(), waiting.and_then(|w| w.message.as_deref())) {
            ("ErrImagePull" | "ImagePullBackOff", _) => {
                let why =
                    if reason == "ErrImagePull" { "image can't be pulled" } else { "trying and failing to pull image" };
                format!("container {container:?} in pod {name:?} is waiting to start: {why}")
            }
            ("", _) => format!("container {container:?} in pod {name:?} is not available"),
            _ => format!("container {container:?} in pod {name:?} is waiting to start: {reason}"),
        }
    })
}

fn options(query: &[(String, String)], now: Timestamp) -> Result<Options, String> {
    let get = |name: &str| query.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty());
    let number = |name: &str| -> Result<Option<u64>, String> {
        let Some(value) = get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("{name}: Invalid value: {value:?}"))
    };
    let mut since = match get("sinceTime") {
        Some(time) => Some(time.parse::<Timestamp>().map_err(|e| format!("sinceTime: {e}"))?),
        None => None,
    };
    if let Some(seconds) = number("sinceSeconds")? {
        since = now.checked_sub(std::time::Duration::from_secs(seconds)).ok();
    }
    let streams = match get("stream") {
        Some("Stdout") => Wanted::Stdout,
        Some("Stderr") => Wanted::Stderr,
        _ => Wanted::All,
    };
    Ok(Options {
        follow: flag(query, &["follow"]),
        timestamps: flag(query, &["timestamps"]),
        since,
        tail_lines: number("tailLines")?,
        limit_bytes: number("limitBytes")?,
        streams,
    })
}

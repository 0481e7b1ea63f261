//! GET with `watch`: a stream of events, flushed one by one, ended by a deadline, an error or the server's end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use ferry_meta::ApiError;
use ferry_registry::Resource;
use ferry_store::Revision;
use futures::StreamExt;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rand::Rng;
use serde_json::json;

use crate::answer::{Answer, BoxError};
use crate::codec;
use crate::context::RequestContext;
use crate::negotiate::{Negotiated, Transform};
use crate::options::ListOptions;
use crate::reads::{self, Change};
use crate::render::{self, IncludeObject};
use crate::selection::Selection;
use crate::server::Core;

/// A watch without a timeout ends after 30 to 60 minutes, so that clients spread over servers.
const SHORTEST_SECONDS: u64 = 1800;
/// How often a quiet watch says how far it is.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

pub(crate) async fn handle(
    core: &Arc<Core>,
    context: &RequestContext,
    row: &Arc<Resource>,
) -> Result<Answer, ApiError> {
    let negotiated = crate::negotiate::stream(&context.headers, &context.query, true)?;
    let options = ListOptions::read(&context.query, true)?;
    let name = if context.info.watch_prefix { context.info.path_name() } else { "" };
    let selection = Selection::new(row, &options, name)?;
    let include = IncludeObject::read(&context.query)?;
    let changes = reads::watch(core, row, &context.info.namespace, &options, selection).await?;
    let seconds = match options.timeout_seconds.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0) {
        Some(seconds) => seconds,
        None => rand::rng().random_range(SHORTEST_SECONDS..=2 * SHORTEST_SECONDS),
    };
    let encoder = Encoder { row: row.clone(), negotiated, include, columns_sent: false };
    let mut response = Response::new(body(core, changes, encoder, &options, Duration::from_secs(seconds)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Answer::Ready(response))
}

struct State {
    core: Arc<Core>,
    changes: reads::Changes,
    encoder: Encoder,
    bookmarks: bool,
    deadline: Pin<Box<tokio::time::Sleep>>,
    bookmark: tokio::time::Interval,
    /// The newest revision the client was told of.
    seen: Revision,
    _open: crate::metrics::OpenWatch,
}

fn body(
    core: &Arc<Core>,
    changes: reads::Changes,
    encoder: Encoder,
    options: &ListOptions,
    timeout: Duration,
) -> crate::answer::Body {
    let mut bookmark = tokio::time::interval_at(tokio::time::Instant::now() + BOOKMARK_EVERY, BOOKMARK_EVERY);
    bookmark.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let open = core.metrics.open_watch(&encoder.row);
    let state = State {
        core: core.clone(),
        changes,
        encoder,
        bookmarks: options.allow_bookmarks,
        deadline: Box::pin(tokio::time::sleep(timeout)),
        bookmark,
        seen: 0,
        _open: open,
    };
    // Headers go out with the first poll of the body: an empty chunk is not sent, but it makes the server flush.
    let stream = futures::stream::unfold(Some(state), |state| async move {
        let mut state = state?;
        let (frame, go_on) = next(&mut state).await?;
        Some((Ok::<_, BoxError>(Frame::data(frame)), go_on.then_some(state)))
    });
    StreamBody::new(stream).boxed_unsync()
}

/// The next bytes, and whether more may follow. None ends the stream.
async fn next(state: &mut State) -> Option<(Bytes, bool)> {
    loop {
        let stopping = state.core.tasks.stopping();
        let change = tokio::select! {
            biased;
            () = stopping.cancelled() => return None,
            () = state.deadline.as_mut() => return None,
            change = state.changes.next() => change?,
            _ = state.bookmark.tick(), if state.bookmarks => {
                // Whatever the store has committed and this watch was not shown did not concern it.
                let Ok(revision) = state.core.store.revision().await else { continue };
                Change::Bookmark { revision, initial_end: false }
            }
        };
        if let Change::Error(error) = &change {
            return Some((state.encoder.error(error), false));
        }
        if let Change::Bookmark { revision, .. } = &change {
            state.seen = state.seen.max(*revision);
        }
        match state.encoder.encode(&change) {
            Ok(mut bytes) => {
                state.core.metrics.watch_event(&state.encoder.row);
                // Events that are ready already go out with this one.
                while bytes.len() < 64 * 1024
                    && let Some(Some(change)) = ready(&mut state.changes)
                {
                    match &change {
                        Change::Error(error) => {
                            bytes.extend_from_slice(&state.encoder.error(error));
                            return Some((bytes.freeze(), false));
                        }
                        _ => match state.encoder.encode(&change) {
                            Ok(more) => {
                                state.core.metrics.watch_event(&state.encoder.row);
                                bytes.extend_from_slice(&more);
                            }
                            Err(error) => {
                                bytes.extend_from_slice(&state.encoder.error(&error));
                                return Some((bytes.freeze(), false));
                            }
                        },
                    }
                }
                return Some((bytes.freeze(), true));
            }
            Err(error) => return Some((state.encoder.error(&error), false)),
        }
    }
}

/// What the stream has right now, without waiting: None when it has nothing yet.
fn ready(changes: &mut reads::Changes) -> Option<Option<Change>> {
    let waker = futures::task::noop_waker();
    match changes.poll_next_unpin(&mut TaskContext::from_waker(&waker)) {
        Poll::Ready(change) => Some(change),
        Poll::Pending => None,
    }
}

struct Encoder {
    row: Arc<Resource>,
    negotiated: Negotiated,
    include: IncludeObject,
    columns_sent: bool,
}

impl Encoder {
    fn encode(&mut self, change: &Change) -> Result<BytesMut, ApiError> {
        let (kind, object) = match change {
            Change::Added(json) => ("ADDED", self.object(json)?),
            Change::Modified(json) => ("MODIFIED", self.object(json)?),
            Change::Deleted(json) => ("DELETED", self.object(json)?),
            Change::Bookmark { revision, initial_end } => ("BOOKMARK", self.bookmark(*revision, *initial_end)?),
            Change::Error(error) => return Ok(BytesMut::from(&self.error(error)[..])),
        };
        Ok(event(kind, &object))
    }

    fn object(&mut self, json: &Bytes) -> Result<Bytes, ApiError> {
        match &self.negotiated.transform {
            Transform::None => Ok(json.clone()),
            Transform::PartialMetadata(version) => render::partial_metadata(version, json, true),
            Transform::Table(version) => {
                let meta = format!("{{\"resourceVersion\":\"{}\"}}", render::version_of(json));
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                render::table(&self.row, version, &meta, std::slice::from_ref(json), self.include, columns)
            }
        }
    }

    fn bookmark(&mut self, revision: Revision, initial_end: bool) -> Result<Bytes, ApiError> {
        let mut object = json!({
            "kind": self.row.gvk.kind,
            "apiVersion": self.row.gvk.api_version(),
            "metadata": {"resourceVersion": revision.to_string()},
        });
        if initial_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let json: Bytes = codec::encode(&self.row.gvk, &object).into();
        self.object(&json)
    }

    fn error(&self, error: &ApiError) -> Bytes {
        let json = serde_json::to_vec(&*error.0).unwrap_or_default();
        event("ERROR", &json).freeze()
    }
}

fn event(kind: &str, object: &[u8]) -> BytesMut {
    let mut out = BytesMut::with_capacity(object.len() + kind.len() + 24);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
    out
}

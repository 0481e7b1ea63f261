//! GET with `watch`: a stream of events, flushed one by one, ended by a deadline, an error or the server's end.

use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use ferry_connections::{AtItsEnd, abandoned_after};
use ferry_meta::{ApiError, GroupVersionKind};
use ferry_registry::Resource;
use futures::StreamExt;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rand::Rng;
use serde_json::json;

use crate::cache::{FrameKind, Frames, WatchFrame};
use crate::read;
use crate::read::selection::Selection;
use crate::request::call::Call;
use crate::request::negotiate::{Encoding, Negotiated, Transform};
use crate::request::options::ListOptions;
use crate::response::answer::{Answer, Body, BoxError, full};
use crate::response::render::{self, IncludeObject};
use crate::server::Core;
use crate::storage::codec;

/// A watch without a timeout ends after 30 to 60 minutes, so that clients spread over servers.
const SHORTEST_SECONDS: u64 = 1800;
/// Ten years: no clock of a machine gets to the end of what a client may write.
const LONGEST_SECONDS: u64 = 10 * 365 * 24 * 3600;
/// Events that are ready together go out together, up to this size.
const CHUNK_BYTES: usize = 64 * 1024;

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, .. } = call;
    let offer = crate::request::negotiate::Offer { transforms: true, tables: true, protobuf: !codec::is_custom(row) };
    let negotiated = crate::request::negotiate::stream(&context.headers, &context.query, offer)?;
    let options = ListOptions::read(&context.query, true)?;
    let name = if context.info.watch_prefix { context.info.path_name() } else { "" };
    let selection = Selection::new(row, &options, name)?;
    let include = IncludeObject::read(&context.query)?;
    let seconds = match options.timeout_seconds.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0) {
        Some(seconds) => seconds.min(LONGEST_SECONDS),
        None => rand::rng().random_range(SHORTEST_SECONDS..=2 * SHORTEST_SECONDS),
    };
    let timeout = Duration::from_secs(seconds);
    let opened = read::watch(core, row, &context.info.namespace, &options, &selection, timeout).await?;
    let encoder = Encoder { row: row.clone(), negotiated, include, columns_sent: false, cbor: context.cbor.answer };
    let judge = selection.by_version.then_some(selection);
    let content_type = encoder.content_type();
    let body = match opened {
        Ok(frames) => abandoned_after(&context.peer, AtItsEnd::Complete, stream(core, frames, judge, encoder)),
        Err(expired) => full(encoder.error(&expired)),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(Answer::Ready(response))
}

struct OpenStream {
    core: Arc<Core>,
    frames: Frames,
    /// What the cache could not judge.
    judge: Option<Selection>,
    encoder: Encoder,
    _open: crate::observe::metrics::OpenWatch,
}

fn stream(core: &Arc<Core>, frames: Frames, judge: Option<Selection>, encoder: Encoder) -> Body {
    let open = core.metrics.open_watch(&encoder.row);
    let state = OpenStream { core: core.clone(), frames, judge, encoder, _open: open };
    let stream = futures::stream::unfold(Some(state), |state| async move {
        let mut state = state?;
        let (bytes, go_on) = next(&mut state).await?;
        Some((Ok::<_, BoxError>(Frame::data(bytes)), go_on.then_some(state)))
    });
    StreamBody::new(stream).boxed_unsync()
}

/// The next bytes, and whether more may follow. None ends the stream.
async fn next(state: &mut OpenStream) -> Option<(Bytes, bool)> {
    let stopping = state.core.tasks.stopping();
    let first = loop {
        let frame = tokio::select! {
            biased;
            () = stopping.cancelled() => return None,
            frame = state.frames.next() => frame?,
        };
        match prepare(&state.core, &state.encoder.row, state.judge.as_ref(), frame).await {
            Ok(Some(frame)) => break frame,
            Ok(None) => {}
            Err(error) => return Some((state.encoder.error(&error), false)),
        }
    };
    let first = match state.encoder.encode(&first) {
        Ok(bytes) => bytes,
        Err(error) => return Some((state.encoder.error(&error), false)),
    };
    let mut size = first.len();
    let mut chunk = vec![first];
    let mut go_on = true;
    while size < CHUNK_BYTES
        && let Some(frame) = ready(&mut state.frames)
    {
        let Some(frame) = frame else {
            go_on = false;
            break;
        };
        let encoded = match prepare(&state.core, &state.encoder.row, state.judge.as_ref(), frame).await {
            Ok(None) => continue,
            Ok(Some(frame)) => state.encoder.encode(&frame),
            Err(error) => Err(error),
        };
        match encoded {
            Ok(more) => {
                size += more.len();
                chunk.push(more);
            }
            Err(error) => {
                chunk.push(state.encoder.error(&error));
                return Some((chunk.concat().into(), false));
            }
        }
    }
    state.core.metrics.watch_events(&state.encoder.row, chunk.len() as u64);
    let bytes = match chunk.pop() {
        Some(only) if chunk.is_empty() => only,
        last => {
            chunk.extend(last);
            chunk.concat().into()
        }
    };
    Some((bytes, go_on))
}

/// Objects that a webhook converts are converted before they are encoded. None: the client did not ask for this one.
async fn prepare(
    core: &Core,
    row: &Resource,
    judge: Option<&Selection>,
    frame: WatchFrame,
) -> Result<Option<WatchFrame>, ApiError> {
    let frame = match judge {
        None => frame,
        Some(selection) => match selection.judge(core, row, frame).await? {
            Some(frame) => frame,
            None => return Ok(None),
        },
    };
    if row.strategy.conversion().is_some() {
        let prepared = crate::custom_resources::conversion::prepare(core, row, frame.object.iter()).await;
        prepared.map_err(|error| error.plain())?;
    }
    Ok(Some(frame))
}

/// What the stream has right now, without waiting: None when it has nothing yet.
fn ready(frames: &mut Frames) -> Option<Option<WatchFrame>> {
    let waker = futures::task::noop_waker();
    match frames.poll_next_unpin(&mut TaskContext::from_waker(&waker)) {
        Poll::Ready(frame) => Some(frame),
        Poll::Pending => None,
    }
}

struct Encoder {
    row: Arc<Resource>,
    negotiated: Negotiated,
    include: IncludeObject,
    columns_sent: bool,
    cbor: bool,
}

impl Encoder {
    fn content_type(&self) -> &'static str {
        match self.negotiated.encoding {
            Encoding::Json if self.cbor => "application/cbor-seq",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            _ => "application/json",
        }
    }

    fn encode(&mut self, frame: &WatchFrame) -> Result<Bytes, ApiError> {
        let plain = self.negotiated.transform == Transform::None;
        // Most watches: one buffer for everyone who gets this event.
        if plain
            && !self.cbor
            && self.negotiated.encoding == Encoding::Json
            && self.row.gvk == self.row.storage_gvk
            && frame.object.as_ref().is_some_and(|object| {
                self.row.strategy.conversion().is_none()
                    || crate::custom_resources::conversion::is_in_version(&self.row, object)
            })
            && let Some(line) = frame.line()
        {
            return Ok(line);
        }
        let object = match &frame.object {
            Some(object) => read::json_of(&self.row, object)?,
            None => self.bookmark(frame),
        };
        let object = match &self.negotiated.transform {
            Transform::None => object,
            Transform::PartialMetadata(version) | Transform::PartialMetadataList(version) => {
                render::metadata_of(&self.row, version, &object)?
            }
            Transform::Table(version) => {
                let meta = format!("{{\"resourceVersion\":\"{}\"}}", render::version_of(&object));
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                render::table(&self.row, version, &meta, std::slice::from_ref(&object), self.include, columns)?
            }
        };
        Ok(self.event(frame.kind.as_str(), &self.kind(), &object))
    }

    fn kind(&self) -> GroupVersionKind {
        match &self.negotiated.transform {
            Transform::None => self.row.gvk.clone(),
            Transform::Table(version) => GroupVersionKind::new("meta.k8s.io", &**version, "Table"),
            Transform::PartialMetadata(version) | Transform::PartialMetadataList(version) => {
                GroupVersionKind::new("meta.k8s.io", &**version, "PartialObjectMetadata")
            }
        }
    }

    fn bookmark(&self, frame: &WatchFrame) -> Bytes {
        let mut object = json!({
            "kind": self.row.gvk.kind,
            "apiVersion": self.row.gvk.api_version(),
            "metadata": {"resourceVersion": frame.revision.to_string()},
        });
        if frame.initial_events_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        debug_assert!(frame.kind == FrameKind::Bookmark);
        codec::encode(&self.row.gvk, &object).into()
    }

    fn error(&self, error: &ApiError) -> Bytes {
        let json = serde_json::to_vec(&*error.0).unwrap_or_default();
        self.event("ERROR", &GroupVersionKind::new("", "v1", "Status"), &json)
    }

    fn event(&self, kind: &str, of: &GroupVersionKind, object: &[u8]) -> Bytes {
        if self.negotiated.encoding == Encoding::Protobuf
            && let Some(encoded) = codec::to_protobuf(of, object)
        {
            return ferry_schema::proto::watch_frame(kind, &encoded).into();
        }
        if self.cbor {
            let object = serde_json::from_slice(object).unwrap_or_default();
            return ferry_schema::cbor::encode_event(kind, codec::type_of(of).as_ref(), &object).into();
        }
        let mut out = BytesMut::with_capacity(object.len() + kind.len() + 24);
        out.put_slice(b"{\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\",\"object\":");
        out.put_slice(object);
        out.put_slice(b"}\n");
        out.freeze()
    }
}

//! A list as it goes out: cached objects one behind the other, without a copy of the whole where it is long.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use ferry_connections::{AtItsEnd, abandoned_after};
use ferry_meta::GroupVersionKind;
use ferry_registry::Resource;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::BodyExt;

use crate::cache::CachedObject;
use crate::read::Page;
use crate::request::context::RequestContext;
use crate::request::negotiate::{Encoding, Transform};
use crate::response::answer::{self, Answer, BoxError};
use crate::response::render;
use crate::storage::codec;

/// Lists of this size and more are made as they are sent, in pieces of about that size: eight long ones at once take no
/// more memory than one.
const PIECE: usize = 64 * 1024;

/// The answer, where the objects go out as they are cached: as JSON, in the version that is stored, not as a Table.
/// Otherwise the page comes back.
pub(crate) fn answer(context: &RequestContext, row: &Resource, page: Page) -> Result<Answer, Page> {
    let as_cached = row.gvk == row.storage_gvk && row.strategy.conversion().is_none();
    if context.negotiated.transform != Transform::None || !as_cached {
        return Err(page);
    }
    let kind = GroupVersionKind::new(&*row.gvk.group, &*row.gvk.version, &*row.list_kind);
    let length = page.items.iter().map(|item| item.json_length() + 1).sum::<usize>();
    let mut list = ListBody {
        head: Some(render::list_head(row, &kind, &page.meta).into()),
        // Items of built-in lists carry neither kind nor version.
        prefix: if codec::is_custom(row) { String::new() } else { render::type_prefix(row) },
        items: page.items.into_iter(),
    };
    let plain = context.negotiated.encoding == Encoding::Json
        && !context.negotiated.pretty
        && !context.cbor.answer
        && context.audit.is_none()
        && !answer::accepts_gzip(context);
    if length < 2 * PIECE || !plain {
        let mut out = BytesMut::with_capacity(length + 256);
        list.fill(&mut out, usize::MAX);
        out.put_slice(b"]}");
        return Ok(Answer::Json { code: 200, kind, json: out.freeze() });
    }
    let mut response = Response::new(abandoned_after(&context.peer, AtItsEnd::Broken, list.boxed_unsync()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Answer::Ready(response))
}

struct ListBody {
    /// Everything up to the first item; None once it is sent.
    head: Option<Bytes>,
    prefix: String,
    items: std::vec::IntoIter<Arc<CachedObject>>,
}

impl ListBody {
    /// Writes on until there is as much as this. Returns whether all is written, but for the end.
    fn fill(&mut self, out: &mut BytesMut, until: usize) -> bool {
        let mut first = false;
        if let Some(head) = self.head.take() {
            out.put_slice(&head);
            first = true;
        }
        while out.len() < until {
            let Some(item) = self.items.next() else { return true };
            if !std::mem::replace(&mut first, false) {
                out.put_u8(b',');
            }
            if !self.prefix.is_empty() && item.starts_with(self.prefix.as_bytes()) {
                out.put_u8(b'{');
                item.write_behind(self.prefix.len(), out);
            } else {
                item.write_json(out);
            }
        }
        self.items.len() == 0
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let mut out = BytesMut::with_capacity(PIECE + PIECE / 4);
        if self.fill(&mut out, PIECE) {
            out.put_slice(b"]}\n");
        }
        Poll::Ready(Some(Ok(Frame::data(out.freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_none() && self.items.len() == 0
    }
}

//! Answers as gzip, for clients that take it. What is compressed is on its way as soon as the backend pauses.

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use ferry_connections::{Body, BoxError};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue,
    VARY,
};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;

/// Shorter answers do not get shorter.
const LEAST: u64 = 256;
/// What is gathered before it goes out.
const PIECE: usize = 16 << 10;
const TYPES: [&str; 12] = [
    "application/atom+xml",
    "application/javascript",
    "application/json",
    "application/manifest+json",
    "application/problem+json",
    "application/rss+xml",
    "application/vnd.api+json",
    "application/wasm",
    "application/xhtml+xml",
    "application/xml",
    "application/x-javascript",
    "image/svg+xml",
];

/// Whether a client takes gzip.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let mut any = None;
    for part in
        headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','))
    {
        let mut words = part.split(';');
        let name = words.next().unwrap_or_default().trim().to_ascii_lowercase();
        let weight = words.find_map(|word| word.trim().strip_prefix("q=")?.trim().parse::<f32>().ok()).unwrap_or(1.0);
        match name.as_str() {
            "gzip" | "x-gzip" => return weight > 0.0,
            "*" => any = Some(weight > 0.0),
            _ => {}
        }
    }
    any.unwrap_or(false)
}

fn is_worth_it(response: &Response<Body>) -> bool {
    let headers = response.headers();
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let kind = text(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let has_body = !matches!(
        response.status(),
        StatusCode::NO_CONTENT
            | StatusCode::NOT_MODIFIED
            | StatusCode::PARTIAL_CONTENT
            | StatusCode::SWITCHING_PROTOCOLS
    );
    has_body
        && !headers.contains_key(CONTENT_ENCODING)
        && !text(CACHE_CONTROL).to_ascii_lowercase().contains("no-transform")
        && (kind.starts_with("text/") || TYPES.contains(&kind.as_str()))
        && response.body().size_hint().exact().is_none_or(|length| length >= LEAST)
}

/// The answer as gzip where that is worth it. `is_head`: it has no body that could be.
pub fn compress(mut response: Response<Body>, is_head: bool) -> Response<Body> {
    if !is_worth_it(&response) {
        return response;
    }
    let headers = response.headers_mut();
    headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.remove(CONTENT_LENGTH);
    headers.remove(ACCEPT_RANGES);
    // The bytes are others than those that the tag is for, and their meaning is the same.
    let weak = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    if let Some(weak) = weak.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok()) {
        headers.insert(ETAG, weak);
    }
    if is_head {
        return response;
    }
    response.map(|body| {
        let encoder = Some(GzEncoder::new(Vec::new(), Compression::new(5)));
        Gzip { body, encoder, has_more: false, trailers: None }.boxed_unsync()
    })
}

struct Gzip {
    body: Body,
    /// None: all was given out.
    encoder: Option<GzEncoder<Vec<u8>>>,
    /// Bytes went in that may not have come out.
    has_more: bool,
    trailers: Option<Frame<Bytes>>,
}

impl Gzip {
    fn taken(&mut self) -> Option<Bytes> {
        let out = std::mem::take(self.encoder.as_mut()?.get_mut());
        (!out.is_empty()).then(|| Bytes::from(out))
    }

    fn finish(&mut self) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let ended = self.encoder.take().map(GzEncoder::finish).transpose();
        Poll::Ready(ended.map(|bytes| bytes.map(|bytes| Frame::data(bytes.into()))).map_err(Into::into).transpose())
    }
}

impl http_body::Body for Gzip {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if this.encoder.is_none() {
                return Poll::Ready(this.trailers.take().map(Ok));
            }
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        let Some(encoder) = &mut this.encoder else { continue };
                        encoder.write_all(data.chunk())?;
                        this.has_more = true;
                        if encoder.get_ref().len() >= PIECE {
                            return Poll::Ready(this.taken().map(|bytes| Ok(Frame::data(bytes))));
                        }
                    }
                    Err(trailers) => {
                        this.trailers = Some(trailers);
                        return this.finish();
                    }
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return this.finish(),
                Poll::Pending => {
                    if std::mem::take(&mut this.has_more)
                        && let Some(encoder) = &mut this.encoder
                    {
                        encoder.flush()?;
                        if let Some(bytes) = this.taken() {
                            return Poll::Ready(Some(Ok(Frame::data(bytes))));
                        }
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::answer::full;
    use super::*;

    #[test]
    fn clients_say_what_they_take() {
        for (text, want) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("*", true),
            ("*;q=0", false),
            ("*, gzip;q=0", false),
            ("identity", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, text.parse().unwrap());
            assert_eq!(is_wanted(&headers), want, "{text}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }

    fn answer(kind: &str, length: usize) -> Response<Body> {
        Response::builder().header(CONTENT_TYPE, kind).header(ETAG, "\"1\"").body(full("a".repeat(length))).unwrap()
    }

    #[tokio::test]
    async fn what_is_worth_it_is_compressed() {
        for (response, want) in [
            (answer("text/html; charset=utf-8", 100_000), true),
            (answer("application/json", 1000), true),
            (answer("image/png", 1000), false),
            (answer("text/plain", 10), false),
        ] {
            let length = response.body().size_hint().exact().unwrap();
            let response = compress(response, false);
            assert_eq!(response.headers().contains_key(CONTENT_ENCODING), want);
            if !want {
                continue;
            }
            assert_eq!(response.headers()[ETAG], "W/\"1\"");
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            assert!(u64::try_from(bytes.len()).unwrap() < length);
            let mut text = String::new();
            flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
            assert_eq!(text, "a".repeat(usize::try_from(length).unwrap()));
        }
        let mut coded = answer("text/plain", 1000);
        coded.headers_mut().insert(CONTENT_ENCODING, "br".parse().unwrap());
        assert_eq!(compress(coded, false).headers()[CONTENT_ENCODING], "br");
    }

    #[tokio::test]
    async fn what_was_said_comes_through_before_the_end() {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, BoxError>>(1);
        let stream = futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|frame| (frame, receiver))
        });
        let body = http_body_util::StreamBody::new(stream).boxed_unsync();
        let response = Response::builder().header(CONTENT_TYPE, "text/event-stream").body(body).unwrap();
        let mut body = compress(response, false).into_body();
        sender.send(Ok(Frame::data(Bytes::from_static(b"data: 1\n\n")))).await.unwrap();
        let mut gathered = Vec::new();
        // The other end is still open.
        loop {
            gathered.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
            let mut text = [0; 9];
            if flate2::read::GzDecoder::new(&*gathered).read_exact(&mut text).is_ok() {
                assert_eq!(&text, b"data: 1\n\n");
                break;
            }
        }
        drop(sender);
    }
}

//! The files of a folder, as Go's server shows them.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::TryStreamExt;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use tokio::io::AsyncReadExt;

use super::{Answer, Request, plain};

const PIECE: usize = 64 << 10;

/// `path` is clean: it has no `..`.
pub async fn answer(request: &Request, folder: &Path, path: &str) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "405 Method Not Allowed");
    }
    let mut at: PathBuf = folder.join(path.trim_matches('/'));
    let Ok(mut found) = tokio::fs::metadata(&at).await else {
        return plain(StatusCode::NOT_FOUND, "404 page not found");
    };
    if found.is_dir() {
        if !path.is_empty() && !path.ends_with('/') {
            let last = path.rsplit('/').next().unwrap_or_default();
            return super::moved(&format!("{}/", crate::client::escaped(last)));
        }
        let index = at.join("index.html");
        match tokio::fs::metadata(&index).await {
            Ok(page) if page.is_file() => (at, found) = (index, page),
            _ => return listing(&at).await,
        }
    }
    // A pipe would wait for its writer for ever.
    if !found.is_file() {
        return plain(StatusCode::NOT_FOUND, "404 page not found");
    }
    let Ok(file) = tokio::fs::File::open(&at).await else {
        return plain(StatusCode::FORBIDDEN, "403 Forbidden");
    };
    let length = found.len();
    let body = match *request.method() == Method::HEAD {
        true => empty(),
        false => StreamBody::new(pieces(file, length).map_ok(Frame::data)).boxed_unsync(),
    };
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(&at)));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    answer
}

fn empty() -> http_body_util::combinators::UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync()
}

/// As much as the file had when its length was told.
fn pieces(
    file: tokio::fs::File,
    length: u64,
) -> impl futures::Stream<Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>> {
    futures::stream::try_unfold((file.take(length), length), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; PIECE];
        let read = file.read(&mut piece).await?;
        if read == 0 {
            return Err("the file became shorter".into());
        }
        piece.truncate(read);
        Ok(Some((Bytes::from(piece), (file, left.saturating_sub(read as u64)))))
    })
}

async fn listing(folder: &Path) -> Answer {
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else {
        return plain(StatusCode::FORBIDDEN, "403 Forbidden");
    };
    let mut names = Vec::new();
    while let Ok(Some(entry)) = entries.next_entry().await {
        let mut name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().await.is_ok_and(|kind| kind.is_dir()) {
            name.push('/');
        }
        names.push(name);
    }
    names.sort();
    let mut page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for name in names {
        let shown = crate::print::html_escaped(&name);
        page.push_str(&format!("<a href=\"{}\">{shown}</a>\n", crate::client::escaped(&name).replace("%2F", "/")));
    }
    page.push_str("</pre>\n");
    let mut answer = Response::new(Full::new(Bytes::from(page)).map_err(|never| match never {}).boxed_unsync());
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    answer
}

fn kind(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "xml" => "text/xml; charset=utf-8",
        "txt" | "log" | "md" | "yaml" | "yml" => "text/plain; charset=utf-8",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

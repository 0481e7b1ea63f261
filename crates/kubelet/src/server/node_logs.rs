//! The log files of the node over HTTP (`/logs/`): folders as lists of links, files as they are. As with upstream's kubelet,
//! but nothing leads out of the folder: a pod that may write there could have the node's secrets read by a link.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ferry_podfs::Root;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use rustix::fs::{Dir, FileType};

use super::log_query::Query;
use super::{Body, Server, decode, query, text};

pub(super) const FOLDER: &str = "/var/log";
/// A folder may have more; the list ends there.
const MOST_ENTRIES: usize = 10_000;
const PIECE: usize = 64 << 10;

enum Found {
    /// Names, those of folders with a slash.
    Folder(Vec<String>),
    File(std::fs::File),
}

impl Server {
    /// With `enableSystemLogQuery`, a query asks for services or one file; everything else is a path.
    pub(super) async fn node_logs_or_query(&self, path: &str, uri: &http::Uri) -> Response<Body> {
        if !self.context.config.settings.server.log_query {
            return self.node_logs(path).await;
        }
        let asked = match Query::parse(&query(uri)) {
            Ok(None) => return self.node_logs(path).await,
            Ok(Some(asked)) => asked,
            Err((code, why)) => return text(code, why),
        };
        if path.trim_matches('/') != "logs" {
            return text(StatusCode::NOT_ACCEPTABLE, "path not allowed in query mode\n");
        }
        if let Err((code, why)) = asked.validate() {
            return text(code, why);
        }
        match asked.files.first() {
            Some(file) => self.file_of_query(file).await,
            None => self.service_logs(asked),
        }
    }

    /// A file that is asked for by a query is there or the query is wrong.
    async fn file_of_query(&self, file: &str) -> Response<Body> {
        let Some(below) = inside(file) else {
            return text(
                StatusCode::NOT_ACCEPTABLE,
                format!("query: Invalid value: [{file:?}]: path escapes from parent\n"),
            );
        };
        let found = tokio::task::spawn_blocking(move || find(Path::new(FOLDER), &below)).await;
        match found.map_err(io::Error::other).flatten() {
            Ok(Found::File(file)) => self.file(file),
            Ok(Found::Folder(names)) => {
                let mut response = text(StatusCode::OK, list(&names));
                let kind = HeaderValue::from_static("text/html; charset=utf-8");
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                response
            }
            Err(error) => text(StatusCode::NOT_ACCEPTABLE, format!("query: Invalid value: [{file:?}]: {error}\n")),
        }
    }

    pub(super) async fn node_logs(&self, path: &str) -> Response<Body> {
        let Some(below) = asked(path) else {
            return text(StatusCode::BAD_REQUEST, "invalid URL path\n");
        };
        let found = tokio::task::spawn_blocking(move || find(Path::new(FOLDER), &below)).await;
        match found.map_err(io::Error::other).flatten() {
            // A link of a list is relative to its folder.
            Ok(Found::Folder(_)) if !path.ends_with('/') => {
                let name = path.rsplit('/').next().unwrap_or_default();
                let mut moved = text(StatusCode::MOVED_PERMANENTLY, "");
                if let Ok(place) = HeaderValue::from_str(&format!("./{name}/")) {
                    moved.headers_mut().insert(header::LOCATION, place);
                }
                moved
            }
            Ok(Found::Folder(names)) => {
                let mut response = text(StatusCode::OK, list(&names));
                response
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
                response
            }
            Ok(Found::File(file)) => self.file(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                text(StatusCode::NOT_FOUND, "404 page not found\n")
            }
            Err(error) => text(StatusCode::FORBIDDEN, format!("{path} is not shown: {error}\n")),
        }
    }

    /// As much as there is when it is asked for; what is written meanwhile has to be asked for again.
    fn file(&self, mut file: std::fs::File) -> Response<Body> {
        let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(4);
        let mut left = file.metadata().map(|about| about.len()).unwrap_or_default();
        self.tasks.spawn_until_stopped("node log", async move {
            while left > 0 {
                let wanted = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
                let read = tokio::task::spawn_blocking(move || {
                    let mut piece = vec![0; wanted];
                    let count = file.read(&mut piece)?;
                    piece.truncate(count);
                    Ok((file, piece))
                });
                match read.await.map_err(io::Error::other).flatten() {
                    Ok((_, piece)) if piece.is_empty() => return,
                    Ok((again, piece)) => {
                        file = again;
                        left = left.saturating_sub(piece.len() as u64);
                        if sender.send(Ok(piece.into())).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        let _ = sender.send(Err(error)).await;
                        return;
                    }
                }
            }
        });
        let body = futures::stream::unfold(receiver, |mut receiver| async {
            let piece = receiver.recv().await?;
            Some((piece.map(Frame::data), receiver))
        });
        let mut response = text(StatusCode::OK, "");
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        *response.body_mut() = StreamBody::new(body).map_err(Into::into).boxed_unsync();
        response
    }
}

/// What a path of the server asks for. In a path, unlike in a query, a plus is a plus.
fn asked(path: &str) -> Option<PathBuf> {
    inside(&decode(&path.trim_start_matches('/').strip_prefix("logs")?.replace('+', "%2B")))
}

/// The path below the folder; None where it is no plain one.
fn inside(path: &str) -> Option<PathBuf> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let mut below = PathBuf::new();
    for part in parts {
        if part == ".." || part.contains('\0') {
            return None;
        }
        below.push(part);
    }
    Some(below)
}

fn find(folder: &Path, below: &Path) -> io::Result<Found> {
    let root = Root::open(folder)?;
    let listed = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let opened = match root.folder(listed) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Found::File(root.file(below)?)),
        // An absolute link of a log: found as one whose root the folder is.
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => return Ok(Found::File(root.file(below)?)),
        opened => opened?,
    };
    let mut names = Vec::new();
    for entry in Dir::new(opened)?.take(MOST_ENTRIES) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if name != "." && name != ".." {
            names.push(if entry.file_type() == FileType::Directory { format!("{name}/") } else { name.into_owned() });
        }
    }
    names.sort();
    Ok(Found::Folder(names))
}

fn list(names: &[String]) -> String {
    let shown = |name: &String| {
        let text = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
        // With the dot a name that has a colon is not taken for a scheme.
        format!("<a href=\"./{}\">{text}</a>\n", link(name))
    };
    format!("<!doctype html>\n<pre>\n{}</pre>\n", names.iter().map(shown).collect::<String>())
}

fn link(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_are_those_below_the_folder() {
        for (path, want) in [
            ("/logs", Some("")),
            ("/logs/", Some("")),
            ("//logs//a+b%20c", Some("a+b c")),
            ("/logs/logs/logs.log", Some("logs/logs.log")),
            ("/logs/%2e%2e/x", None),
            ("/logs/a/..%2f..", None),
            ("/logs/a%00", None),
        ] {
            assert_eq!(asked(path).as_deref(), want.map(Path::new), "{path}");
        }
    }

    #[test]
    fn nothing_leads_out_of_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("pods")).expect("a folder");
        std::fs::write(at("pods/a.log"), "one\n").expect("a file");
        std::fs::write(at("a <b>&c.log"), "two\n").expect("a file");
        symlink("/etc/passwd", at("absolute")).expect("a link");
        symlink("../../../../../../etc/passwd", at("relative")).expect("a link");
        symlink("pods/a.log", at("own")).expect("a link");
        let read = |path: &str| match find(folder.path(), &inside(path)?) {
            Ok(Found::File(mut file)) => {
                let mut text = String::new();
                file.read_to_string(&mut text).ok().map(|_| text)
            }
            Ok(Found::Folder(names)) => Some(list(&names)),
            Err(_) => None,
        };
        assert_eq!(read("/pods/a.log").as_deref(), Some("one\n"));
        assert_eq!(read("own").as_deref(), Some("one\n"));
        for path in ["absolute", "relative", "..", "pods/../../etc/passwd", "nothing"] {
            assert_eq!(read(path), None, "{path}");
        }
        assert_eq!(
            read("/").as_deref(),
            Some(
                "<!doctype html>\n<pre>\n<a href=\"./a%20%3Cb%3E%26c.log\">a &lt;b&gt;&amp;c.log</a>\n<a href=\"./absolute\">absolute</a>\n\
                 <a href=\"./own\">own</a>\n<a href=\"./pods/\">pods/</a>\n<a href=\"./relative\">relative</a>\n</pre>\n"
            )
        );
    }
}

//! Keeps a cache equal to what the API server says, for ever: list, watch, resume, list again.
//!
//! One loop for all kinds: it hands each object's bytes to a [`Feed`], whose decoder alone knows their type. A loop per
//! kind would be compiled some fifty times in every crate that watches.

use std::time::Duration;

use ferry_semantics::backoff::Backoff;
use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use kube::{Client, Error};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Selection;
use super::feed::Feed;

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// After an expired revision, so that not every client lists in the same instant. Doubled with each further one.
const RELIST_SPREAD: Duration = Duration::from_millis(500);
const LONGEST_RELIST_SPREAD: Duration = Duration::from_secs(30);
/// Revisions that expire further apart than this have nothing to do with each other.
const RELISTS_APART: Duration = Duration::from_secs(120);
/// A server that says nothing for so long while it should list does not know how to list by a watch: those before v1.27
/// take it for an ordinary one and never say that the list is complete.
const LIST_SILENCE: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 5000 });
/// How long one watch lasts: not all of them should end together.
const WATCH_SECONDS: std::ops::Range<u32> = 300..600;
/// A connection that is silent for this much longer than its watch should last is dead.
const SILENCE: Duration = Duration::from_secs(15);
/// A watch that ended sooner and told nothing is a failure, whatever the server calls it: it would end so again at once.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
const PAGE: u32 = 500;
/// No object is nearly as large; a server that never ends a line must not fill the memory.
const LONGEST_LINE: usize = 32 << 20;

type Lines = dyn AsyncBufRead + Send + Unpin;

/// What is watched.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) client: Client,
    pub(super) path: String,
    pub(super) selection: Selection,
}

/// Where a reflector stands.
enum Progress {
    /// A list is under way or yet to come.
    Unknown,
    /// All is known up to this revision.
    Current(String),
}

enum Interrupted {
    /// The watch lasted as long as it was to.
    Ended,
    /// Resuming is impossible: the revision is too old, or one that the server does not know because it was restored
    /// from an older state.
    Expired(String),
    /// The server cannot list by a watch.
    CannotStream,
    Failed(String),
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(status) => Self::from(*status),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<Status> for Interrupted {
    fn from(status: Status) -> Self {
        let unknown = status.code == 504 && status.message.contains("resource version");
        if status.code == 410 || unknown { Self::Expired(status.message) } else { Self::Failed(status.message) }
    }
}

/// A line of a watch, for servers that order its fields otherwise.
#[derive(Deserialize)]
struct Line<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    r#continue: String,
}

/// How lists are asked for.
#[derive(Clone, Copy)]
struct Means {
    /// By a watch.
    streams: bool,
    /// In pages, where it is not by a watch.
    pages: bool,
}

pub(super) async fn run(source: Source, mut feed: Feed) {
    let mut delays = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
    let mut relists = Relists::default();
    let mut state = Progress::Unknown;
    let mut means = Means { streams: true, pages: true };
    loop {
        let (before, begun) = (version(&state).map(str::to_owned), Instant::now());
        let why = match source.advance(&mut state, means, &mut feed).await {
            Ok(()) => continue,
            Err(why) => why,
        };
        feed.interrupted();
        let told = version(&state) != before.as_deref();
        if told {
            delays.reset();
        }
        match why {
            Interrupted::Ended if !told && begun.elapsed() < SHORTEST_WATCH => {
                tracing::debug!(path = source.path, "the watch ended at once");
                wait(&mut delays).await;
            }
            Interrupted::Ended => {}
            Interrupted::CannotStream => {
                tracing::debug!(path = source.path, "the server cannot list by a watch");
                means.streams = false;
            }
            Interrupted::Expired(why) => {
                tracing::debug!(path = source.path, "listing again: {why}");
                // A list so long that its pages outlive their revision is asked for as a whole.
                means.pages &= before.is_some() || means.streams;
                state = Progress::Unknown;
                tokio::time::sleep(relists.spread(Instant::now()).mul_f64(rand::random())).await;
            }
            Interrupted::Failed(why) => {
                tracing::debug!(path = source.path, "watch interrupted: {why}");
                wait(&mut delays).await;
            }
        }
    }
}

/// Over which time the next list is spread: the more, the more often one revision after the other expires.
#[derive(Default)]
struct Relists {
    last: Option<(Instant, Duration)>,
}

impl Relists {
    fn spread(&mut self, now: Instant) -> Duration {
        let recent = self.last.filter(|(at, _)| now.duration_since(*at) < RELISTS_APART);
        let spread = recent.map_or(RELIST_SPREAD, |(_, before)| (before * 2).min(LONGEST_RELIST_SPREAD));
        self.last = Some((now, spread));
        spread
    }
}

/// Waits longer each time, and never as long as all the others do.
async fn wait(delays: &mut Backoff) {
    tokio::time::sleep(delays.next_delay().mul_f64(rand::random_range(1.0..1.5))).await;
}

fn version(state: &Progress) -> Option<&str> {
    match state {
        Progress::Unknown => None,
        Progress::Current(version) => Some(version),
    }
}

impl Source {
    async fn advance(&self, state: &mut Progress, means: Means, feed: &mut Feed) -> Result<(), Interrupted> {
        if matches!(state, Progress::Unknown) && !means.streams {
            *state = Progress::Current(self.list(means.pages, feed).await?);
            return Ok(());
        }
        self.watch(state, feed).await
    }

    /// For servers that cannot send a list as a watch.
    async fn list(&self, pages: bool, feed: &mut Feed) -> Result<String, Interrupted> {
        let mut parameters = ListParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            limit: pages.then_some(PAGE),
            ..ListParams::default()
        };
        loop {
            let request = Request::new(&self.path).list(&parameters).map_err(Error::BuildRequest)?;
            let text = self.client.request_text(request).await?;
            let page: Page = serde_json::from_str(&text).map_err(|e| Interrupted::Failed(e.to_string()))?;
            for item in page.items.unwrap_or_default() {
                self.report(feed.list(item.get()));
            }
            if page.metadata.r#continue.is_empty() {
                feed.listed();
                return Ok(page.metadata.resource_version);
            }
            parameters.continue_token = Some(page.metadata.r#continue);
        }
    }

    async fn watch(&self, state: &mut Progress, feed: &mut Feed) -> Result<(), Interrupted> {
        let seconds = rand::random_range(WATCH_SECONDS);
        let parameters = WatchParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            timeout: Some(seconds),
            bookmarks: true,
            send_initial_events: matches!(state, Progress::Unknown),
        };
        let from = version(state).unwrap_or_default();
        let request = Request::new(&self.path).watch(&parameters, from).map_err(Error::BuildRequest)?;
        let lines = match self.client.request_stream(request).await {
            Err(Error::Api(status)) if parameters.send_initial_events && matches!(status.code, 400 | 422) => {
                return Err(Interrupted::CannotStream);
            }
            other => other?,
        };
        let end = Duration::from_secs(seconds.into()) + SILENCE;
        match tokio::time::timeout(end, self.follow(&mut Box::pin(lines), state, feed)).await {
            Ok(why) => Err(why),
            Err(_elapsed) => Err(Interrupted::Failed("the connection is silent".into())),
        }
    }

    async fn follow(&self, lines: &mut Lines, state: &mut Progress, feed: &mut Feed) -> Interrupted {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = read_line(lines, &mut line);
            let read = if matches!(state, Progress::Unknown) {
                let Ok(read) = tokio::time::timeout(LIST_SILENCE, read).await else { return Interrupted::CannotStream };
                read
            } else {
                read.await
            };
            match read {
                Ok(true) => {}
                Ok(false) => return Interrupted::Ended,
                Err(error) => return Interrupted::Failed(error.to_string()),
            }
            let Some((kind, object)) = split(&line) else {
                return Interrupted::Failed("the server sent what is no event".into());
            };
            if let Err(why) = self.take(kind, object, state, feed) {
                return why;
            }
        }
    }

    fn take(&self, kind: &str, object: &str, state: &mut Progress, feed: &mut Feed) -> Result<(), Interrupted> {
        let seen = match (kind, &*state) {
            ("ADDED" | "MODIFIED", Progress::Unknown) => {
                self.report(feed.list(object));
                return Ok(());
            }
            ("ADDED" | "MODIFIED", Progress::Current(_)) => feed.apply(object),
            // What was listed a moment ago may go before the list is complete.
            ("DELETED", Progress::Unknown) => {
                self.report(feed.unlist(object));
                return Ok(());
            }
            ("DELETED", Progress::Current(_)) => feed.remove(object),
            ("BOOKMARK", _) => {
                let mark: Bookmark =
                    serde_json::from_str(object).map_err(|e| Interrupted::Failed(format!("a bookmark: {e}")))?;
                if matches!(state, Progress::Current(_)) {
                    *state = Progress::Current(mark.metadata.resource_version);
                } else if mark.metadata.annotations.get("k8s.io/initial-events-end").is_some_and(|end| end == "true") {
                    feed.listed();
                    *state = Progress::Current(mark.metadata.resource_version);
                } else {
                    // The first bookmark of a list says that it is complete, or nobody ever will.
                    return Err(Interrupted::CannotStream);
                }
                return Ok(());
            }
            ("ERROR", _) => {
                let status: Result<Status, _> = serde_json::from_str(object);
                return Err(status.map_or_else(|e| Interrupted::Failed(e.to_string()), Interrupted::from));
            }
            _ => return Ok(()),
        };
        if let (Some(Some(version)), Progress::Current(_)) = (self.report(seen), &*state) {
            *state = Progress::Current(version);
        }
        Ok(())
    }

    /// An object that cannot be read must not hide all others.
    fn report<T>(&self, decoded: Result<T, serde_json::Error>) -> Option<T> {
        decoded.inspect_err(|error| tracing::warn!(path = self.path, "an object cannot be read: {error}")).ok()
    }
}

/// Reads up to and without the line's end. False at the end of the stream.
async fn read_line(lines: &mut Lines, line: &mut Vec<u8>) -> std::io::Result<bool> {
    loop {
        let part = lines.fill_buf().await?;
        if part.is_empty() {
            return if line.is_empty() { Ok(false) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) };
        }
        let end = memchr::memchr(b'\n', part);
        let used = end.unwrap_or(part.len());
        line.extend_from_slice(&part[..used]);
        lines.consume_unpin(end.map_or(used, |end| end + 1));
        if line.len() > LONGEST_LINE {
            return Err(std::io::Error::other("a line of the watch is too long"));
        }
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// The type and the object of one event. Every known server writes these two fields and in this order, so that the
/// object need not be gone through twice.
fn split(line: &[u8]) -> Option<(&str, &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let quick = || {
        let (kind, rest) = line.strip_prefix(r#"{"type":""#)?.split_once('"')?;
        Some((kind, rest.strip_prefix(r#","object":"#)?.trim_ascii_end().strip_suffix('}')?))
    };
    quick().or_else(|| {
        let line: Line = serde_json::from_str(line).ok()?;
        Some((line.r#type, line.object.get()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_spread_the_more_the_sooner_revisions_expire() {
        let (start, mut relists) = (Instant::now(), Relists::default());
        let mut at = |seconds: u64| relists.spread(start + Duration::from_secs(seconds)).as_millis();
        assert_eq!([0, 1, 2, 3].map(&mut at), [500, 1000, 2000, 4000]);
        assert_eq!([10, 20, 30, 40].map(&mut at), [8000, 16000, 30000, 30000]);
        assert_eq!([159, 279, 280].map(&mut at), [30000, 500, 1000]);
    }

    #[test]
    fn events_are_split_whatever_their_order() {
        let cases: [(&str, Option<(&str, &str)>); 6] = [
            (r#"{"type":"ADDED","object":{"a":{}}}"#, Some(("ADDED", r#"{"a":{}}"#))),
            (r#"{"type":"DELETED","object":{"a":1}} "#, Some(("DELETED", r#"{"a":1}"#))),
            (r#"{"object":{"a":1},"type":"ADDED"}"#, Some(("ADDED", r#"{"a":1}"#))),
            (r#"{ "type": "ADDED", "object": {} }"#, Some(("ADDED", "{}"))),
            (r#"{"type":"ADDED"}"#, None),
            ("", None),
        ];
        for (line, expected) in cases {
            assert_eq!(split(line.as_bytes()), expected, "{line}");
        }
    }

    #[tokio::test]
    async fn lines_are_put_together_and_a_torn_one_is_an_error() {
        let parts = ["{\"a", "\":1}\n{}", "\n{\"to", "rn"].map(|part| Ok::<_, std::io::Error>(part.as_bytes()));
        let mut stream = futures::TryStreamExt::into_async_read(futures::stream::iter(parts));
        let mut line = Vec::new();
        for expected in ["{\"a\":1}", "{}"] {
            line.clear();
            assert!(read_line(&mut stream, &mut line).await.expect("a line"));
            assert_eq!(line, expected.as_bytes());
        }
        line.clear();
        assert!(read_line(&mut stream, &mut line).await.is_err());
    }
}

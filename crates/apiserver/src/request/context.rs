//! What is known of one request while it passes the pipeline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_connections::Peer;
use ferry_meta::{ApiError, UserInfo};
use ferry_registry::Resource;
use ferry_store::Revision;
use http::{HeaderMap, Method};
use parking_lot::Mutex;

use crate::observe::flight::Change;
use crate::request::info::RequestInfo;
use crate::request::negotiate::Negotiated;
use crate::request::query::Query;
use crate::write::fencing::Fence;
use crate::write::patching::PatchType;

/// The stages of a request, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Authentication,
    Authorization,
    Decode,
    Mutate,
    /// What the kind itself demands, before anybody else is asked whether it may be.
    Schema,
    Validate,
    Commit,
    /// Until the watch cache has handed it to the watchers.
    FanOut,
    Answer,
}

impl Stage {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Authentication,
        Self::Authorization,
        Self::Decode,
        Self::Mutate,
        Self::Schema,
        Self::Validate,
        Self::Commit,
        Self::FanOut,
        Self::Answer,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Authorization => "authorization",
            Self::Decode => "decode",
            Self::Mutate => "mutate",
            Self::Schema => "schema",
            Self::Validate => "validate",
            Self::Commit => "commit",
            Self::FanOut => "fan-out",
            Self::Answer => "answer",
        }
    }
}

/// When a request came in and when each stage was done with it.
#[derive(Debug)]
pub struct Stages {
    pub started: Instant,
    /// The lease that what is written depends on.
    pub(crate) fence: Option<Fence>,
    done: Mutex<Done>,
}

#[derive(Debug, Default)]
struct Done {
    stages: Vec<(Stage, Instant)>,
    commits: Vec<(Revision, Change)>,
    /// The webhooks that were called, in their order.
    calls: Vec<Call>,
}

/// What a request put into the store, and what that took.
pub(crate) struct Written {
    pub commits: Vec<(Revision, Change)>,
    pub calls: Vec<Call>,
    /// Microseconds, in the order of [`Stage::ALL`]; a stage that ran twice has both.
    pub stages: [u32; Stage::ALL.len()],
}

/// A webhook, and how long it took.
pub(crate) type Call = (String, Duration);

impl Stages {
    fn new(fence: Option<Fence>) -> Self {
        let done = Done { stages: Vec::with_capacity(8), ..Done::default() };
        Self { started: Instant::now(), fence, done: Mutex::new(done) }
    }

    pub(crate) fn done(&self, stage: Stage) {
        self.done.lock().stages.push((stage, Instant::now()));
    }

    /// The watchers have it.
    pub(crate) fn committed(&self, revision: Revision, change: Option<Change>) {
        let mut done = self.done.lock();
        done.stages.push((Stage::FanOut, Instant::now()));
        done.commits.extend(change.map(|change| (revision, change)));
    }

    pub(crate) fn called(&self, calls: Vec<Call>) {
        if !calls.is_empty() {
            self.done.lock().calls.extend(calls);
        }
    }

    /// What was written; once.
    pub(crate) fn take_written(&self) -> Option<Written> {
        let mut done = self.done.lock();
        if done.commits.is_empty() {
            return None;
        }
        let mut stages = [0_u32; Stage::ALL.len()];
        let mut last = self.started;
        for (stage, at) in &done.stages {
            let micros = u32::try_from(at.saturating_duration_since(last).as_micros()).unwrap_or(u32::MAX);
            last = *at;
            let place = &mut stages[*stage as usize];
            *place = place.saturating_add(micros);
        }
        Some(Written { commits: std::mem::take(&mut done.commits), calls: std::mem::take(&mut done.calls), stages })
    }

    /// How long each stage took; a stage that ran twice (a write that was tried again) is there twice.
    pub fn durations(&self) -> Vec<(Stage, Duration)> {
        let mut last = self.started;
        let done = self.done.lock();
        done.stages
            .iter()
            .map(|(stage, at)| {
                let took = at.saturating_duration_since(last);
                last = *at;
                (*stage, took)
            })
            .collect()
    }
}

pub(crate) struct RequestContext {
    pub method: Method,
    pub headers: HeaderMap,
    pub query: Query,
    /// As it came, for requests that are forwarded.
    pub raw_query: Option<String>,
    pub info: RequestInfo,
    /// The path as it came.
    pub raw_path: String,
    pub audit_id: String,
    /// None where the audit policy wants nothing of this request, or the caller is not known yet.
    pub audit: Option<Arc<ferry_audit::Record>>,
    pub received: jiff::Timestamp,
    /// Who decided on the request's turn.
    pub flow: Option<ferry_fairness::Flow>,
    pub peer: Peer,
    pub stages: Stages,
    /// Who is asking; nobody until authentication is done.
    pub user: UserInfo,
    /// The row the path names, once it is found.
    pub row: Option<Arc<Resource>>,
    /// What the content type of a PATCH says; the route reads it.
    pub patch: Option<PatchType>,
    pub negotiated: Negotiated,
    /// What came or goes as CBOR, which is turned into JSON and back at the edge.
    pub cbor: Cbor,
    /// By what of the console it was let in.
    pub admitted: Option<ferry_console::Admitted>,
    warnings: Mutex<Vec<String>>,
}

/// Which sides of a request are CBOR.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cbor {
    pub body: bool,
    pub answer: bool,
}

impl Cbor {
    /// Reads the headers, and turns them into those of the same request in JSON.
    fn take(headers: &mut HeaderMap) -> Self {
        use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
        let media = |text: &str| text.split(';').next().unwrap_or_default().trim().to_owned();
        let text = |headers: &HeaderMap, name| {
            headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (accept, content_type) = (text(headers, ACCEPT), text(headers, CONTENT_TYPE));
        let json = match &*media(&content_type) {
            "application/cbor" => Some("application/json"),
            "application/apply-patch+cbor" => Some("application/apply-patch+yaml"),
            _ => None,
        };
        if let Some(json) = json {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(json));
        }
        let answer = ["application/cbor", "application/cbor-seq"]
            .contains(&&*media(accept.split(',').next().unwrap_or_default()));
        if answer {
            let first = accept.split(',').next().unwrap_or_default();
            let first = first
                .replace("application/cbor-seq", "application/json")
                .replace("application/cbor", "application/json");
            headers
                .insert(ACCEPT, HeaderValue::from_str(&first).unwrap_or(HeaderValue::from_static("application/json")));
        }
        Self { body: json.is_some(), answer }
    }
}

/// A random identifier; the thread's own source of randomness spares a call of the kernel.
pub(crate) fn new_uid() -> String {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string()
}

/// How many bytes of warnings an answer carries at most; the rest are cut, as upstream does.
const WARNING_BYTES: usize = 4096;

impl RequestContext {
    /// `cbor` tells whether CBOR is spoken here at all.
    /// The headers are taken out of the request, unless they are other ones afterwards.
    pub(crate) fn new(request: &mut http::request::Parts, peer: Peer, cbor: bool) -> Self {
        let mut headers = if cbor { request.headers.clone() } else { std::mem::take(&mut request.headers) };
        let cbor = if cbor { Cbor::take(&mut headers) } else { Cbor::default() };
        let query = Query::parse(request.uri.query().unwrap_or_default());
        let info = RequestInfo::read(&request.method, request.uri.path(), &query);
        let given = headers.get("audit-id").and_then(|v| v.to_str().ok()).filter(|v| v.len() <= 64);
        let fence = Fence::of(&headers);
        Self {
            method: request.method.clone(),
            audit_id: given.map_or_else(new_uid, str::to_owned),
            headers,
            raw_query: request.uri.query().map(str::to_owned),
            raw_path: request.uri.path().to_owned(),
            query,
            info,
            audit: None,
            flow: None,
            received: ferry_meta::time::now(),
            peer,
            stages: Stages::new(fence),
            user: UserInfo::default(),
            row: None,
            patch: None,
            negotiated: Negotiated::default(),
            cbor,
            admitted: None,
            warnings: Mutex::default(),
        }
    }

    /// The request as it came, for whoever it is passed on to.
    pub(crate) fn restore<B>(&self, mut parts: http::request::Parts, body: B) -> http::Request<B> {
        if parts.headers.is_empty() {
            parts.headers = self.headers.clone();
        }
        http::Request::from_parts(parts, body)
    }

    pub(crate) fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock();
        let size: usize = warnings.iter().map(String::len).sum();
        if !text.is_empty() && size + text.len() <= WARNING_BYTES && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    pub(crate) fn patch_type(&self) -> Result<PatchType, ApiError> {
        self.patch.ok_or_else(|| ApiError::internal("a patch came here by no route"))
    }

    pub(crate) fn agent(&self) -> &str {
        self.header("user-agent")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }
}

//! From a request to its events.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ferry_meta::{Status, UserInfo, object, time};
use ferry_metrics::{Kind, Page, labels};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::event::{Event, Level, ObjectReference, ResponseStatus, Stage};
use crate::policy::{Policy, RequestAuditConfig, Subject};
use crate::{Backend, Receipt};

/// Annotations that one request may collect: plug-ins and webhooks add them, and webhooks are not ours.
const MOST_ANNOTATIONS: usize = 256;

pub struct Auditor {
    policy: Policy,
    backends: Vec<Arc<dyn Backend>>,
    events: AtomicU64,
}

/// What is known of a request when it comes in.
pub struct Facts<'a> {
    pub audit_id: &'a str,
    /// Path and query, as they came.
    pub request_uri: String,
    pub subject: Subject<'a>,
    pub api_version: &'a str,
    pub user_agent: &'a str,
    pub source_ips: Vec<String>,
    pub received: jiff::Timestamp,
}

impl Auditor {
    pub fn new(policy: Policy, backends: Vec<Arc<dyn Backend>>) -> Self {
        Self { policy, backends, events: AtomicU64::new(0) }
    }

    /// Upstream's figures, as metrics are told.
    pub fn metrics(&self) -> String {
        let mut page = Page::new();
        let help = "[ALPHA] Counter of audit events generated and sent to the audit backend.";
        page.family("apiserver_audit_event_total", Kind::Counter, help).sample("", self.events.load(Ordering::Relaxed));
        let help = "[ALPHA] Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.";
        let mut errors = page.family("apiserver_audit_error_total", Kind::Counter, help);
        for backend in &self.backends {
            errors.sample(&labels([("plugin", backend.name())]), backend.lost());
        }
        page.into_text()
    }

    /// None where the policy wants nothing of this request.
    pub fn begin(self: &Arc<Self>, facts: Facts<'_>) -> Option<Arc<Record>> {
        let verdict = self.policy.judge(&facts.subject);
        if verdict.level == Level::None {
            return None;
        }
        let received = time::micro_time(facts.received);
        let subject = &facts.subject;
        let object_ref = subject.is_resource.then(|| ObjectReference {
            resource: subject.resource.to_owned(),
            namespace: subject.namespace.to_owned(),
            name: subject.name.to_owned(),
            api_group: subject.group.to_owned(),
            api_version: facts.api_version.to_owned(),
            subresource: subject.subresource.to_owned(),
            ..ObjectReference::default()
        });
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: verdict.level,
            audit_id: facts.audit_id.to_owned(),
            stage: Stage::RequestReceived,
            request_uri: facts.request_uri,
            verb: subject.verb.to_owned(),
            user: subject.user.cloned().unwrap_or_default(),
            impersonated_user: None,
            source_ips: facts.source_ips,
            user_agent: facts.user_agent.to_owned(),
            object_ref,
            response_status: None,
            request_object: None,
            response_object: None,
            stage_timestamp: received.clone(),
            request_received_timestamp: received,
            annotations: Default::default(),
        };
        Some(Arc::new(Record { auditor: self.clone(), verdict, event: Mutex::new(event) }))
    }
}

/// The events of one request.
pub struct Record {
    auditor: Arc<Auditor>,
    verdict: RequestAuditConfig,
    event: Mutex<Event>,
}

impl Record {
    pub fn level(&self) -> Level {
        self.verdict.level
    }

    pub fn annotate(&self, key: &str, value: &str) {
        let annotations = &mut self.event.lock().annotations;
        if annotations.len() < MOST_ANNOTATIONS && !annotations.contains_key(key) {
            annotations.insert(key.to_owned(), value.to_owned());
        }
    }

    pub fn impersonated(&self, user: &UserInfo) {
        self.event.lock().impersonated_user = Some(user.clone());
    }

    /// What the request carries. `object` is asked for only where it is written.
    pub fn request_object(&self, named: &Value, object: impl FnOnce() -> Value) {
        let mut event = self.event.lock();
        if let Some(reference) = &mut event.object_ref {
            // The name of a new object stands in its body alone.
            for (field, value) in [
                (&mut reference.name, object::name(named)),
                (&mut reference.uid, object::uid(named)),
                (&mut reference.resource_version, object::resource_version(named)),
            ] {
                if field.is_empty() {
                    value.clone_into(field);
                }
            }
        }
        if self.verdict.level >= Level::Request && event.request_object.is_none() {
            event.request_object = self.raw(object());
        }
    }

    /// A patch is written as it came; YAML as the JSON it means.
    pub fn request_patch(&self, patch: impl FnOnce() -> Value) {
        if self.verdict.level >= Level::Request {
            self.event.lock().request_object = self.raw(patch());
        }
    }

    /// The answer's body, where it is JSON of an object.
    pub fn response_object(&self, json: &[u8]) {
        if self.verdict.level < Level::RequestResponse {
            return;
        }
        let raw = if self.verdict.omit_managed_fields {
            serde_json::from_slice(json).ok().and_then(|value| self.raw(value))
        } else {
            std::str::from_utf8(json).ok().and_then(|text| RawValue::from_string(text.trim_end().to_owned()).ok())
        };
        self.event.lock().response_object = raw;
    }

    fn raw(&self, mut value: Value) -> Option<Box<RawValue>> {
        if self.verdict.omit_managed_fields {
            remove_managed_fields(&mut value);
        }
        serde_json::value::to_raw_value(&value).ok()
    }

    /// The request is about to be looked at.
    #[must_use]
    pub fn received(&self) -> Vec<Receipt> {
        self.write(Stage::RequestReceived, None)
    }

    /// The headers of a long answer are out.
    #[must_use]
    pub fn started(&self, code: u16) -> Vec<Receipt> {
        self.write(Stage::ResponseStarted, Some(ResponseStatus::of(code, None)))
    }

    /// Nothing more is sent. `status` is the answer, where it is a Status.
    #[must_use]
    pub fn complete(&self, code: u16, status: Option<&Status>) -> Vec<Receipt> {
        self.write(Stage::ResponseComplete, Some(ResponseStatus::of(code, status)))
    }

    /// A caller whose credentials were refused.
    #[must_use]
    pub fn unauthenticated(&self, message: &str) -> Vec<Receipt> {
        let mut status = ResponseStatus::of(401, None);
        message.clone_into(&mut status.message);
        self.write(Stage::ResponseStarted, Some(status))
    }

    #[must_use]
    pub fn panicked(&self) -> Vec<Receipt> {
        let mut status = ResponseStatus::of(500, None);
        status.status = "Failure".into();
        status.reason = Some(json!("InternalError"));
        status.message = "APIServer panic'd".into();
        self.write(Stage::Panic, Some(status))
    }

    /// Whether the request is refused when its first event is not written.
    pub fn is_strict(&self) -> bool {
        self.auditor.backends.iter().any(|backend| backend.is_strict())
    }

    fn write(&self, stage: Stage, status: Option<ResponseStatus>) -> Vec<Receipt> {
        if self.verdict.omit_stages.contains(&stage) {
            return Vec::new();
        }
        let line = {
            let mut event = self.event.lock();
            event.stage = stage;
            if stage != Stage::RequestReceived {
                event.stage_timestamp = time::micro_time(time::now());
            }
            event.response_status = status;
            match serde_json::to_vec(&*event) {
                Ok(line) => Bytes::from(line),
                Err(error) => {
                    tracing::error!("an audit event cannot be written: {error}");
                    return Vec::new();
                }
            }
        };
        self.auditor.events.fetch_add(1, Ordering::Relaxed);
        self.auditor.backends.iter().filter_map(|backend| backend.write(&line)).collect()
    }
}

/// From an object, and from the items of a list.
fn remove_managed_fields(value: &mut Value) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        remove_managed_fields(item);
    }
}

/// Where a request came from: what proxies say of it, then the connection's other end.
pub fn source_ips(forwarded_for: &str, real_ip: &str, remote: Option<IpAddr>) -> Vec<String> {
    let mut all: Vec<String> = forwarded_for
        .split(',')
        .filter_map(|part| part.trim().parse::<IpAddr>().ok())
        .map(|address| address.to_string())
        .collect();
    if let Ok(address) = real_ip.parse::<IpAddr>()
        && !all.contains(&address.to_string())
    {
        all.push(address.to_string());
    }
    if let Some(remote) = remote
        && all.last() != Some(&remote.to_string())
    {
        all.push(remote.to_string());
    }
    all
}

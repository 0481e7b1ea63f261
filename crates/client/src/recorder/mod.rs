//! Records Events about objects, in the background, as upstream's recorders do: repeated ones are counted, floods cut.
//!
//! They are written behind what they tell of: while events keep coming (a thousand pods are being placed), they are
//! written one after the other, so that the work itself is not held up by them; once it is calmer, all at once.

mod correlate;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferry_semantics::token_bucket::TokenBucket;
use ferry_tasks::Tasks;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::write;
use correlate::{Correlated, Correlator, Key};

/// Events that wait to be written: many pods may be placed at once.
const QUEUE: usize = 32 * 1024;
/// Events being written at once.
const AT_ONCE: usize = 32;
/// The same while more keep coming and fewer than half of the queue wait.
const AT_ONCE_BEHIND: usize = 1;
/// How long nothing new comes before it is calm.
const CALM: Duration = Duration::from_millis(50);
const ATTEMPTS: u32 = 5;
const LONGEST_NAME: usize = 253;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

static LOST: AtomicU64 = AtomicU64::new(0);

/// Events that this process lost because too many waited.
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// What happened to an object, before it is correlated with what happened before.
#[derive(Clone, Debug)]
pub(crate) struct Happening {
    regarding: ObjectReference,
    kind: EventType,
    reason: String,
    message: String,
    at: Timestamp,
}

/// How many events are written per second, and how many at once before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRate {
    pub per_second: u32,
    pub burst: u32,
}

/// Hands events to a task that writes them. Recording never waits and never fails: when the queue is full, the event
/// is lost and a log line says so.
#[derive(Clone)]
pub struct Recorder {
    sender: Option<mpsc::Sender<Happening>>,
}

impl Recorder {
    /// `component` is the source's name, as in `deployment-controller` or `default-scheduler`.
    pub fn new(client: Client, component: &str, tasks: &Tasks) -> Self {
        Self::with_host(client, component, None, tasks)
    }

    /// A recorder of one node's component.
    pub fn with_host(client: Client, component: &str, host: Option<&str>, tasks: &Tasks) -> Self {
        Self::start(client, component, host, CALM, None, tasks)
    }

    /// A recorder of one node's component that writes so many and no more; those above wait.
    pub fn at_rate(client: Client, component: &str, host: &str, rate: Option<EventRate>, tasks: &Tasks) -> Self {
        Self::start(client, component, Some(host), CALM, rate, tasks)
    }

    fn start(
        client: Client,
        component: &str,
        host: Option<&str>,
        calm: Duration,
        rate: Option<EventRate>,
        tasks: &Tasks,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let source = EventSource { component: Some(component.to_owned()), host: host.map(str::to_owned) };
        let receiver = Arc::new(Mutex::new(receiver));
        tasks.spawn_restarted("recorder", move || {
            let bucket = rate.map(|rate| TokenBucket::new(rate.per_second, rate.burst));
            record(client.clone(), source.clone(), receiver.clone(), Pace::new(calm), bucket)
        });
        Self { sender: Some(sender) }
    }

    /// A recorder that drops everything.
    pub fn silent() -> Self {
        Self { sender: None }
    }

    pub fn event<K>(&self, object: &K, kind: EventType, reason: &str, message: impl Into<String>)
    where
        K: Resource,
        K::DynamicType: Default,
    {
        let mut reference = object.object_ref(&K::DynamicType::default());
        reference.resource_version = object.meta().resource_version.clone();
        self.event_for(reference, kind, reason, message);
    }

    pub fn event_for(&self, regarding: ObjectReference, kind: EventType, reason: &str, message: impl Into<String>) {
        let happening =
            Happening { regarding, kind, reason: reason.to_owned(), message: message.into(), at: Timestamp::now() };
        if let Some(sender) = &self.sender
            && let Err(error) = sender.try_send(happening)
        {
            LOST.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(reason, "an event was lost: {error}");
        }
    }
}

/// Several events are written at once, but those that are one object one after the other.
async fn record(
    client: Client,
    source: EventSource,
    receiver: Arc<Mutex<mpsc::Receiver<Happening>>>,
    mut pace: Pace,
    mut bucket: Option<TokenBucket>,
) {
    // Locked for as long as this runs; the next one takes over when it panics.
    let mut receiver = receiver.lock().await;
    let mut correlator = Correlator::default();
    let mut writing = FuturesUnordered::new();
    let mut names = HashSet::new();
    loop {
        let at_once = pace.at_once(receiver.len(), Instant::now());
        let happening = tokio::select! {
            biased;
            Some(written) = writing.next(), if !writing.is_empty() => {
                settle(&mut correlator, &mut names, written);
                continue;
            }
            happening = receiver.recv(), if writing.len() < at_once => happening,
        };
        let Some(happening) = happening else { return };
        pace.took(receiver.len());
        let work = match correlator.judge(&happening) {
            Correlated::Dropped => continue,
            Correlated::New { key, message } => {
                let event = event(&happening, &source, message, 1, happening.at);
                let name = event.metadata.name.clone().unwrap_or_default();
                correlator.written(key, name.clone(), happening.at);
                Work { key, name, patch: None, event }
            }
            Correlated::Seen { key, name, message, count, first } => {
                let patch = json!({ "count": count, "lastTimestamp": Time(happening.at), "message": message });
                Work { key, name, patch: Some(patch), event: event(&happening, &source, message, count, first) }
            }
        };
        while names.contains(&work.name) {
            let Some(written) = writing.next().await else { break };
            settle(&mut correlator, &mut names, written);
        }
        while let Some(Err(wait)) = bucket.as_mut().map(|bucket| bucket.take(Instant::now().into_std())) {
            tokio::select! {
                Some(written) = writing.next(), if !writing.is_empty() => settle(&mut correlator, &mut names, written),
                () = tokio::time::sleep(wait) => {}
            }
        }
        names.insert(work.name.clone());
        writing.push(write_event(&client, work));
    }
}

/// How many events are written at once.
struct Pace {
    /// After as long without a new one, no more are coming.
    calm: Duration,
    /// As many waited at the last look.
    waited: usize,
    /// When more waited than before.
    grew: Option<Instant>,
}

impl Pace {
    fn new(calm: Duration) -> Self {
        Self { calm, waited: 0, grew: None }
    }

    fn at_once(&mut self, waiting: usize, now: Instant) -> usize {
        if waiting > self.waited {
            self.grew = Some(now);
        }
        self.waited = waiting;
        let calm = self.grew.is_none_or(|grew| now.duration_since(grew) >= self.calm);
        if calm || waiting >= QUEUE / 2 { AT_ONCE } else { AT_ONCE_BEHIND }
    }

    /// One of them was taken, which left so many; others may have come at the same time.
    fn took(&mut self, left: usize) {
        self.waited = self.waited.saturating_sub(1).min(left);
    }
}

/// An event on its way to the server.
struct Work {
    key: Key,
    /// The object it is written to.
    name: String,
    /// What changes of the object; without it, it is new.
    patch: Option<serde_json::Value>,
    event: Event,
}

struct Written {
    key: Key,
    /// The object it was meant for, and the one it is in: none if the server refused it.
    meant: String,
    name: Option<String>,
}

fn settle(correlator: &mut Correlator, names: &mut HashSet<String>, written: Written) {
    let Written { key, meant, name } = written;
    names.remove(&meant);
    match name {
        None => correlator.refused(&key),
        Some(name) if name != meant => correlator.renamed(&key, name),
        Some(_) => {}
    }
}

async fn write_event(client: &Client, work: Work) -> Written {
    let Work { key, name: meant, patch, event } = work;
    if let Some(patch) = patch {
        let request = || requests(&event).patch(&meant, &PatchParams::default(), &Patch::Strategic(&patch));
        let patched = retried(|| async { write::send(client, request().map_err(kube::Error::BuildRequest)?).await });
        // The event's time to live may have ended.
        if !patched.await.is_err_and(|error| write::is_not_found(&error)) {
            return Written { key, name: Some(meant.clone()), meant };
        }
    }
    let name = create(client, &event).await;
    Written { key, meant, name }
}

fn requests(event: &Event) -> Request {
    Request::new(Event::url_path(&(), event.metadata.namespace.as_deref()))
}

async fn create(client: &Client, event: &Event) -> Option<String> {
    let body = serde_json::to_vec(event).ok()?;
    let request = || requests(event).create(&PostParams::default(), body.clone());
    let created = retried(|| async { write::send(client, request().map_err(kube::Error::BuildRequest)?).await });
    match created.await {
        Ok(()) => event.metadata.name.clone(),
        Err(error) => {
            let name = event.metadata.name.as_deref();
            tracing::debug!(name, "the server refused an event: {}", write::short(&error));
            None
        }
    }
}

/// Tries again while the server is away; what it refuses stays refused.
async fn retried<T, F, Fut>(mut attempt: F) -> Result<T, kube::Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, kube::Error>>,
{
    let mut delay = Duration::from_millis(200);
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(error) if write::status_of(&error).is_none_or(|status| status.code >= 500 || status.code == 429) => {
                tokio::time::sleep(delay).await;
                delay *= 3;
            }
            other => return other,
        }
    }
    attempt().await
}

fn namespace_of(regarding: &ObjectReference) -> &str {
    match regarding.namespace.as_deref() {
        None | Some("") => "default",
        Some(namespace) => namespace,
    }
}

fn event(happening: &Happening, source: &EventSource, message: String, count: i32, first: Timestamp) -> Event {
    let object = happening.regarding.name.as_deref().unwrap_or_default();
    let suffix = format!(".{:x}", happening.at.as_nanosecond());
    let mut end = object.len().min(LONGEST_NAME - suffix.len());
    while !object.is_char_boundary(end) {
        end -= 1;
    }
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}{suffix}", &object[..end])),
            namespace: Some(namespace_of(&happening.regarding).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: happening.regarding.clone(),
        reason: Some(happening.reason.clone()),
        message: Some(message),
        type_: Some(happening.kind.as_str().to_owned()),
        count: Some(count),
        first_timestamp: Some(Time(first)),
        last_timestamp: Some(Time(happening.at)),
        source: Some(source.clone()),
        reporting_component: source.component.clone(),
        reporting_instance: Some(source.host.clone().unwrap_or_default()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events that come together are written behind, and all of them are once no more come.
    #[tokio::test]
    async fn a_burst_is_written_behind_and_in_full() {
        const BURST: usize = 1000;
        let (told, mut hears) = mpsc::unbounded_channel();
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let opener = gate.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (told, gate) = (told.clone(), gate.clone());
            async move {
                let body = request.into_body().collect_bytes().await?;
                let event: Event = serde_json::from_slice(&body).expect("an event");
                told.send(event.involved_object.name).expect("the test listens");
                let _open = gate.acquire().await.expect("a gate");
                Ok::<_, kube::Error>(http::Response::new(kube::client::Body::from(b"{}".to_vec())))
            }
        });
        let tasks = Tasks::new("test");
        // Never calm, however slow the machine is.
        let recorder = Recorder::start(Client::new(service, "default"), "tester", None, Duration::MAX, None, &tasks);
        for number in 0..BURST {
            let regarding = ObjectReference { name: Some(format!("pod-{number}")), ..ObjectReference::default() };
            recorder.event_for(regarding, EventType::Normal, "Scheduled", "to a node");
        }
        let mut names = HashSet::new();
        for _ in 0..AT_ONCE_BEHIND {
            names.insert(hears.recv().await.expect("an event"));
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(hears.try_recv().is_err(), "more are written while many wait");
        opener.add_permits(AT_ONCE);
        while names.len() < BURST {
            names.insert(hears.recv().await.expect("an event"));
        }
        assert!(tasks.stop(Duration::from_secs(5)).await);
    }

    /// What is above the rate waits and is not lost.
    #[tokio::test]
    async fn a_rate_is_kept() {
        let (told, mut hears) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let told = told.clone();
            async move {
                told.send(Instant::now()).expect("the test listens");
                Ok::<_, kube::Error>(http::Response::new(kube::client::Body::from(b"{}".to_vec())))
            }
        });
        let (tasks, begin) = (Tasks::new("test"), Instant::now());
        let rate = Some(EventRate { per_second: 50, burst: 3 });
        let recorder = Recorder::at_rate(Client::new(service, "default"), "tester", "node", rate, &tasks);
        for number in 0..7 {
            let regarding = ObjectReference { name: Some(format!("pod-{number}")), ..ObjectReference::default() };
            recorder.event_for(regarding, EventType::Normal, "Scheduled", "to a node");
        }
        let mut at = Vec::new();
        while at.len() < 7 {
            at.push(hears.recv().await.expect("an event").duration_since(begin));
        }
        for (place, earliest) in [(3, 20), (4, 40), (5, 60), (6, 80)] {
            assert!(at[place] >= Duration::from_millis(earliest), "{at:?}");
        }
        assert!(tasks.stop(Duration::from_secs(5)).await);
    }

    #[test]
    fn the_pace_follows_what_waits() {
        let (mut pace, begin) = (Pace::new(CALM), Instant::now());
        let after = |millis| begin + Duration::from_millis(millis);
        assert_eq!(pace.at_once(0, begin), AT_ONCE);
        assert_eq!(pace.at_once(5, begin), AT_ONCE_BEHIND);
        assert_eq!(pace.at_once(5, after(49)), AT_ONCE_BEHIND);
        pace.took(5);
        assert_eq!(pace.at_once(5, after(49)), AT_ONCE_BEHIND, "another one came");
        assert_eq!(pace.at_once(5, after(98)), AT_ONCE_BEHIND);
        pace.took(4);
        assert_eq!(pace.at_once(4, after(99)), AT_ONCE);
        assert_eq!(pace.at_once(QUEUE / 2, after(99)), AT_ONCE);
    }

    #[test]
    fn an_event_names_its_object_and_source() {
        let regarding =
            ObjectReference { name: Some("node-1".into()), kind: Some("Node".into()), ..Default::default() };
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        let happening =
            Happening { regarding, kind: EventType::Warning, reason: "Why".into(), message: String::new(), at };
        let source = EventSource { component: Some("kubelet".into()), host: Some("node-1".into()) };
        let made = event(&happening, &source, "what".into(), 3, at);
        assert_eq!(made.metadata.name.as_deref(), Some("node-1.1886caf21c963200"));
        assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
        assert_eq!((made.count, made.type_.as_deref()), (Some(3), Some("Warning")));
        assert_eq!(made.reporting_component.as_deref(), Some("kubelet"));
    }
}

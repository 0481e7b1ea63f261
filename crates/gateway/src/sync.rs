//! The loop from the informers to the sockets and back to the statuses.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{EventType, Informers, Recorder, write};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use serde_json::json;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use crate::api::GROUP;
use crate::resolve::status::{self, Bound};
use crate::resolve::{Incremental, Settings, system_authorities};
use crate::serve::{AccessLog, Shared, Sockets};
use crate::sources::{Mailbox, Sources};
use crate::statuses::Statuses;
use crate::{CLASS, CONTROLLER, Config, INGRESS_CONTROLLER, crd};

const RETRY: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(100);
/// A port that is in use may become free without a word.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// What no table has any more is forgotten so long after a change, with what follows until then.
const FORGET: Duration = Duration::from_secs(5);
/// Events that are remembered so that they are not told again.
const MOST_TOLD: usize = 10_000;

pub async fn run(config: Config, client: Client, informers: &Informers, recorder: Recorder, tasks: &Tasks) {
    let served = prepare(&client).await;
    let sources = Sources::start(&client, informers, tasks, &served);
    let changed = Arc::new(Mailbox::default());
    sources.synced(&changed).await;
    let access_log = match &config.access_log {
        None => None,
        Some(path) => match AccessLog::open(path, tasks).await {
            Ok(log) => Some(log),
            Err(error) => {
                tracing::error!("requests are not logged: {} cannot be opened: {error}", path.display());
                None
            }
        },
    };
    let shared = Shared::new(tasks, access_log);
    if let Some(address) = config.metrics_bind_address {
        crate::serve::serve_metrics(address, &shared);
    }
    let settings = Settings { addresses: config.addresses.clone(), system_authorities: system_authorities() };
    let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
    let alias = settings.addresses.first().filter(|first| **first != loopback).map(|first| (*first, loopback));
    let mut controller = Loop {
        sockets: Sockets::new(shared.clone(), alias),
        statuses: Statuses::start(&client, &changed, tasks),
        incremental: Incremental::new(settings),
        bound: Bound::new(),
        told: HashSet::new(),
        look_again: None,
        forget: None,
        sources,
        changed,
        shared,
        recorder,
    };
    loop {
        off_the_worker(|| controller.turn());
        controller.wait().await;
    }
}

/// Tables of very many routes take their time, and others want to go on meanwhile.
fn off_the_worker(work: impl FnOnce()) {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

struct Loop {
    sources: Sources,
    changed: Arc<Mailbox>,
    incremental: Incremental,
    shared: Arc<Shared>,
    sockets: Sockets,
    statuses: Statuses,
    recorder: Recorder,
    bound: Bound,
    /// Events that were told.
    told: HashSet<(Option<String>, &'static str, String)>,
    /// When a port that was not to be had is tried again.
    look_again: Option<Instant>,
    /// When what no table has any more is forgotten.
    forget: Option<Instant>,
}

impl Loop {
    /// Does what has changed. First what is served, then what is told of it.
    fn turn(&mut self) {
        let ids = self.changed.take();
        self.statuses.seen(&ids);
        let mut effect = self.incremental.apply(ids.iter().filter_map(|id| self.sources.read(id)));
        let is_due = |time: Option<Instant>| time.is_some_and(|time| time <= Instant::now());
        if effect.tables || is_due(self.look_again) {
            self.serve(&mut effect.statuses);
        }
        // Connections to endpoints that are none any more end, whether or not any table is another one.
        if effect.endpoints_left {
            self.forget.get_or_insert_with(|| Instant::now() + FORGET);
        }
        let classes = &self.incremental.resolved().classes;
        self.shared.told.set(classes.iter().filter_map(|class| class.metadata.annotations.as_ref()));
        if is_due(self.forget) {
            self.forget = None;
            self.sockets.forget();
            self.incremental.forget();
        }
        if !effect.statuses.is_empty() {
            let (incremental, now) = (&self.incremental, now());
            let (objects, resolved) = (incremental.objects(), incremental.resolved());
            let update = |id| status::update(objects, resolved, &self.bound, incremental.settings(), id, &now);
            self.statuses.write(effect.statuses.iter().filter_map(update));
        }
    }

    fn serve(&mut self, statuses: &mut std::collections::BTreeSet<crate::resolve::Id>) {
        let bound = self.sockets.apply(&self.incremental.resolved().ports);
        if bound != self.bound {
            statuses.extend(self.incremental.statuses_of_sockets());
            self.bound = bound;
        }
        let is_short = self.bound.iter().any(|((_, port, _), outcome)| outcome.as_ref().ok() != Some(port));
        self.look_again = is_short.then(|| Instant::now() + LOOK_AGAIN);
        self.forget.get_or_insert_with(|| Instant::now() + FORGET);
        self.warn();
    }

    fn warn(&mut self) {
        for warning in status::warnings(self.incremental.objects(), self.incremental.resolved(), &self.bound) {
            if self.told.len() > MOST_TOLD {
                self.told.clear();
            }
            if self.told.insert((warning.uid.clone(), warning.reason, warning.message.clone())) {
                let group = if warning.kind == "Ingress" { "networking.k8s.io" } else { GROUP };
                let regarding = ObjectReference {
                    api_version: Some(format!("{group}/v1")),
                    kind: Some(warning.kind.to_owned()),
                    namespace: Some(warning.key.namespace),
                    name: Some(warning.key.name),
                    uid: warning.uid,
                    ..ObjectReference::default()
                };
                self.recorder.event_for(regarding, EventType::Warning, warning.reason, warning.message);
            }
        }
    }

    async fn wait(&self) {
        match [self.look_again, self.forget].into_iter().flatten().min() {
            None => self.changed.changed().await,
            Some(time) => {
                let _ = tokio::time::timeout_at(time, self.changed.changed()).await;
            }
        }
    }
}

fn now() -> String {
    let time = write::now();
    time.0.to_string()
}

/// Definitions and classes are there when this returns; gives the kinds that the server has.
async fn prepare(client: &Client) -> Vec<String> {
    let mut tries = 100;
    loop {
        let prepared = async {
            let expected = crd::install(client).await?;
            make_classes(client).await?;
            Ok::<_, kube::Error>((expected, crd::served(client).await?))
        };
        match prepared.await {
            Ok((expected, served)) => {
                let missing: Vec<_> = expected.into_iter().filter(|kind| !served.contains(kind)).collect();
                // Definitions take a moment. Somebody else's may never have the version that is read here.
                if missing.is_empty() || tries == 0 {
                    return served;
                }
                tries -= 1;
                tokio::time::sleep(SOON).await;
            }
            Err(error) => {
                tracing::info!("the gateway waits for its definitions: {}", write::short(&error));
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn make_classes(client: &Client) -> Result<(), kube::Error> {
    let labels = json!({ "app.kubernetes.io/managed-by": "ferry" });
    let classes = [
        (
            format!("/apis/{GROUP}/v1/gatewayclasses"),
            json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "GatewayClass",
                "metadata": { "name": CLASS, "labels": labels },
                "spec": { "controllerName": CONTROLLER },
            }),
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses".to_owned(),
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
                "metadata": { "name": CLASS, "labels": labels },
                "spec": { "controller": INGRESS_CONTROLLER },
            }),
        ),
    ];
    for (path, class) in classes {
        let body = serde_json::to_vec(&class).map_err(kube::Error::SerdeError)?;
        let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json").body(body);
        match write::send(client, request.map_err(kube::Error::HttpError)?).await {
            Err(error) if !write::is_already_exists(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

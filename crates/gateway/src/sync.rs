//! The loop from the informers to the sockets and back to the statuses.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{EventType, Informers, Recorder, write};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use crate::api::GROUP;
use crate::definitions::{self, prepare};
use crate::keys::{self, Copies};
use crate::resolve::status::{self, Bound};
use crate::resolve::{Changed, Incremental, Report, Settings, in_use, system_authorities};
use crate::serve::{AccessLog, Shared, Sockets};
use crate::sources::{Mailbox, Sources, ingress_classes};
use crate::statuses::Statuses;
use crate::{Config, Keys, Role};

/// A port that is in use may become free without a word.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// What no table has any more is forgotten so long after a change, with what follows until then.
const FORGET: Duration = Duration::from_secs(5);
/// Events that are remembered so that they are not told again.
const MOST_TOLD: usize = 10_000;

pub async fn run(config: Config, client: Client, informers: &Informers, role: Role, recorder: Recorder, tasks: &Tasks) {
    let classes = ingress_classes(&client, tasks);
    let (served, is_prepared) = definitions::ready(&client, &classes, &role.leads).await;
    let sources = Sources::start(&client, informers, classes, &role, tasks, &served);
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
    let settings =
        Settings { addresses: config.addresses.clone(), system_authorities: system_authorities(), leads: false };
    let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
    let alias = settings.addresses.first().filter(|first| **first != loopback).map(|first| (*first, loopback));
    let mut controller = Loop {
        sockets: Sockets::new(shared.clone(), alias),
        statuses: Statuses::start(&client, &changed, tasks),
        copies: Copies::start(&client, tasks),
        incremental: Incremental::new(settings),
        bound: Bound::new(),
        told: HashSet::new(),
        look_again: None,
        forget: None,
        sources,
        changed,
        shared,
        recorder,
        is_prepared,
        role,
        client,
        tasks: tasks.clone(),
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
    copies: Copies,
    recorder: Recorder,
    role: Role,
    client: Client,
    tasks: Tasks,
    /// This process has made definitions and classes.
    is_prepared: bool,
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
        let mut changes: Vec<_> = ids.iter().filter_map(|id| self.sources.read(id)).collect();
        let leads = *self.role.leads.borrow_and_update();
        let is_new = leads != self.incremental.settings().leads;
        if is_new {
            changes.push(Changed::Leads(leads));
            self.led(leads);
        }
        let mut effect = self.incremental.apply(changes);
        let is_due = |time: Option<Instant>| time.is_some_and(|time| time <= Instant::now());
        if effect.tables || is_due(self.look_again) {
            self.serve(&mut effect.statuses);
            self.report();
        } else if self.role.report.borrow().is_none() {
            self.report();
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
        if !leads {
            return;
        }
        if !effect.statuses.is_empty() {
            let (incremental, now) = (&self.incremental, now());
            let (objects, resolved) = (incremental.objects(), incremental.resolved());
            let update = |id| status::update(objects, resolved, &self.bound, incremental.settings(), id, &now);
            self.statuses.write(effect.statuses.iter().filter_map(update));
        }
        if effect.tables || effect.machines || is_new {
            self.warn();
        }
        if effect.keys || is_new {
            self.hand_over();
        }
        if ids.iter().any(|id| id.kind == "Secret" && id.key.namespace == keys::NAMESPACE) {
            self.copies.look();
        }
    }

    /// It leads from now on, or does not any more.
    fn led(&mut self, leads: bool) {
        self.told.clear();
        if leads && !std::mem::replace(&mut self.is_prepared, true) {
            // The definitions that are there may be of an older release.
            let client = self.client.clone();
            self.tasks.spawn_until_stopped("gateway definitions", async move { drop(prepare(&client).await) });
        }
        if !leads {
            self.statuses.clear();
            self.copies.want(None);
        }
    }

    /// Tells the others what this machine serves.
    fn report(&self) {
        let needs_keys = self.role.keys == Keys::Handed;
        let report = Report::new(&self.incremental.settings().addresses, needs_keys, &self.bound).text();
        self.role.report.send_if_modified(|known| {
            let is_other = known.as_ref() != Some(&report);
            *known = Some(report);
            is_other
        });
    }

    /// Nodes get the keys that are in use.
    fn hand_over(&self) {
        let (objects, resolved) = (self.incremental.objects(), self.incremental.resolved());
        let mut copies = std::collections::BTreeMap::new();
        if objects.machines.need_keys() {
            for (source, parts) in in_use(objects, resolved) {
                let (secret, map) = (self.sources.secret(&source.key), self.sources.config_map(&source.key));
                let copy = keys::copy(&source, parts, secret.as_deref(), map.as_deref());
                copies.extend(copy.map(|copy| (keys::name(source.kind, &source.key), copy)));
            }
        }
        self.copies.want(Some(copies));
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

    async fn wait(&mut self) {
        let due = [self.look_again, self.forget].into_iter().flatten().min();
        tokio::select! {
            () = self.changed.changed() => {}
            Ok(()) = self.role.leads.changed() => {}
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}

fn now() -> String {
    let time = write::now();
    time.0.to_string()
}

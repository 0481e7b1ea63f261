//! Which pods there are: a worker for each pod of the node, woken when the API server or the runtime has news.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_client::{Change, EventType, Informer};
use ferry_tasks::Tasks;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::admit;
use crate::context::Context;
use crate::events::PodEvents;
use crate::eviction;
use crate::logs::{self, FolderWatch};
use crate::mailboxes::{Admitted, Mailboxes};
use crate::manifests::{self, Files, Manifests};
use crate::metrics::Counter;
use crate::pod;
use crate::pod_task::PodTask;
use crate::preempt;
use crate::runtime::Glimpse;
use crate::status::WaitReason;
use crate::volumes::blocking;
use crate::worker::{EndReason, Mailbox};

/// How often a runtime without events is looked at.
const RELIST: Duration = Duration::from_secs(1);
/// With events, a look now and then catches what a lost event would hide.
const SAFETY_RELIST: Duration = Duration::from_secs(60);
const RECONNECT: Duration = Duration::from_secs(1);
/// Folders of pods that are removed at the same time.
const STRAYS_AT_ONCE: usize = 16;

pub(crate) struct Manager {
    context: Arc<Context>,
    pods: Informer<Pod>,
    mailboxes: Mailboxes,
    tasks: Tasks,
    /// The files have been read: from now on, what is in none of them is not wanted.
    files_read: watch::Sender<bool>,
    /// A pod from a file has ended.
    static_ended: Arc<Notify>,
    /// Pods that have no mailbox yet: they may hold something of the node already.
    admitted: Admitted,
}

impl Manager {
    pub(crate) fn new(context: Arc<Context>, pods: Informer<Pod>, mailboxes: Mailboxes, tasks: &Tasks) -> Self {
        let files_read = watch::Sender::new(context.config.manifests.is_none());
        Self {
            context,
            pods,
            mailboxes,
            tasks: tasks.clone(),
            files_read,
            static_ended: Arc::default(),
            admitted: Admitted::default(),
        }
    }

    /// Starts following both the API server and the runtime.
    pub(crate) fn start(self) {
        let manager = Arc::new(self);
        if let Some(manifests) = manager.context.config.manifests.clone() {
            let files = manager.clone();
            manager.tasks.spawn_critical("manifests", move || {
                let (manager, manifests) = (files.clone(), manifests.clone());
                async move { manager.follow_files(manifests).await }
            });
        }
        let follow = manager.clone();
        manager.tasks.spawn_critical("pods", move || {
            let manager = follow.clone();
            async move { manager.follow_pods().await }
        });
        let watch = manager.clone();
        manager.tasks.spawn_critical("runtime", move || {
            let manager = watch.clone();
            async move { manager.follow_runtime().await }
        });
    }

    async fn follow_pods(&self) {
        let mut changes = self.pods.subscribe();
        let _ = self.files_read.subscribe().wait_for(|read| *read).await;
        self.end_missed().await;
        loop {
            match changes.next().await {
                Change::Added(pod) | Change::Modified { new: pod, .. } if pod::is_mirror(&pod) => {
                    self.context.mirrors.put(&pod);
                    if !self.context.mirrors.stands_for_one(&pod) {
                        self.remove_mirror(pod);
                    }
                }
                Change::Deleted(pod) if pod::is_mirror(&pod) => self.context.mirrors.gone(&pod),
                // A panic is a bug of one pod: the others are run all the same.
                Change::Added(pod) | Change::Modified { new: pod, .. } => {
                    let name = pod::name(&pod).to_owned();
                    if AssertUnwindSafe(self.deliver(pod)).catch_unwind().await.is_err() {
                        tracing::error!(pod = name, "a pod is not run: to take it made a panic");
                    }
                }
                Change::Deleted(pod) => {
                    if let Some(mailbox) = self.mailboxes.get(pod::uid(&pod)) {
                        mailbox.put_gone();
                    }
                }
            }
        }
    }

    /// An earlier life of the loop may have ended before it was told that a pod is gone.
    async fn end_missed(&self) {
        let followed = self.mailboxes.of_the_api();
        if followed.is_empty() {
            return;
        }
        self.pods.synced().await;
        let there = self.pods.list();
        for mailbox in followed.iter().filter(|mailbox| !there.iter().any(|pod| mailbox.is_of(pod::uid(pod)))) {
            mailbox.put_gone();
        }
    }

    async fn deliver(&self, pod: Arc<Pod>) {
        let uid = pod::uid(&pod).to_owned();
        if let Some(mailbox) = self.mailboxes.get(&uid) {
            return mailbox.put(pod);
        }
        let mailbox = Mailbox::new(pod.clone());
        let _admitted = self.admitted.begin(&uid);
        if let Some(why) = self.refusal(&pod).await {
            self.context.metrics.refused(&why.reason);
            PodEvents { recorder: &self.context.recorder, pod: &pod }.pod(
                EventType::Warning,
                &why.reason,
                why.message.clone(),
            );
            mailbox.refuse(WaitReason { message: format!("Pod was rejected: {}", why.message), ..why });
        }
        self.mailboxes.put(uid, mailbox.clone());
        if pod::is_static(&pod) {
            self.context.mirrors.begins(&pod);
        }
        let task = PodTask {
            context: self.context.clone(),
            mailboxes: self.mailboxes.clone(),
            ended: self.static_ended.clone(),
            tasks: self.tasks.clone(),
        };
        // A worker that falls starts again as after a restart of the kubelet: it looks at what is there.
        self.tasks.spawn_restarted("pod", move || task.clone().run(pod.clone(), mailbox.clone()));
    }

    /// Nothing of this node stands behind it any more.
    fn remove_mirror(&self, mirror: Arc<Pod>) {
        let context = self.context.clone();
        self.tasks.spawn_until_stopped("mirror", async move {
            if let Err(why) = manifests::remove(&context, &mirror).await {
                tracing::debug!(pod = pod::name(&mirror), "a mirror of nothing is not removed: {why}");
            }
        });
    }

    /// Runs the pods that stand in files, and ends those that do not any more.
    async fn follow_files(&self, manifests: Manifests) {
        let node = &self.context.config.node_name;
        let mut files = Files::default();
        let watch = folder_of(&manifests.path).and_then(|folder| FolderWatch::new(&folder).ok());
        loop {
            let pods = files.read(&manifests, node);
            let running = self.mailboxes.statics();
            for mailbox in running.iter().filter(|mailbox| !pods.iter().any(|pod| mailbox.is_of(pod::uid(pod)))) {
                mailbox.put_removed();
            }
            for pod in pods {
                let same =
                    |other: &Pod| (pod::namespace(other), pod::name(other)) == (pod::namespace(&pod), pod::name(&pod));
                // Also one that changed: the old one ends first, for both have one name.
                if !running.iter().any(|mailbox| same(&mailbox.pod())) {
                    self.deliver(Arc::new(pod)).await;
                }
            }
            self.files_read.send_replace(true);
            let changed = async {
                match &watch {
                    Some(watch) if watch.changed().await.is_ok() => {}
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = self.static_ended.notified() => {}
                () = tokio::time::sleep(self.context.config.settings.file_check) => {}
            }
        }
    }

    /// A pod with a start time was taken before, by this kubelet or one that ran here earlier.
    async fn refusal(&self, new: &Arc<Pod>) -> Option<WaitReason> {
        let status = pod::status(new);
        if pod::is_terminal(status) || pod::is_being_deleted(new) {
            return None;
        }
        if status.start_time.is_some() {
            return self.allocate(new).await.err();
        }
        if let Some(why) = self.context.shutdown.refusal() {
            return Some(why);
        }
        if let Some(why) = eviction::refusal(new, &self.context.pressure.signals.borrow()) {
            return Some(why);
        }
        if let Some(why) = self.context.config.sysctls.refusal(new) {
            return Some(why);
        }
        let why = match self.allocate(new).await {
            Ok(()) => self.refusal_by_the_rest(new).await,
            Err(why) => Some(why),
        };
        if why.is_some() {
            self.context.hardware.give_back(pod::uid(new)).await;
        }
        why
    }

    /// Gives a pod its CPUs and its memory, and sets devices aside; one that was taken before has them from then.
    async fn allocate(&self, new: &Arc<Pod>) -> Result<(), WaitReason> {
        let (context, new) = (self.context.clone(), new.clone());
        // Which pods there are is known for sure only when both the API server and the files have told.
        let all_known = *self.files_read.borrow() && self.pods.synced().now_or_never().is_some();
        let mut gone = if all_known { context.hardware.holders_at_nodes() } else { HashSet::new() };
        gone.retain(|uid| !self.mailboxes.knows(uid, &self.admitted) && !self.is_wanted(uid));
        let allocate = move || {
            for uid in &gone {
                context.hardware.cpus.release(uid);
                context.hardware.memory.release(uid);
            }
            Ok(context.hardware.admit(&new))
        };
        blocking(allocate)
            .await
            .unwrap_or_else(|message| Err(WaitReason { reason: "UnexpectedAdmissionError".to_owned(), message }))
    }

    async fn refusal_by_the_rest(&self, new: &Pod) -> Option<WaitReason> {
        // Where the runtime does not answer, whoever makes the containers asks it again.
        if let Ok(abilities) = self.context.abilities().await
            && let Some(why) = admit::unable(new, &abilities, self.context.machine.apparmor)
        {
            return Some(why);
        }
        let node = self.node_for(new).await;
        let active = self.mailboxes.active();
        let taken: Vec<Arc<Pod>> = active.iter().map(|mailbox| mailbox.pod()).collect();
        let others: Vec<&Pod> = taken.iter().map(|pod| &**pod).collect();
        let allocatable = self.context.amounts().allocatable;
        let refused = admit::refusal(new, others.iter().copied(), &allocatable, node.as_deref())?;
        if !eviction::is_critical(new) || refused.lacks.is_empty() {
            return Some(refused.why);
        }
        match preempt::victims(new, &others, &refused.lacks) {
            Ok(victims) => {
                let chosen = active.iter().filter(|m| victims.iter().any(|victim| m.is_of(pod::uid(victim))));
                for mailbox in chosen {
                    self.preempt(mailbox);
                    self.context.pressure.ended.preempted(refused.lacks.first().map_or("", |(key, _)| key));
                }
                None
            }
            Err(why) => Some(WaitReason {
                reason: "UnexpectedAdmissionError".into(),
                message: format!(
                    "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: {why}"
                ),
            }),
        }
    }

    /// The Node that the pod is held against. Whoever bound the pod may have seen labels and taints that this kubelet has
    /// not seen yet: where they do not fit, the API server is asked. None where it does not answer: a pod is not ended for
    /// good by what was true once.
    async fn node_for(&self, new: &Pod) -> Option<Arc<Node>> {
        let known = self.context.node();
        if !admit::belongs_elsewhere(new, &known) {
            return Some(known);
        }
        match crate::node::api(&self.context.client).get(&self.context.config.node_name).await {
            Ok(fresh) => Some(Arc::new(fresh)),
            Err(error) => {
                tracing::warn!(pod = pod::name(new), "taken as it was bound, the Node cannot be read: {error}");
                None
            }
        }
    }

    /// Ends a pod for the sake of a critical one.
    fn preempt(&self, mailbox: &Mailbox) {
        let (reason, message) = ("Preempting", "Preempted in order to admit critical pod");
        let pod = mailbox.pod();
        PodEvents { recorder: &self.context.recorder, pod: &pod }.pod(EventType::Warning, reason, message);
        let why = WaitReason { reason: reason.into(), message: message.into() };
        let disrupts = Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned());
        mailbox.end_for(EndReason { why, disrupts }, pod::grace_seconds(&pod));
    }

    async fn follow_runtime(&self) {
        self.pods.synced().await;
        let _ = self.files_read.subscribe().wait_for(|read| *read).await;
        self.remove_stray_folders().await;
        let mut known = HashMap::new();
        let mut cleaning = Cleaning::default();
        loop {
            match self.context.runtime.events().await {
                Ok(Some(mut events)) => loop {
                    self.relist(&mut known, &mut cleaning).await;
                    let wait = tokio::time::sleep(SAFETY_RELIST);
                    tokio::pin!(wait);
                    let alive = loop {
                        tokio::select! {
                            event = events.next() => match event {
                                Some(uid) => {
                                    self.mailboxes.wake(&uid);
                                    self.context.runtime_state.changes.send_modify(|count| *count += 1);
                                }
                                None => break false,
                            },
                            () = &mut wait => break true,
                        }
                    };
                    if !alive {
                        break;
                    }
                },
                // CRI has no other way to learn of an exit here than to look.
                Ok(None) => loop {
                    self.relist(&mut known, &mut cleaning).await;
                    tokio::time::sleep(RELIST).await;
                },
                Err(error) => tracing::debug!("the runtime offers no events now: {error}"),
            }
            tokio::time::sleep(RECONNECT).await;
        }
    }

    /// Looks at all pods of the runtime: wakes the workers of those that changed, and removes those of nobody.
    async fn relist(&self, known: &mut HashMap<String, Glimpse>, cleaning: &mut Cleaning) {
        let since = Instant::now();
        let seen = match self.context.runtime.glimpse().await {
            Ok(seen) => seen,
            Err(error) => return tracing::debug!("the runtime does not answer: {error}"),
        };
        self.context.metrics.relisted(since);
        if *known != seen {
            self.context.runtime_state.changes.send_modify(|count| *count += 1);
        }
        for (uid, glimpse) in &seen {
            if known.get(uid) != Some(glimpse) {
                self.mailboxes.wake(uid);
            }
            if self.mailboxes.get(uid).is_none() && !self.is_wanted(uid) && cleaning.begin(uid) {
                self.clean_orphan(uid.clone(), glimpse.clone(), cleaning.clone());
            }
        }
        for uid in known.keys().filter(|uid| !seen.contains_key(*uid)) {
            self.mailboxes.wake(uid);
        }
        *known = seen;
    }

    fn is_wanted(&self, uid: &str) -> bool {
        self.pods.list().iter().any(|pod| self.context.mirrors.runtime_uid(pod).as_deref() == Some(uid))
    }

    fn clean_orphan(&self, uid: String, glimpse: Glimpse, cleaning: Cleaning) {
        let context = self.context.clone();
        tracing::info!(pod = glimpse.name, namespace = glimpse.namespace, "removing what is left of a deleted pod");
        context.metrics.count(Counter::OrphanedPods, &[]);
        self.tasks.spawn_until_stopped("orphan", async move {
            if let Ok(state) = context.runtime.pod(&uid).await {
                let stops = state.running().map(|record| context.runtime.stop_container(&record.id, 2));
                futures::future::join_all(stops).await;
                match context.remove_remains(&uid, &state).await {
                    Ok(()) => {
                        let folder = format!("{}_{}_{uid}", glimpse.namespace, glimpse.name);
                        logs::remove(context.config.log_dir.join(folder)).await;
                    }
                    Err(why) => tracing::warn!(pod = glimpse.name, "not removed: {why}"),
                }
            }
            cleaning.end(&uid);
        });
    }

    /// Folders and control groups of pods that neither the API server nor the runtime knows.
    async fn remove_stray_folders(&self) {
        let Ok(seen) = self.context.runtime.glimpse().await else { return };
        let stray = |uid: &String| !seen.contains_key(uid) && !self.is_wanted(uid) && self.mailboxes.get(uid).is_none();
        for uid in self.context.hardware.groups.known().into_iter().filter(stray) {
            self.context.hardware.groups.remove(&uid).await;
        }
        // Together: a share whose server is dead takes its time.
        let strays = self.context.volumes.known().await.into_iter().filter(stray);
        let removed = futures::stream::iter(strays).for_each_concurrent(STRAYS_AT_ONCE, |uid| async move {
            let _ = self.context.volumes.remove(&uid).await;
        });
        removed.await;
        let hardware = &self.context.hardware;
        let holders =
            hardware.devices.holders().into_iter().chain(hardware.dra.users()).chain(hardware.holders_at_nodes());
        for uid in holders.filter(stray).collect::<Vec<_>>() {
            if let Err(why) = self.context.give_devices_back(&uid).await {
                tracing::warn!(pod = uid, "devices of a pod that is gone are not given back: {why}");
            }
        }
    }
}

/// What is watched for the sake of a path: the folder itself, or that of a file.
fn folder_of(path: &Path) -> Option<PathBuf> {
    if path.is_dir() { Some(path.to_owned()) } else { path.parent().map(Path::to_owned) }
}

/// The orphans that are being removed.
#[derive(Clone, Default)]
struct Cleaning(Arc<Mutex<HashSet<String>>>);

impl Cleaning {
    fn begin(&self, uid: &str) -> bool {
        self.0.lock().insert(uid.to_owned())
    }

    fn end(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

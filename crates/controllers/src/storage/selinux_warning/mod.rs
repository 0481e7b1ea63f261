//! Warns of pods that share a volume and cannot share a node: a volume is mounted with one SELinux label, and pods with
//! others, or with another way to put labels on, have to wait. Only events and figures come of it. As upstream's it is
//! off unless `--controllers` names it: it takes for granted that the nodes have SELinux.

mod labels;
mod users;

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Change, Error, EventType, Index, Informer, ObjectKey, Recorder, WorkQueue};
use k8s_openapi::api::core::v1::{FCVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, Volume as PodVolume};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::ResourceExt;
use parking_lot::Mutex;

use self::users::{Use, Users};
use super::attach_detach::unique_name;
use super::ephemeral;
use super::protection::claims_of;
use crate::Context;
use crate::common::pod;

const NAME: &str = "selinux-warning-controller";
const RECURSIVE: &str = "Recursive";

struct Reconciler {
    recorder: Recorder,
    pods: Informer<Pod>,
    by_claim: Index<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    drivers: Informer<CSIDriver>,
    users: Mutex<Users>,
    queue: WorkQueue<ObjectKey>,
}

/// A volume whose label is a matter of how it is mounted.
struct Target {
    name: String,
    /// Empty unless a driver of the cluster's makes it.
    driver: String,
    /// Whether it can be mounted with a label; otherwise every file gets one.
    mounts_labels: bool,
}

pub(crate) fn start(context: &Context) {
    let pods = context.informers.of::<Pod>();
    let by_claim = pods.index("claim", |pod: &Pod| {
        let namespace = pod.namespace().unwrap_or_default();
        claims_of(pod).into_iter().map(|claim| format!("{namespace}/{claim}")).collect()
    });
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(context.client(NAME), "selinux_warning", &context.tasks),
        by_claim,
        pods,
        claims: context.informers.of(),
        volumes: context.informers.of(),
        drivers: context.informers.of(),
        users: Mutex::default(),
        queue: context.queue("selinux_warning"),
    });
    let figures = this.clone();
    context.config.metrics.add_text(move || figures.users.lock().metrics());
    watch(&this);
    let synced = this.clone();
    let ready = async move {
        synced.pods.synced().await;
        synced.claims.synced().await;
        synced.volumes.synced().await;
        synced.drivers.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key) }
    });
}

fn watch(this: &Arc<Reconciler>) {
    // What matters of a pod does not change while it runs; its end does.
    let handler = this.clone();
    this.pods.on_change(move |change| {
        let running = matches!(change, Change::Modified { new, .. } if !pod::is_terminal(new));
        if !running {
            handler.queue.add(ObjectKey::of(&**change.object()));
        }
    });
    let handler = this.clone();
    this.claims.on_change(move |change| {
        let volume = |claim: &PersistentVolumeClaim| claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let claim = change.object();
        if volume(claim) != change.old().and_then(|old| volume(old)) {
            handler.add_users(&claim.namespace().unwrap_or_default(), &claim.name_any());
        }
    });
    let handler = this.clone();
    this.volumes.on_change(move |change| {
        let claim = |volume: &PersistentVolume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone())?;
            claim.uid.is_some().then_some(claim)
        };
        let now = claim(change.object());
        let before = change.old().and_then(|old| claim(old));
        if let Some(now) = now.filter(|now| before.is_none_or(|before| before.uid != now.uid)) {
            handler.add_users(&now.namespace.unwrap_or_default(), &now.name.unwrap_or_default());
        }
    });
    let handler = this.clone();
    this.drivers.on_change(move |change| {
        let keys = handler.users.lock().of_driver(&change.object().name_any());
        keys.into_iter().for_each(|key| handler.queue.add(key));
    });
}

/// As upstream prints a list of names.
fn list(names: Option<&Vec<String>>) -> String {
    format!("[{}]", names.map(|names| names.join(" ")).unwrap_or_default())
}

fn fibre_channel(source: &FCVolumeSource) -> String {
    match source.lun.filter(|_| source.target_wwns.as_ref().is_some_and(|names| !names.is_empty())) {
        Some(lun) => format!("kubernetes.io/fc/{}:{lun}", list(source.target_wwns.as_ref())),
        None => format!("kubernetes.io/fc/{}", list(source.wwids.as_ref())),
    }
}

impl Reconciler {
    fn add_users(&self, namespace: &str, claim: &str) {
        for pod in self.by_claim.get(&format!("{namespace}/{claim}")) {
            self.queue.add(ObjectKey::of(&*pod));
        }
    }

    /// None while its claim is not bound, and for volumes on which labels are never a matter of mounting.
    fn target(&self, pod: &Pod, volume: &PodVolume) -> Option<Target> {
        let of_plugin = |name: String| Some(Target { name, driver: String::new(), mounts_labels: true });
        if let Some(source) = &volume.fc {
            return of_plugin(fibre_channel(source));
        }
        if let Some(source) = &volume.iscsi {
            return of_plugin(format!("kubernetes.io/iscsi/{}:{}:{}", source.target_portal, source.iqn, source.lun));
        }
        let claim = match &volume.persistent_volume_claim {
            Some(source) => source.claim_name.clone(),
            None => volume.ephemeral.as_ref().map(|_| ephemeral::claim_name(pod, &volume.name))?,
        };
        let claim = self.claims.get(&pod.namespace().unwrap_or_default(), &claim)?;
        let bound = self.volumes.get("", claim.spec.as_ref()?.volume_name.as_deref()?)?;
        let spec = bound.spec.as_ref()?;
        if spec.claim_ref.as_ref().is_none_or(|of| of.uid != claim.metadata.uid) {
            return None;
        }
        if let Some(source) = &spec.fc {
            return of_plugin(fibre_channel(source));
        }
        if let Some(source) = &spec.iscsi {
            return of_plugin(format!("kubernetes.io/iscsi/{}:{}:{}", source.target_portal, source.iqn, source.lun));
        }
        let source = spec.csi.as_ref()?;
        let driver = self.drivers.get("", &source.driver);
        Some(Target {
            name: unique_name(&source.driver, &source.volume_handle),
            driver: source.driver.clone(),
            mounts_labels: driver.is_some_and(|driver| driver.spec.se_linux_mount == Some(true)),
        })
    }

    fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(pod) = self.pods.get_key(key).filter(|pod| !pod::is_terminal(pod)) else {
            self.users.lock().remove(key);
            return Ok(Action::Done);
        };
        let spec = pod.spec.as_ref();
        let context = spec.and_then(|spec| spec.security_context.as_ref());
        let policy = context.and_then(|context| context.se_linux_change_policy.as_deref()).unwrap_or("MountOption");
        for (name, all) in labels::of_mounts(&pod) {
            let volume = spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).find(|one| one.name == name);
            let Some(volume) = volume else { continue };
            if all.len() > 1 {
                let message = format!("Volume {name:?} is mounted twice with different SELinux labels inside this pod");
                self.recorder.event(&*pod, EventType::Warning, "MultipleSELinuxLabels", message);
                continue;
            }
            let Some(target) = self.target(&pod, volume) else { continue };
            // Without a label to mount with, the runtime goes through the files, whatever the pod says.
            let label = all.into_iter().next().filter(|_| target.mounts_labels && policy != RECURSIVE);
            let label = label.filter(|label| !labels::text(label).is_empty());
            let policy = if label.is_some() { policy } else { RECURSIVE };
            let wanted = Use { label: label.unwrap_or_default(), policy: policy.to_owned() };
            let told = self.users.lock().add(&target.name, &target.driver, key, wanted);
            for conflict in told {
                let Some(pod) = self.pods.get_key(&conflict.pod) else { break };
                self.recorder.event(&*pod, EventType::Normal, &conflict.reason(), conflict.message());
            }
        }
        Ok(Action::Done)
    }
}

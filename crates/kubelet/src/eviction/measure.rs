//! Looks at the node and its pods: what is left, and what each pod uses. Nothing here decides anything.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_cri::v1::ContainerStats;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use super::plan::{Reading, Readings};
use super::settings::Signal;
use super::usage::{ContainerUsage, PodUsage, Usage, local_volumes};
use crate::context::Context;
use crate::node::capacity;
use crate::pod;
use crate::runtime::label;
use crate::spec::sandbox::log_folder;
use crate::volumes::blocking;

/// Walking through a pod's files may take this part of the time at most: one in fifty.
const WALKING_SHARE: u32 = 50;
const LONGEST_REST: Duration = Duration::from_secs(60);
/// How long a look waits for files to be counted. A pod with millions of them must not keep the node from seeing that it
/// runs out of memory; what was counted before stands in meanwhile.
const PATIENCE: Duration = Duration::from_millis(500);
/// The files of one pod, as they were when they were last counted.
#[derive(Clone, Debug, Default)]
struct Walked {
    logs: HashMap<String, Usage>,
    volumes: HashMap<String, Usage>,
    own: Usage,
    /// Not to be counted again before; none while they are being counted.
    rests_until: Option<Instant>,
}

/// What was learnt once and holds for a while.
#[derive(Default)]
pub(crate) struct Measures {
    /// Where the runtime keeps images.
    images: Mutex<Option<PathBuf>>,
    walked: Mutex<HashMap<String, Walked>>,
}

impl Measures {
    /// The folder of images; the kubelet's own where the runtime does not tell.
    pub(crate) async fn images(&self, context: &Context) -> PathBuf {
        if let Some(known) = self.images.lock().clone() {
            return known;
        }
        match context.runtime.image_folder().await {
            Ok(Some(folder)) => {
                *self.images.lock() = Some(folder.clone());
                folder
            }
            _ => context.config.root_dir.clone(),
        }
    }

    pub(crate) fn forget_all_but(&self, kept: &HashSet<&str>) {
        self.walked.lock().retain(|uid, _| kept.contains(uid.as_str()));
    }

    async fn files(self: &Arc<Self>, context: &Context, pod: &Pod) -> Walked {
        let uid = pod::uid(pod).to_owned();
        {
            let mut walked = self.walked.lock();
            match walked.get_mut(&uid) {
                Some(known) if known.rests_until.is_none_or(|until| until > Instant::now()) => return known.clone(),
                Some(known) => known.rests_until = None,
                None => drop(walked.insert(uid.clone(), Walked::default())),
            }
        }
        let logs = log_folder(&context.config.log_dir, pod);
        let containers = pod::containers(pod).iter().chain(pod::init_containers(pod));
        let logs: Vec<(String, PathBuf)> = containers.map(|c| (c.name.clone(), logs.join(&c.name))).collect();
        let volumes: Vec<(String, PathBuf)> = local_volumes(pod)
            .map(|(volume, plugin)| (volume.name.clone(), context.volumes.folder(pod, plugin, &volume.name)))
            .collect();
        let hosts = context.volumes.pod_folder(&uid).join("etc-hosts");
        let (measures, counting) = (self.clone(), uid.clone());
        let (done, counted) = tokio::sync::oneshot::channel();
        let count_all = move || {
            let started = Instant::now();
            let all = |places: Vec<(String, PathBuf)>| places.into_iter().map(|(n, p)| (n, count(&p))).collect();
            let (logs, volumes, own) = (all(logs), all(volumes), count(&hosts));
            let rest = (started.elapsed() * WALKING_SHARE).min(LONGEST_REST);
            Ok(Walked { logs, volumes, own, rests_until: Some(Instant::now() + rest) })
        };
        context.tasks.spawn_until_stopped("counting files", async move {
            let rests = || Walked { rests_until: Some(Instant::now()), ..Walked::default() };
            let walked = blocking(count_all).await.unwrap_or_else(|_| rests());
            if let Some(known) = measures.walked.lock().get_mut(&counting) {
                *known = walked;
            }
            let _ = done.send(());
        });
        let _ = tokio::time::timeout(PATIENCE, counted).await;
        self.walked.lock().get(&uid).cloned().unwrap_or_default()
    }
}

/// What a file or a folder with all below it takes, on its own file system alone.
fn count(path: &Path) -> Usage {
    let counted = ferry_podfs::count(path);
    Usage { bytes: signed(counted.bytes), inodes: signed(counted.inodes) }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What is left of the node.
pub(crate) async fn node(context: &Context) -> (Readings, bool) {
    let mut readings = Readings::new();
    let mut put = |signal, available: u64, capacity: u64| {
        if capacity > 0 {
            readings.insert(signal, Reading { available: signed(available), capacity: signed(capacity) });
        }
    };
    let (total, free) = memory(context);
    put(Signal::MemoryAvailable, free, total);
    let root = &context.config.root_dir;
    let images = context.pressure.measures.images(context).await;
    let dedicated = device(root) != device(&images);
    for (place, bytes, inodes) in [
        (root, Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        (&images, Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
    ] {
        let disk = capacity::disk(place);
        put(bytes, disk.available, disk.size);
        put(inodes, disk.inodes_free, disk.inodes);
    }
    let (most, running) = capacity::processes();
    put(Signal::PidAvailable, most.saturating_sub(running), most);
    (readings, dedicated)
}

/// All memory of the machine, and what pods can still have of it.
pub(crate) fn memory(context: &Context) -> (u64, u64) {
    let total = capacity::memory("MemTotal");
    let used = total.saturating_sub(capacity::memory("MemFree"));
    match context.hardware.groups.working_set(used) {
        Some(working_set) if working_set <= total => (total, total - working_set),
        _ => (total, capacity::memory("MemAvailable")),
    }
}

fn device(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.dev())
}

/// What the pods use, by uid. Those that the runtime knows nothing about are left out.
pub(crate) async fn pods(context: &Context, pods: &[&Pod]) -> HashMap<String, PodUsage> {
    let stats = match context.runtime.usage().await {
        Ok(stats) => stats,
        Err(error) => {
            tracing::debug!("the runtime does not tell what containers use: {error}");
            return HashMap::new();
        }
    };
    let mut by_pod: HashMap<&str, Vec<&ContainerStats>> = HashMap::new();
    for one in &stats {
        let uid = one.attributes.as_ref().and_then(|a| a.labels.get(label::POD_UID));
        by_pod.entry(uid.map(String::as_str).unwrap_or_default()).or_default().push(one);
    }
    let mut all = HashMap::new();
    for pod in pods {
        let uid = pod::uid(pod);
        let Some(stats) = context.mirrors.runtime_uid(pod).and_then(|uid| by_pod.get(uid.as_str())) else { continue };
        let files = context.pressure.measures.files(context, pod).await;
        all.insert(uid.to_owned(), usage(context, pod, stats, files));
    }
    all
}

fn usage(context: &Context, pod: &Pod, stats: &[&ContainerStats], files: Walked) -> PodUsage {
    // Of a container that was started again, the newest counts.
    let mut newest: HashMap<&str, &ContainerStats> = HashMap::new();
    let attempt = |one: &ContainerStats| one.attributes.as_ref()?.metadata.as_ref().map(|m| m.attempt);
    for one in stats {
        let Some(name) = one.attributes.as_ref().and_then(|a| a.labels.get(label::CONTAINER_NAME)) else { continue };
        let known = newest.entry(name).or_insert(one);
        if attempt(known) < attempt(one) {
            *known = one;
        }
    }
    let mut containers: Vec<ContainerUsage> = newest
        .into_iter()
        .map(|(name, one)| ContainerUsage {
            memory: one.memory.as_ref().and_then(|m| m.working_set_bytes.as_ref()).map(|v| signed(v.value)),
            root: one.writable_layer.as_ref().map(|layer| Usage {
                bytes: layer.used_bytes.as_ref().map_or(0, |v| signed(v.value)),
                inodes: layer.inodes_used.as_ref().map_or(0, |v| signed(v.value)),
            }),
            logs: files.logs.get(name).copied(),
            name: name.to_owned(),
        })
        .collect();
    containers.sort_by(|one, other| one.name.cmp(&other.name));
    PodUsage {
        containers,
        volumes: files.volumes.into_iter().collect(),
        own: files.own,
        processes: context.hardware.groups.processes(pod).unwrap_or(0),
    }
}

//! What pods and the node use: `/stats/summary` and `/metrics/resource`, from the runtime's figures and the kernel's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferry_cri::v1::{ContainerStats, FilesystemUsage};
use ferry_metrics::{Kind, Page};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Body, Server, text};
use crate::eviction::{measure, usage};
use crate::node::capacity;
use crate::pod;
use crate::runtime::label;

/// The kernel counts processor time of the whole machine in hundredths of a second.
const NANOSECONDS_PER_TICK: u64 = 10_000_000;

/// The node's processor time as it was last seen: a rate needs two looks.
#[derive(Default)]
pub(crate) struct LastSeen(Mutex<Option<(Timestamp, u64)>>);

/// The containers of one pod with their figures.
pub(super) struct PodUsage {
    pub(super) pod: Arc<Pod>,
    pub(super) containers: Vec<ContainerStats>,
}

pub(super) fn value(number: Option<&ferry_cri::v1::UInt64Value>) -> Option<u64> {
    number.map(|number| number.value)
}

fn processor_time(stats: &ContainerStats) -> Option<u64> {
    value(stats.cpu.as_ref()?.usage_core_nano_seconds.as_ref())
}

fn working_set(stats: &ContainerStats) -> Option<u64> {
    value(stats.memory.as_ref()?.working_set_bytes.as_ref())
}

pub(super) fn name(stats: &ContainerStats) -> &str {
    let attributes = stats.attributes.as_ref();
    attributes.and_then(|a| a.labels.get(label::CONTAINER_NAME)).map(String::as_str).unwrap_or_default()
}

/// Nanoseconds since 1970 as the API writes times.
fn time(nanoseconds: i64) -> String {
    let at = Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(super) fn started(pod: &Pod, container: &str) -> Option<Timestamp> {
    let status = pod::container_status(pod::status(pod), container)?;
    status.state.as_ref()?.running.as_ref()?.started_at.as_ref().map(|at| at.0)
}

/// Busy processor time of the node since it started, in nanoseconds.
fn node_processor_time() -> u64 {
    let table = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = table.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user, nice, system, (idle, iowait,) irq, softirq, steal.
    let busy: u64 = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|at| ticks.get(at)).sum();
    busy.saturating_mul(NANOSECONDS_PER_TICK)
}

fn boot_time() -> Timestamp {
    let table = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let seconds = table.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
    seconds.and_then(|s| Timestamp::from_second(s).ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl Server {
    pub(super) async fn pods_in_use(&self) -> Result<Vec<PodUsage>, String> {
        let stats = self.context.runtime.usage().await.map_err(|error| error.to_string())?;
        let mut by_pod: HashMap<String, BTreeMap<String, ContainerStats>> = HashMap::new();
        for one in stats {
            let Some(attributes) = &one.attributes else { continue };
            let Some(uid) = attributes.labels.get(label::POD_UID) else { continue };
            // Of a container that was started again, only the newest is in use.
            let containers = by_pod.entry(uid.clone()).or_default();
            let newer =
                |have: &ContainerStats| have.cpu.as_ref().map(|c| c.timestamp) < one.cpu.as_ref().map(|c| c.timestamp);
            if containers.get(name(&one)).is_none_or(newer) {
                containers.insert(name(&one).to_owned(), one);
            }
        }
        let pods = self.pods.list().into_iter().filter_map(|pod| {
            let containers = by_pod.remove(&self.context.mirrors.runtime_uid(&pod)?)?.into_values().collect();
            Some(PodUsage { pod, containers })
        });
        let mut pods: Vec<PodUsage> = pods.collect();
        pods.sort_by_key(|usage| (pod::namespace(&usage.pod).to_owned(), pod::name(&usage.pod).to_owned()));
        Ok(pods)
    }

    pub(super) async fn summary(&self) -> http::Response<Body> {
        let pods = match self.pods_in_use().await {
            Ok(pods) => pods,
            Err(why) => return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
        };
        let now = self.context.clock.now();
        let total = node_processor_time();
        let rate = self.last_seen.0.lock().replace((now, total)).and_then(|(then, before)| {
            let elapsed = u128::try_from(now.as_nanosecond() - then.as_nanosecond()).ok().filter(|n| *n > 0)?;
            u64::try_from(u128::from(total.saturating_sub(before)) * 1_000_000_000 / elapsed).ok()
        });
        let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (size, free) = measure::memory(&self.context);
        let disk = capacity::disk(&self.context.config.root_dir);
        let images = capacity::disk(&self.context.pressure.measures.images(&self.context).await);
        let (most_processes, processes) = capacity::processes();
        let mut processor = json!({"time": at, "usageCoreNanoSeconds": total});
        if let Some(rate) = rate {
            processor["usageNanoCores"] = rate.into();
        }
        let plain: Vec<&Pod> = pods.iter().map(|usage| &*usage.pod).collect();
        let files = measure::pods(&self.context, &plain).await;
        let of_pods = pods.iter().map(|usage| {
            let mut one = of_pod(usage);
            if let Some(files) = files.get(pod::uid(&usage.pod)) {
                add_files(&mut one, &at, disk, files);
            }
            one
        });
        let document = json!({
            "node": {
                "nodeName": self.context.config.node_name,
                "startTime": boot_time().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "cpu": processor,
                "memory": {
                    "time": at, "availableBytes": free, "usageBytes": size.saturating_sub(capacity::memory("MemFree")),
                    "workingSetBytes": size.saturating_sub(free),
                },
                "fs": of_disk(&at, disk),
                "runtime": {"imageFs": of_disk(&at, images), "containerFs": of_disk(&at, images)},
                "rlimit": {"time": at, "maxpid": most_processes, "curproc": processes},
            },
            "pods": of_pods.collect::<Vec<_>>(),
        });
        super::json(&document)
    }

    pub(super) async fn resource_metrics(&self) -> http::Response<Body> {
        let pods = self.pods_in_use().await;
        let mut families = Families::default();
        let now = self.context.clock.now().as_millisecond();
        families.add("node_cpu_usage_seconds_total", "", seconds(node_processor_time()), Some(now));
        let (size, free) = measure::memory(&self.context);
        let used = size.saturating_sub(free);
        families.add("node_memory_working_set_bytes", "", used, Some(now));
        for usage in pods.iter().flatten() {
            let of_pod = [("namespace", pod::namespace(&usage.pod)), ("pod", pod::name(&usage.pod))];
            let of_pod = ferry_metrics::labels(of_pod);
            for one in &usage.containers {
                let labels = format!("{},{of_pod}", ferry_metrics::labels([("container", name(one))]));
                let at = |nanoseconds: i64| Some(nanoseconds / 1_000_000);
                if let (Some(time), Some(cpu)) = (processor_time(one), &one.cpu) {
                    families.add("container_cpu_usage_seconds_total", &labels, seconds(time), at(cpu.timestamp));
                }
                if let (Some(bytes), Some(memory)) = (working_set(one), &one.memory) {
                    families.add("container_memory_working_set_bytes", &labels, bytes, at(memory.timestamp));
                }
                if let Some(start) = started(&usage.pod, name(one)) {
                    families.add("container_start_time_seconds", &labels, start.as_second(), None);
                }
            }
            let time: u64 = usage.containers.iter().filter_map(processor_time).sum();
            let bytes: u64 = usage.containers.iter().filter_map(working_set).sum();
            families.add("pod_cpu_usage_seconds_total", &of_pod, seconds(time), Some(now));
            families.add("pod_memory_working_set_bytes", &of_pod, bytes, Some(now));
        }
        families.add("resource_scrape_error", "", i32::from(pods.is_err()), None);
        families.response()
    }
}

pub(super) fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

fn of_disk(at: &str, disk: capacity::Disk) -> Value {
    json!({
        "time": at, "availableBytes": disk.available, "capacityBytes": disk.size, "usedBytes": disk.used,
        "inodes": disk.inodes, "inodesFree": disk.inodes_free,
        "inodesUsed": disk.inodes.saturating_sub(disk.inodes_free),
    })
}

/// What a pod has on the node's disk, and how many processes.
fn add_files(one: &mut Value, at: &str, disk: capacity::Disk, files: &usage::PodUsage) {
    let of = |used: usage::Usage| {
        json!({
            "time": at, "availableBytes": disk.available, "capacityBytes": disk.size, "usedBytes": used.bytes,
            "inodes": disk.inodes, "inodesFree": disk.inodes_free, "inodesUsed": used.inodes,
        })
    };
    one["ephemeral-storage"] = of(files.ephemeral());
    one["process_stats"] = json!({"process_count": files.processes});
    let volumes = files.volumes.iter().map(|(name, used)| {
        let mut volume = of(*used);
        volume["name"] = json!(name);
        volume
    });
    one["volume"] = volumes.collect();
    for container in one["containers"].as_array_mut().into_iter().flatten() {
        let known = files.containers.iter().find(|c| container["name"] == c.name.as_str());
        if let Some(logs) = known.and_then(|c| c.logs) {
            container["logs"] = of(logs);
        }
    }
}

fn of_pod(usage: &PodUsage) -> Value {
    let pod = &usage.pod;
    let sum = |read: fn(&ContainerStats) -> Option<u64>| -> u64 { usage.containers.iter().filter_map(read).sum() };
    let newest = usage.containers.iter().filter_map(|c| c.cpu.as_ref()).map(|c| c.timestamp).max().unwrap_or(0);
    let rate = |stats: &ContainerStats| value(stats.cpu.as_ref()?.usage_nano_cores.as_ref());
    json!({
        "podRef": {"name": pod::name(pod), "namespace": pod::namespace(pod), "uid": pod::uid(pod)},
        "startTime": pod::status(pod).start_time.as_ref().map(|t| t.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        "containers": usage.containers.iter().map(|c| of_container(pod, c)).collect::<Vec<_>>(),
        "cpu": {"time": time(newest), "usageNanoCores": sum(rate), "usageCoreNanoSeconds": sum(processor_time)},
        "memory": {"time": time(newest), "workingSetBytes": sum(working_set)},
    })
}

fn of_container(pod: &Pod, stats: &ContainerStats) -> Value {
    let mut one = json!({
        "name": name(stats),
        "startTime": started(pod, name(stats)).map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
    });
    let mut put = |part: &str, at: i64, figures: &[(&str, Option<u64>)]| {
        one[part] = json!({"time": time(at)});
        for (key, figure) in figures {
            if let Some(figure) = figure {
                one[part][*key] = (*figure).into();
            }
        }
    };
    if let Some(cpu) = &stats.cpu {
        let figures = [
            ("usageNanoCores", value(cpu.usage_nano_cores.as_ref())),
            ("usageCoreNanoSeconds", value(cpu.usage_core_nano_seconds.as_ref())),
        ];
        put("cpu", cpu.timestamp, &figures);
    }
    if let Some(memory) = &stats.memory {
        let figures = [
            ("availableBytes", value(memory.available_bytes.as_ref())),
            ("usageBytes", value(memory.usage_bytes.as_ref())),
            ("workingSetBytes", value(memory.working_set_bytes.as_ref())),
            ("rssBytes", value(memory.rss_bytes.as_ref())),
            ("pageFaults", value(memory.page_faults.as_ref())),
            ("majorPageFaults", value(memory.major_page_faults.as_ref())),
        ];
        put("memory", memory.timestamp, &figures);
    }
    if let Some(FilesystemUsage { timestamp, used_bytes, inodes_used, .. }) = &stats.writable_layer {
        let figures = [("usedBytes", value(used_bytes.as_ref())), ("inodesUsed", value(inodes_used.as_ref()))];
        put("rootfs", *timestamp, &figures);
    }
    one
}

/// Samples of metrics, kept together by name as the format wants them.
#[derive(Default)]
pub(super) struct Families(BTreeMap<&'static str, Vec<Sample>>);

struct Sample {
    labels: String,
    value: String,
    at: Option<i64>,
}

impl Families {
    pub(super) fn add(&mut self, name: &'static str, labels: &str, value: impl std::fmt::Display, at: Option<i64>) {
        let sample = Sample { labels: labels.to_owned(), value: value.to_string(), at };
        self.0.entry(name).or_default().push(sample);
    }

    pub(super) fn response(&self) -> http::Response<Body> {
        let mut response = text(StatusCode::OK, self.text());
        let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert("content-type", kind);
        response
    }

    fn text(&self) -> String {
        let mut page = Page::new();
        for (name, samples) in &self.0 {
            let kind = if name.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
            let mut family = page.family(name, kind, help(name));
            for Sample { labels, value, at } in samples {
                match at {
                    Some(at) => family.sample_at(labels, value, *at),
                    None => family.sample(labels, value),
                };
            }
        }
        page.into_text()
    }
}

fn help(name: &str) -> &'static str {
    match name {
        "container_cpu_usage_seconds_total" => "Processor time used by the container, in seconds of one core",
        "container_memory_working_set_bytes" => "Memory of the container that cannot be taken back easily",
        "container_start_time_seconds" => "When the container was started, in seconds since 1970",
        "node_cpu_usage_seconds_total" => "Processor time used on the node, in seconds of one core",
        "node_memory_working_set_bytes" => "Memory of the node that cannot be taken back easily",
        "pod_cpu_usage_seconds_total" => "Processor time used by the pod, in seconds of one core",
        "pod_memory_working_set_bytes" => "Memory of the pod that cannot be taken back easily",
        "container_memory_usage_bytes" => "Memory of the container, with what the kernel keeps for it",
        "container_memory_rss" => "Memory of the container that is its own and in use",
        "container_fs_usage_bytes" => "What the container wrote over its image, in bytes",
        "container_fs_inodes_total" => "Files and folders that the container wrote over its image",
        "container_spec_cpu_period" => "The period of the processor quota, in microseconds",
        "container_spec_cpu_quota" => "Processor time per period, in microseconds",
        "container_spec_cpu_shares" => "The container's share of processor time",
        "container_spec_memory_limit_bytes" => "The most memory the container may have; 0 without a limit",
        "machine_cpu_cores" => "Processors of the machine",
        "machine_memory_bytes" => "Memory of the machine",
        _ => "1 when the figures of containers could not be read, 0 otherwise",
    }
}

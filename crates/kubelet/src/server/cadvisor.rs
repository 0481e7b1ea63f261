//! `/metrics/cadvisor`: what containers use under the names that dashboards ask for; and `/runningpods`.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::usage::{Families, name, seconds, started, value};
use super::{Body, Server, text};
use crate::node::capacity;
use crate::pod;
use crate::runtime::RunState;
use crate::spec::resources;

impl Server {
    pub(super) async fn cadvisor_metrics(&self) -> Response<Body> {
        let pods = match self.pods_in_use().await {
            Ok(pods) => pods,
            Err(why) => return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
        };
        let mut families = Families::default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        families.add("machine_cpu_cores", "", processors, None);
        families.add("machine_memory_bytes", "", capacity::memory("MemTotal"), None);
        for usage in &pods {
            let of = &usage.pod;
            let (groups, (runtime, _)) = (&self.context.hardware.groups, self.context.runtime.identity());
            for one in &usage.containers {
                let container = name(one);
                let id = one.attributes.as_ref().map(|a| a.id.as_str()).unwrap_or_default();
                let status = pod::container_status(pod::status(of), container);
                let image = status.map(|s| s.image.as_str()).unwrap_or_default();
                let (space, pod_name) = (pod::namespace(of), pod::name(of));
                let labels = ferry_metrics::labels([
                    ("container", container),
                    ("id", &*groups.of_container(of, runtime, id)),
                    ("image", image),
                    ("name", id),
                    ("namespace", space),
                    ("pod", pod_name),
                ]);
                if let Some(cpu) = &one.cpu {
                    let at = Some(cpu.timestamp / 1_000_000);
                    if let Some(used) = value(cpu.usage_core_nano_seconds.as_ref()) {
                        let total = format!("{labels},cpu=\"total\"");
                        families.add("container_cpu_usage_seconds_total", &total, seconds(used), at);
                    }
                }
                if let Some(memory) = &one.memory {
                    let at = Some(memory.timestamp / 1_000_000);
                    for (family, bytes) in [
                        ("container_memory_working_set_bytes", &memory.working_set_bytes),
                        ("container_memory_usage_bytes", &memory.usage_bytes),
                        ("container_memory_rss", &memory.rss_bytes),
                    ] {
                        if let Some(bytes) = value(bytes.as_ref()) {
                            families.add(family, &labels, bytes, at);
                        }
                    }
                }
                if let Some(layer) = &one.writable_layer {
                    let at = Some(layer.timestamp / 1_000_000);
                    let used = value(layer.used_bytes.as_ref()).unwrap_or(0);
                    families.add("container_fs_usage_bytes", &labels, used, at);
                    families.add(
                        "container_fs_inodes_total",
                        &labels,
                        value(layer.inodes_used.as_ref()).unwrap_or(0),
                        at,
                    );
                }
                if let Some(start) = started(of, container) {
                    families.add("container_start_time_seconds", &labels, start.as_second(), None);
                }
                if let Some((_, spec)) = pod::container(of, container) {
                    let uid = self.context.mirrors.runtime_uid(of).unwrap_or_else(|| pod::uid(of).to_owned());
                    let placement = self.context.placement(&uid, container);
                    let linux = resources::linux(of, &spec, &placement);
                    let memory = linux.memory_limit_in_bytes;
                    families.add("container_spec_cpu_period", &labels, linux.cpu_period, None);
                    families.add("container_spec_cpu_shares", &labels, linux.cpu_shares, None);
                    if linux.cpu_quota > 0 {
                        families.add("container_spec_cpu_quota", &labels, linux.cpu_quota, None);
                    }
                    families.add("container_spec_memory_limit_bytes", &labels, memory.max(0), None);
                }
            }
        }
        families.response()
    }

    /// The pods that run by the runtime's word alone.
    pub(super) async fn running_pods(&self) -> Response<Body> {
        let runtime = &self.context.runtime;
        let seen = match runtime.glimpse().await {
            Ok(seen) => seen,
            Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        };
        let mut items: Vec<Value> = Vec::new();
        for (uid, glimpse) in seen {
            let Ok(state) = runtime.pod(&uid).await else { continue };
            let containers: Vec<Value> = state
                .records
                .iter()
                .filter(|record| record.state == RunState::Running)
                .map(|record| json!({"name": record.name, "image": record.image, "resources": {}}))
                .collect();
            if containers.is_empty() && state.ready_sandbox().is_none() {
                continue;
            }
            items.push(json!({
                "metadata": {"name": glimpse.name, "namespace": glimpse.namespace, "uid": uid, "creationTimestamp": null},
                "spec": {"containers": containers}, "status": {},
            }));
        }
        items.sort_by_key(|item| (item["metadata"]["namespace"].to_string(), item["metadata"]["name"].to_string()));
        super::json(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
    }
}

//! What a file's fields mean together: the settings of the kubelet, with upstream's defaults and rules.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use ferry_client::EventRate;
use ferry_kubelet::{Endpoints, Logs, MemoryPolicy, Pulls, Report, RestartDelays, Settings, ShutdownPeriod, Sysctls};

use super::fields::FileFields;

const HEALTHZ_PORT: u16 = 10248;
/// Upstream's, for a file that names the other one.
const REGISTRY: (u32, u32) = (5, 10);
const EVENTS: (u32, u32) = (50, 100);

impl FileFields {
    /// `/healthz` beside the kubelet's own server: where the file wants it, or where it is usual. The kubelet of the machine has
    /// it at upstream's port by default, others have none.
    pub(super) fn healthz(&self, is_usual: bool) -> Option<SocketAddr> {
        let is_wanted = is_usual || self.healthz_port.is_some() || self.healthz_address.is_some();
        let port = self.healthz_port.unwrap_or(HEALTHZ_PORT);
        let address = self.healthz_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        (is_wanted && port != 0).then(|| SocketAddr::new(address, port))
    }

    /// Whether the kubelet's API is served.
    pub(super) fn serves(&self) -> bool {
        self.enable_server != Some(false)
    }

    pub(super) fn settings(&self) -> Result<Settings> {
        let usual = Settings::default();
        let update = self.node_status_update.unwrap_or(usual.report.update);
        Ok(Settings {
            seccomp_default: self.seccomp_default.unwrap_or(false),
            pulls: self.pulls()?,
            restarts: self.restarts()?,
            report: Report {
                registers: self.register_node.unwrap_or(true),
                provider_id: self.provider_id.clone(),
                update,
                // As often as the status is computed, where only that is given.
                report: self.node_status_report.or(self.node_status_update).unwrap_or(usual.report.report),
                lease_seconds: self.node_lease_seconds.unwrap_or(usual.report.lease_seconds),
                most_images: match self.node_status_max_images {
                    None => usual.report.most_images,
                    Some(most) => usize::try_from(most).ok(),
                },
            },
            events: self.events(),
            logs: Logs {
                interval: self.log_interval.unwrap_or(usual.logs.interval),
                workers: self.log_workers.unwrap_or(usual.logs.workers),
            },
            file_check: self.file_check.unwrap_or(usual.file_check),
            sync: self.sync,
            runtime_timeout: self.runtime_timeout.unwrap_or(usual.runtime_timeout),
            stream_idle: self.stream_idle.unwrap_or(usual.stream_idle),
            server: self.endpoints(usual.server)?,
            healthz: None,
            oom_score_adj: self.oom_score_adj,
            shutdown: self.shutdown()?,
            memory: self.memory()?,
            fail_cgroup_v1: self.fail_cgroup_v1.unwrap_or(false),
            default_sysctls: self.default_sysctls()?,
            protect_kernel_defaults: self.protect_kernel_defaults.unwrap_or(false),
            ids_per_pod: self.ids_per_pod.unwrap_or(usual.ids_per_pod),
            feature_gates: self.gates.clone().unwrap_or_default().given(),
            ..usual
        })
    }

    fn gate(&self, name: &str) -> bool {
        self.gates.clone().unwrap_or_default().is_on(name)
    }

    fn pulls(&self) -> Result<Pulls> {
        let serial = self.serialize_image_pulls;
        ensure!(
            !(serial == Some(true) && self.max_parallel_image_pulls.is_some_and(|most| most > 1)),
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false"
        );
        let rate = match (self.registry_pull_qps, self.registry_burst) {
            (None, None) | (Some(0), _) => None,
            (qps, burst) => Some((qps.unwrap_or(REGISTRY.0), burst.unwrap_or(REGISTRY.1))),
        };
        let at_once = self.max_parallel_image_pulls.and_then(|most| usize::try_from(most).ok());
        Ok(Pulls { at_once: if serial == Some(true) { Some(1) } else { at_once }, rate })
    }

    fn restarts(&self) -> Result<RestartDelays> {
        let mut delays = match self.gate("ReduceDefaultCrashLoopBackOffDecay") {
            true => RestartDelays::REDUCED,
            false => RestartDelays::default(),
        };
        if let Some(longest) = self.max_container_restart_period {
            ensure!(
                self.gate("KubeletCrashLoopBackOffMax"),
                "FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not be set"
            );
            delays.longest = longest;
        } else if self.gate("KubeletCrashLoopBackOffMax") {
            // What upstream's defaults put there counts as though somebody had set it.
            delays.longest = RestartDelays::default().longest;
        }
        delays.first = delays.first.min(delays.longest);
        Ok(delays)
    }

    fn events(&self) -> Option<EventRate> {
        match (self.event_qps, self.event_burst) {
            (None, None) | (Some(0), _) => None,
            (qps, burst) => Some(EventRate { per_second: qps.unwrap_or(EVENTS.0), burst: burst.unwrap_or(EVENTS.1) }),
        }
    }

    fn endpoints(&self, usual: Endpoints) -> Result<Endpoints> {
        let (system_logs, log_query) = (self.system_logs.unwrap_or(true), self.log_query.unwrap_or(false));
        ensure!(system_logs || !log_query, "enableSystemLogHandler is required for enableSystemLogQuery");
        Ok(Endpoints {
            debugging: self.debugging.unwrap_or(true),
            system_logs,
            log_query,
            tokens: self.webhook.unwrap_or(true),
            token_ttl: self.token_ttl.unwrap_or(usual.token_ttl),
            allowed_ttl: self.allowed_ttl.unwrap_or(usual.allowed_ttl),
            denied_ttl: self.denied_ttl.unwrap_or(usual.denied_ttl),
        })
    }

    fn shutdown(&self) -> Result<Vec<ShutdownPeriod>> {
        let (whole, critical) = (self.shutdown.unwrap_or_default(), self.shutdown_critical.unwrap_or_default());
        let by_priority = self.shutdown_by_priority.clone().unwrap_or_default();
        let (graceful, prioritized) =
            (self.gate("GracefulNodeShutdown"), self.gate("GracefulNodeShutdownBasedOnPodPriority"));
        ensure!(
            critical <= whole,
            "shutdownGracePeriodCriticalPods {}s must be <= shutdownGracePeriod {}s",
            critical.as_secs_f64(),
            whole.as_secs_f64()
        );
        ensure!(
            graceful || whole.is_zero(),
            "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown"
        );
        ensure!(
            by_priority.is_empty() || whole.is_zero(),
            "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"
        );
        ensure!(
            by_priority.is_empty() || prioritized,
            "Specifying shutdownGracePeriodByPodPriority requires feature gate GracefulNodeShutdownBasedOnPodPriority"
        );
        let periods = if by_priority.is_empty() { ShutdownPeriod::of(whole, critical) } else { by_priority };
        Ok(if graceful { periods } else { Vec::new() })
    }

    fn memory(&self) -> Result<MemoryPolicy> {
        let (qos, reserves) = (self.gate("MemoryQoS"), self.reserves_memory.unwrap_or(false));
        // 0.9 was the default once, and stands in many files.
        ensure!(
            qos || self.throttling_factor.is_none_or(|factor| (factor - 0.9).abs() < f64::EPSILON),
            "memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled"
        );
        ensure!(
            qos || !reserves,
            "memoryReservationPolicy \"TieredReservation\" requires MemoryQoS feature gate to be enabled"
        );
        Ok(MemoryPolicy {
            swap: self.swap.unwrap_or_default(),
            fail_swap_on: self.fail_swap_on.unwrap_or(false),
            qos,
            throttling_factor: self.throttling_factor,
            reserves,
            kills_together: self.single_process_oom_kill == Some(false),
        })
    }

    fn default_sysctls(&self) -> Result<Vec<(String, String)>> {
        let given = self.default_sysctls.as_deref().unwrap_or_default();
        ensure!(
            given.is_empty() || self.gate("DefaultPodSysctls"),
            "DefaultPodSysctls feature gate is required for Kubelet configuration option defaultPodSysctls"
        );
        Ok(Sysctls::defaults(given)?)
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;

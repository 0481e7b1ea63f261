//! The fields of a KubeletConfiguration that no flag of Ferry's stands for, and those that a flag of `ferry kubelet` has too.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferry_kubelet::{CgroupDriver, ShutdownPeriod, SwapBehavior};
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Map, Value};

use super::file::{number, put, text, texts, time};
use super::gates::Gates;
use crate::labels;

/// What a file says; nothing where it says nothing.
#[derive(Clone, Debug, Default)]
pub struct FileFields {
    pub(super) gates: Option<Gates>,
    pub(super) seccomp_default: Option<bool>,
    pub(super) registry_pull_qps: Option<u32>,
    pub(super) registry_burst: Option<u32>,
    pub(super) serialize_image_pulls: Option<bool>,
    pub(super) max_parallel_image_pulls: Option<i32>,
    pub(super) max_container_restart_period: Option<Duration>,
    pub(super) node_status_update: Option<Duration>,
    pub(super) node_status_report: Option<Duration>,
    pub(super) node_lease_seconds: Option<i32>,
    pub(super) node_status_max_images: Option<i32>,
    pub(super) register_node: Option<bool>,
    pub(super) provider_id: Option<String>,
    pub(super) event_qps: Option<u32>,
    pub(super) event_burst: Option<u32>,
    pub(super) log_interval: Option<Duration>,
    pub(super) log_workers: Option<usize>,
    pub(super) file_check: Option<Duration>,
    pub(super) sync: Option<Duration>,
    pub(super) runtime_timeout: Option<Duration>,
    pub(super) stream_idle: Option<Duration>,
    pub(super) oom_score_adj: Option<i32>,
    pub(super) healthz_port: Option<u16>,
    pub(super) healthz_address: Option<IpAddr>,
    pub(super) enable_server: Option<bool>,
    pub(super) debugging: Option<bool>,
    pub(super) system_logs: Option<bool>,
    pub(super) log_query: Option<bool>,
    pub(super) webhook: Option<bool>,
    pub(super) token_ttl: Option<Duration>,
    pub(super) allowed_ttl: Option<Duration>,
    pub(super) denied_ttl: Option<Duration>,
    pub(super) shutdown: Option<Duration>,
    pub(super) shutdown_critical: Option<Duration>,
    pub(super) shutdown_by_priority: Option<Vec<ShutdownPeriod>>,
    pub(super) fail_swap_on: Option<bool>,
    pub(super) swap: Option<SwapBehavior>,
    pub(super) throttling_factor: Option<f64>,
    pub(super) reserves_memory: Option<bool>,
    pub(super) single_process_oom_kill: Option<bool>,
    pub(super) fail_cgroup_v1: Option<bool>,
    pub(super) cgroup_driver: Option<CgroupDriver>,
    pub(super) protect_kernel_defaults: Option<bool>,
    pub(super) ids_per_pod: Option<u32>,
    pub(super) default_sysctls: Option<Vec<(String, String)>>,
    pub node: NodeFields,
}

/// What also has a flag, of `ferry kubelet` or of a cluster's node.
#[derive(Clone, Debug, Default)]
pub struct NodeFields {
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
    pub cluster_dns: Option<Vec<IpAddr>>,
    pub cluster_domain: Option<String>,
    pub resolv_conf: Option<PathBuf>,
    pub container_runtime_endpoint: Option<String>,
    pub taints: Option<Vec<Taint>>,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    pub client_ca_file: Option<PathBuf>,
}

impl FileFields {
    /// Reads a field; false where it is none of these.
    pub(super) fn take(&mut self, key: &str, value: &Value) -> Result<bool> {
        let node = &mut self.node;
        match key {
            "featureGates" => put(&mut self.gates, || Gates::read(value))?,
            "seccompDefault" => put(&mut self.seccomp_default, || flag(key, value))?,
            "registryPullQPS" => {
                put(&mut self.registry_pull_qps, || not_negative("registryPullQPS (--registry-qps)", value))?
            }
            "registryBurst" => {
                unless_zero(&mut self.registry_burst, || not_negative("registryBurst (--registry-burst)", value))?
            }
            "serializeImagePulls" => put(&mut self.serialize_image_pulls, || flag(key, value))?,
            "maxParallelImagePulls" => put(&mut self.max_parallel_image_pulls, || {
                let most: i32 = number(key, value)?;
                ensure!(most >= 1, "maxParallelImagePulls {most} must be a positive number");
                Ok(most)
            })?,
            "crashLoopBackOff" => {
                if let Some(longest) =
                    map(key, value)?.get("maxContainerRestartPeriod").filter(|longest| !longest.is_null())
                {
                    put(&mut self.max_container_restart_period, || {
                        let longest = time("crashLoopBackOff.maxContainerRestartPeriod", longest)?;
                        ensure!(
                            (1_000..=300_000).contains(&longest.as_millis()),
                            "CrashLoopBackOff.MaxContainerRestartPeriod (got: {} seconds) must be set between 1s and 300s",
                            longest.as_secs_f64()
                        );
                        Ok(longest)
                    })?;
                }
            }
            "nodeStatusUpdateFrequency" => unless_zero(&mut self.node_status_update, || time(key, value))?,
            "nodeStatusReportFrequency" => unless_zero(&mut self.node_status_report, || time(key, value))?,
            "nodeLeaseDurationSeconds" => unless_zero(&mut self.node_lease_seconds, || {
                let seconds: i32 = number(key, value)?;
                ensure!(seconds >= 0, "nodeLeaseDurationSeconds must be greater than 0");
                Ok(seconds)
            })?,
            "nodeStatusMaxImages" => put(&mut self.node_status_max_images, || {
                let most: i32 = number(key, value)?;
                ensure!(most >= -1, "nodeStatusMaxImages (--node-status-max-images) {most} must be -1 or greater");
                Ok(most)
            })?,
            "registerNode" => put(&mut self.register_node, || flag(key, value))?,
            "providerID" => unless_empty(&mut self.provider_id, || text(key, value))?,
            "eventRecordQPS" => put(&mut self.event_qps, || not_negative("eventRecordQPS (--event-qps)", value))?,
            "eventBurst" => unless_zero(&mut self.event_burst, || not_negative("eventBurst (--event-burst)", value))?,
            "containerLogMonitorInterval" => put(&mut self.log_interval, || {
                let interval = time(key, value)?;
                ensure!(
                    interval >= Duration::from_secs(3),
                    "containerLogMonitorInterval must be a positive time duration greater than or equal to 3s"
                );
                Ok(interval)
            })?,
            "containerLogMaxWorkers" => put(&mut self.log_workers, || {
                let workers = number::<i32>(key, value)?;
                ensure!(workers >= 1, "containerLogMaxWorkers must be greater than or equal to 1");
                Ok(usize::try_from(workers)?.min(1000))
            })?,
            "fileCheckFrequency" => unless_zero(&mut self.file_check, || time(key, value))?,
            "syncFrequency" => unless_zero(&mut self.sync, || time(key, value))?,
            "runtimeRequestTimeout" => unless_zero(&mut self.runtime_timeout, || time(key, value))?,
            "streamingConnectionIdleTimeout" => unless_zero(&mut self.stream_idle, || time(key, value))?,
            "oomScoreAdj" => put(&mut self.oom_score_adj, || {
                let score: i32 = number(key, value)?;
                ensure!(
                    (-1000..=1000).contains(&score),
                    "oomScoreAdj (--oom-score-adj) {score} must be between -1000 and 1000, inclusive"
                );
                Ok(score)
            })?,
            "healthzPort" => put(&mut self.healthz_port, || {
                number::<u16>(key, value).with_context(|| {
                    format!("healthzPort (--healthz-port) {value} must be between 1 and 65535, inclusive")
                })
            })?,
            "healthzBindAddress" => unless_empty_address(&mut self.healthz_address, key, value)?,
            "enableServer" => put(&mut self.enable_server, || flag(key, value))?,
            "enableDebuggingHandlers" => put(&mut self.debugging, || flag(key, value))?,
            "enableSystemLogHandler" => put(&mut self.system_logs, || flag(key, value))?,
            "enableSystemLogQuery" => put(&mut self.log_query, || flag(key, value))?,
            "authentication" => self.authentication(map(key, value)?)?,
            "authorization" => self.authorization(map(key, value)?)?,
            "shutdownGracePeriod" => put(&mut self.shutdown, || whole_seconds(key, value))?,
            "shutdownGracePeriodCriticalPods" => put(&mut self.shutdown_critical, || whole_seconds(key, value))?,
            "shutdownGracePeriodByPodPriority" => put(&mut self.shutdown_by_priority, || periods(key, value))?,
            "failSwapOn" => put(&mut self.fail_swap_on, || flag(key, value))?,
            "memorySwap" => {
                let behavior = map(key, value)?.get("swapBehavior").unwrap_or(&Value::Null);
                put(&mut self.swap, || swap(behavior))?;
            }
            "memoryThrottlingFactor" => put(&mut self.throttling_factor, || {
                let factor = value.as_f64().with_context(|| format!("{key} is no number: {value}"))?;
                ensure!(
                    factor > 0.0 && factor <= 1.0,
                    "memoryThrottlingFactor {factor} must be greater than 0 and less than or equal to 1.0"
                );
                Ok(factor)
            })?,
            "memoryReservationPolicy" => put(&mut self.reserves_memory, || match text(key, value)?.as_str() {
                "" | "None" => Ok(false),
                "TieredReservation" => Ok(true),
                other => anyhow::bail!(
                    "option {other:?} specified for memoryReservationPolicy. Valid options are \"None\" or \"TieredReservation\""
                ),
            })?,
            "singleProcessOOMKill" => put(&mut self.single_process_oom_kill, || flag(key, value))?,
            "cgroupDriver" => match text(key, value)?.as_str() {
                "" => {}
                name => put(&mut self.cgroup_driver, || {
                    CgroupDriver::parse(name)
                        .with_context(|| format!("cgroupDriver {name:?} is not known: systemd or cgroupfs"))
                })?,
            },
            "failCgroupV1" => put(&mut self.fail_cgroup_v1, || flag(key, value))?,
            "protectKernelDefaults" => put(&mut self.protect_kernel_defaults, || flag(key, value))?,
            "userNamespaces" => {
                if let Some(ids) = map(key, value)?.get("idsPerPod").filter(|ids| !ids.is_null()) {
                    put(&mut self.ids_per_pod, || ids_per_pod(ids))?;
                }
            }
            "defaultPodSysctls" => put(&mut self.default_sysctls, || {
                let pairs = map(key, value)?.iter();
                pairs.map(|(name, value)| anyhow::Ok((name.clone(), text(&format!("{key}[{name}]"), value)?))).collect()
            })?,
            "registerWithTaints" => put(&mut node.taints, || taints(key, value))?,
            "address" => unless_empty_address(&mut node.address, key, value)?,
            "port" => unless_zero(&mut node.port, || {
                number::<u16>(key, value)
                    .with_context(|| format!("port (--port) {value} must be between 1 and 65535, inclusive"))
            })?,
            "clusterDNS" => {
                let given = texts(key, value)?;
                let read = |address: &String| {
                    address.parse::<IpAddr>().with_context(|| format!("{key}: {address:?} is no address"))
                };
                if !given.is_empty() {
                    put(&mut node.cluster_dns, || given.iter().map(read).collect())?;
                }
            }
            "clusterDomain" => unless_empty(&mut node.cluster_domain, || text(key, value))?,
            "resolvConf" => put(&mut node.resolv_conf, || text(key, value).map(Into::into))?,
            "containerRuntimeEndpoint" => unless_empty(&mut node.container_runtime_endpoint, || text(key, value))?,
            "tlsCertFile" => unless_empty_path(&mut node.tls_cert_file, key, value)?,
            "tlsPrivateKeyFile" => unless_empty_path(&mut node.tls_private_key_file, key, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn authentication(&mut self, fields: &Map<String, Value>) -> Result<()> {
        if let Some(x509) = part(fields, "authentication", "x509")?
            && let Some(file) = x509.get("clientCAFile").filter(|file| !file.is_null())
        {
            unless_empty_path(&mut self.node.client_ca_file, "authentication.x509.clientCAFile", file)?;
        }
        if let Some(webhook) = part(fields, "authentication", "webhook")? {
            if let Some(on) = webhook.get("enabled").filter(|on| !on.is_null()) {
                put(&mut self.webhook, || flag("authentication.webhook.enabled", on))?;
            }
            ttl(&mut self.token_ttl, "authentication.webhook.cacheTTL", webhook.get("cacheTTL"))?;
        }
        if let Some(anonymous) = part(fields, "authentication", "anonymous")? {
            let on = anonymous.get("enabled").filter(|on| !on.is_null());
            let on = on.map(|on| flag("authentication.anonymous.enabled", on)).transpose()?;
            ensure!(on != Some(true), "authentication.anonymous.enabled cannot be true here: nobody is anonymous");
        }
        Ok(())
    }

    fn authorization(&mut self, fields: &Map<String, Value>) -> Result<()> {
        let mode = fields.get("mode").filter(|mode| !mode.is_null()).map(|mode| text("authorization.mode", mode));
        let mode = mode.transpose()?.unwrap_or_default();
        ensure!(
            ["", "Webhook"].contains(&mode.as_str()),
            "authorization.mode {mode:?} is not possible here, only \"Webhook\": the API server is asked what a caller may do"
        );
        if let Some(webhook) = part(fields, "authorization", "webhook")? {
            let name = |field: &str| format!("authorization.webhook.{field}");
            ttl(&mut self.allowed_ttl, &name("cacheAuthorizedTTL"), webhook.get("cacheAuthorizedTTL"))?;
            ttl(&mut self.denied_ttl, &name("cacheUnauthorizedTTL"), webhook.get("cacheUnauthorizedTTL"))?;
        }
        Ok(())
    }
}

fn flag(key: &str, value: &Value) -> Result<bool> {
    value.as_bool().with_context(|| format!("{key} is no bool: {value}"))
}

fn map<'a>(key: &str, value: &'a Value) -> Result<&'a Map<String, Value>> {
    value.as_object().with_context(|| format!("{key} is no map: {value}"))
}

fn part<'a>(fields: &'a Map<String, Value>, key: &str, name: &str) -> Result<Option<&'a Map<String, Value>>> {
    fields.get(name).filter(|part| !part.is_null()).map(|part| map(&format!("{key}.{name}"), part)).transpose()
}

fn ttl(place: &mut Option<Duration>, key: &str, value: Option<&Value>) -> Result<()> {
    value.filter(|value| !value.is_null()).map_or(Ok(()), |value| unless_zero(place, || time(key, value)))
}

fn not_negative(name: &str, value: &Value) -> Result<u32> {
    let key = name.split(' ').next().unwrap_or(name);
    let count: i32 = number(key, value)?;
    u32::try_from(count).ok().with_context(|| format!("{name} {count} must not be a negative number"))
}

/// Zero is what v1beta1 takes for nothing.
fn unless_zero<T: Default + PartialEq>(place: &mut Option<T>, read: impl FnOnce() -> Result<T>) -> Result<()> {
    let value = read()?;
    if value == T::default() { Ok(()) } else { put(place, || Ok(value)) }
}

fn unless_empty(place: &mut Option<String>, read: impl FnOnce() -> Result<String>) -> Result<()> {
    unless_zero(place, read)
}

fn unless_empty_path(place: &mut Option<PathBuf>, key: &str, value: &Value) -> Result<()> {
    unless_zero(place, || text(key, value).map(PathBuf::from))
}

fn unless_empty_address(place: &mut Option<IpAddr>, key: &str, value: &Value) -> Result<()> {
    let text = text(key, value)?;
    if text.is_empty() {
        return Ok(());
    }
    put(place, || text.parse::<IpAddr>().with_context(|| format!("{key}: {text:?} is no address")))
}

fn whole_seconds(key: &str, value: &Value) -> Result<Duration> {
    let given = time(key, value)?;
    ensure!(
        given.is_zero() || given >= Duration::from_secs(1),
        "{key} {} must be either zero or otherwise >= 1 sec",
        value.as_str().unwrap_or_default()
    );
    Ok(given)
}

fn periods(key: &str, value: &Value) -> Result<Vec<ShutdownPeriod>> {
    let list = value.as_array().with_context(|| format!("{key} is no list: {value}"))?;
    let read = |item: &Value| -> Result<ShutdownPeriod> {
        let fields = map(key, item)?;
        let of = |name: &str| fields.get(name).unwrap_or(&Value::Null);
        let zero = |value: &Value| value.is_null();
        let priority: i32 = if zero(of("priority")) { 0 } else { number(key, of("priority"))? };
        let seconds: i64 =
            if zero(of("shutdownGracePeriodSeconds")) { 0 } else { number(key, of("shutdownGracePeriodSeconds"))? };
        ensure!(seconds >= 0, "{key}: shutdownGracePeriodSeconds {seconds} must not be a negative number");
        Ok(ShutdownPeriod { priority, seconds })
    };
    let mut periods = list.iter().map(read).collect::<Result<Vec<_>>>()?;
    periods.sort_by_key(|period| period.priority);
    Ok(periods)
}

fn swap(behavior: &Value) -> Result<SwapBehavior> {
    match behavior.as_str().unwrap_or_default() {
        "" if behavior.is_null() || behavior.is_string() => Ok(SwapBehavior::NoSwap),
        "NoSwap" => Ok(SwapBehavior::NoSwap),
        "LimitedSwap" => Ok(SwapBehavior::LimitedSwap),
        _ => anyhow::bail!("memorySwap.swapBehavior {behavior} must be one of: \"\", \"LimitedSwap\" or \"NoSwap\""),
    }
}

/// Ranges of ids are multiples of what images use.
fn ids_per_pod(value: &Value) -> Result<u32> {
    let ids: i64 = number("userNamespaces.idsPerPod", value)?;
    let field = "invalid configuration: userNamespaces.idsPerPod";
    ensure!(ids >= 65_536, "{field} must not be less than 65536");
    ensure!(ids % 65_536 == 0, "{field} must be a multiple of 65536");
    let ids = u32::try_from(ids).with_context(|| format!("{field} must not be more than {}", u32::MAX))?;
    Ok(ids)
}

fn taints(key: &str, value: &Value) -> Result<Vec<Taint>> {
    let list = value.as_array().with_context(|| format!("{key} is no list: {value}"))?;
    let read = |item: &Value| -> Result<Taint> {
        let taint: Taint = serde_json::from_value(item.clone()).with_context(|| format!("invalid taint: {item}"))?;
        ensure!(taint.time_added.is_none(), "{key}: taint.TimeAdded is not nil");
        let written = format!("{}={}:{}", taint.key, taint.value.as_deref().unwrap_or_default(), taint.effect);
        labels::taint(key, &written).map_err(|_| anyhow::anyhow!("invalid taint: {item}"))
    };
    list.iter().map(read).collect()
}

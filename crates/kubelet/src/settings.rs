//! What a KubeletConfiguration may set of how the kubelet works; the defaults are upstream's, but where a field says otherwise.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::backoff::RestartDelays;

/// Settings beside those that [`crate::Config`] has of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether a container without a seccomp profile gets the runtime's instead of none.
    pub seccomp_default: bool,
    pub pulls: Pulls,
    /// How long a container waits that crashes again and again.
    pub restarts: RestartDelays,
    pub report: Report,
    /// Events per second and at once; none for as many as there are.
    pub events: Option<ferry_client::EventRate>,
    pub logs: Logs,
    /// How often the files of static pods are read, should nothing tell of a change.
    pub file_check: Duration,
    /// How long a worker waits at most before it looks at its pod again; none where it waits until something happens.
    pub sync: Option<Duration>,
    /// How long a call of the runtime may take that has no time of its own.
    pub runtime_timeout: Duration,
    /// How long a session may stand still.
    pub stream_idle: Duration,
    pub server: Endpoints,
    /// Where `/healthz` is served without authentication.
    pub healthz: Option<SocketAddr>,
    /// For the process as a whole; none leaves it as it is.
    pub oom_score_adj: Option<i32>,
    /// By priority, lowest first; empty where pods are not ended before the machine is.
    pub shutdown: Vec<crate::ShutdownPeriod>,
    pub logind: crate::LogindPlaces,
    pub memory: crate::MemoryPolicy,
    /// Sysctls of pods that do not set them themselves.
    pub default_sysctls: Vec<(String, String)>,
    /// Whether the kernel has to be set already as a kubelet wants it.
    pub protect_kernel_defaults: bool,
    /// Of pods with users of their own: a multiple of 65536.
    pub ids_per_pod: u32,
    /// The feature gates that were given, for who asks for the configuration.
    pub feature_gates: BTreeMap<String, bool>,
    /// Whether a machine whose control groups are of version 1 is refused.
    pub fail_cgroup_v1: bool,
    /// How long a container may be away that is started anew because its definition changed, before its pod is not ready.
    /// As upstream's kubelet, which looks at its containers once a second and so does not see that they were away.
    pub replaced_told_after: Duration,
}

/// How images are pulled. Without a word on it, Ferry pulls as many as are wanted side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pulls {
    /// Pulls at one time; none for any number.
    pub at_once: Option<usize>,
    /// Pulls per second, and how many of them at once; none for any number.
    pub rate: Option<(u32, u32)>,
}

/// What the API server is told of the node, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Whether the node registers itself.
    pub registers: bool,
    pub provider_id: Option<String>,
    /// How often the status is computed.
    pub update: Duration,
    /// How often it is written when nothing has changed.
    pub report: Duration,
    pub lease_seconds: i32,
    /// None for all of them.
    pub most_images: Option<usize>,
}

/// How logs of containers are set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logs {
    pub interval: Duration,
    pub workers: usize,
}

/// What the kubelet's server answers, and whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Logs of containers, exec, attach, port-forward.
    pub debugging: bool,
    /// `/logs/`.
    pub system_logs: bool,
    /// `/logs/?query=`.
    pub log_query: bool,
    /// Whether the API server is asked about tokens.
    pub tokens: bool,
    /// How long an answer of the API server holds.
    pub token_ttl: Duration,
    pub allowed_ttl: Duration,
    pub denied_ttl: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seccomp_default: false,
            pulls: Pulls::default(),
            restarts: RestartDelays::default(),
            report: Report {
                registers: true,
                provider_id: None,
                update: Duration::from_secs(10),
                report: Duration::from_secs(300),
                lease_seconds: 40,
                most_images: Some(50),
            },
            events: None,
            logs: Logs { interval: Duration::from_secs(10), workers: 1 },
            file_check: Duration::from_secs(20),
            sync: None,
            runtime_timeout: Duration::from_secs(120),
            stream_idle: Duration::from_secs(4 * 3600),
            server: Endpoints {
                debugging: true,
                system_logs: true,
                log_query: false,
                tokens: true,
                token_ttl: Duration::from_secs(120),
                allowed_ttl: Duration::from_secs(300),
                denied_ttl: Duration::from_secs(30),
            },
            healthz: None,
            oom_score_adj: None,
            shutdown: Vec::new(),
            logind: crate::LogindPlaces::default(),
            memory: crate::MemoryPolicy::default(),
            default_sysctls: Vec::new(),
            protect_kernel_defaults: false,
            ids_per_pod: crate::user_namespaces::LENGTH,
            feature_gates: BTreeMap::new(),
            fail_cgroup_v1: false,
            replaced_told_after: Duration::from_secs(1),
        }
    }
}

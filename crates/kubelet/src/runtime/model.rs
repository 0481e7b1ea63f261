//! What the runtime has of one pod, in the form the planner reads.

use ferry_cri::v1;
use jiff::Timestamp;

/// Labels and annotations by which a kubelet finds its containers again. The names are upstream's, so that either
/// kubelet can take over from the other.
pub(crate) mod label {
    pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
    pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
    pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    pub(crate) const HASH: &str = "io.kubernetes.container.hash";
    pub(crate) const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    pub(crate) const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    pub(crate) const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    pub(crate) const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RunState {
    Created,
    Running,
    Exited,
    Unknown,
}

impl From<v1::ContainerState> for RunState {
    fn from(state: v1::ContainerState) -> Self {
        match state {
            v1::ContainerState::ContainerCreated => Self::Created,
            v1::ContainerState::ContainerRunning => Self::Running,
            v1::ContainerState::ContainerExited => Self::Exited,
            v1::ContainerState::ContainerUnknown => Self::Unknown,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) ready: bool,
    pub(crate) created_at: i64,
    pub(crate) addresses: Vec<String>,
}

/// One container that the runtime knows, running or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) sandbox: String,
    pub(crate) state: RunState,
    pub(crate) restart_count: u32,
    pub(crate) hash: String,
    pub(crate) image: String,
    pub(crate) image_ref: String,
    pub(crate) created_at: i64,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) log_path: String,
}

/// All sandboxes and containers of one pod, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodState {
    pub(crate) sandboxes: Vec<Sandbox>,
    pub(crate) records: Vec<Record>,
}

impl PodState {
    pub(crate) fn sort(&mut self) {
        self.sandboxes.sort_by_key(|s| std::cmp::Reverse((s.created_at, s.attempt)));
        self.records.sort_by_key(|r| std::cmp::Reverse((r.created_at, r.restart_count)));
    }

    /// The sandbox to use, when it is fit for use.
    pub(crate) fn ready_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|s| s.ready)
    }

    /// The newest record of a container, of whichever sandbox.
    pub(crate) fn latest(&self, name: &str) -> Option<&Record> {
        self.records.iter().find(|r| r.name == name)
    }

    /// The newest record of a container in the newest sandbox.
    pub(crate) fn current(&self, name: &str) -> Option<&Record> {
        let sandbox = &self.sandboxes.first()?.id;
        self.records.iter().find(|r| r.name == name && r.sandbox == *sandbox)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|r| r.state == RunState::Running)
    }

    pub(crate) fn addresses(&self) -> &[String] {
        self.ready_sandbox().map_or(&[], |s| s.addresses.as_slice())
    }
}

pub(crate) fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds <= 0 { None } else { Timestamp::from_nanosecond(nanoseconds.into()).ok() }
}

//! What the runtime has of one pod, in the form the planner reads.

use ferry_cri::v1;
use jiff::Timestamp;

/// Labels and annotations by which a kubelet finds its containers again. The names are upstream's, so that either
/// kubelet can take over from the other.
pub mod label {
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    pub const HASH: &str = "io.kubernetes.container.hash";
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    pub const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
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
pub struct Sandbox {
    pub id: String,
    pub attempt: u32,
    pub ready: bool,
    pub created_at: i64,
    pub addresses: Vec<String>,
}

/// One container that the runtime knows, running or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub id: String,
    pub name: String,
    pub sandbox: String,
    pub state: RunState,
    pub restart_count: u32,
    pub hash: String,
    pub image: String,
    pub image_ref: String,
    pub created_at: i64,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    pub log_path: String,
}

/// All sandboxes and containers of one pod, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodState {
    pub sandboxes: Vec<Sandbox>,
    pub records: Vec<Record>,
}

impl PodState {
    pub fn sort(&mut self) {
        self.sandboxes.sort_by_key(|s| std::cmp::Reverse((s.created_at, s.attempt)));
        self.records.sort_by_key(|r| std::cmp::Reverse((r.created_at, r.restart_count)));
    }

    /// The sandbox to use, when it is fit for use.
    pub fn ready_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|s| s.ready)
    }

    /// The newest record of a container, of whichever sandbox.
    pub fn latest(&self, name: &str) -> Option<&Record> {
        self.records.iter().find(|r| r.name == name)
    }

    /// The newest record of a container in the newest sandbox.
    pub fn current(&self, name: &str) -> Option<&Record> {
        let sandbox = &self.sandboxes.first()?.id;
        self.records.iter().find(|r| r.name == name && r.sandbox == *sandbox)
    }

    pub fn running(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|r| r.state == RunState::Running)
    }

    pub fn addresses(&self) -> &[String] {
        self.ready_sandbox().map_or(&[], |s| s.addresses.as_slice())
    }
}

pub fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds <= 0 { None } else { Timestamp::from_nanosecond(nanoseconds.into()).ok() }
}

//! The scheduling framework: the points at which plugins take part, and what they say there.
//!
//! A plugin is one type that implements [`Plugin`]; it names the points it takes part in and implements those methods.
//! Everything up to Reserve is synchronous and pure over the cycle's view; PreBind and Bind may talk to the API.

mod cycle;
mod diagnosis;
mod profile;
mod state;

use std::any::Any;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferry_client::{Change, Recorder};
use ferry_tasks::Tasks;
use k8s_openapi::api::resource::v1::ResourceClaim;

pub use cycle::{Failure, Nomination, Placed, Search};
pub use diagnosis::{Diagnosis, NodeVerdict};
pub use profile::{Profile, Registered};
pub use state::{CycleData, CycleState};

use crate::listers::Listers;
use crate::model::{Cache, NodeInfo, PodInfo};
use crate::queue::QueuedPod;

pub const MAX_SCORE: i64 = 100;

/// A set of things that happen in the cluster and may let a rejected pod be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events(u32);

impl Events {
    pub const NONE: Self = Self(0);
    pub const NODE_ADDED: Self = Self(1);
    pub const NODE_ALLOCATABLE: Self = Self(1 << 1);
    pub const NODE_LABELS: Self = Self(1 << 2);
    /// Taints or the flag of a cordoned node.
    pub const NODE_TAINTS: Self = Self(1 << 3);
    pub const POD_PLACED: Self = Self(1 << 4);
    /// A pod left its node.
    pub const POD_GONE: Self = Self(1 << 5);
    /// A placed pod's labels changed.
    pub const POD_LABELS: Self = Self(1 << 6);
    /// A placed pod asks for less than before.
    pub const POD_SHRUNK: Self = Self(1 << 7);
    pub const NAMESPACE: Self = Self(1 << 8);
    /// Claims, volumes, classes and what nodes can attach.
    pub const STORAGE: Self = Self(1 << 9);
    /// Claims of devices.
    pub const RESOURCE_CLAIM: Self = Self(1 << 10);
    /// What drivers offer, or taints of it.
    pub const RESOURCE_SLICE: Self = Self(1 << 11);
    pub const DEVICE_CLASS: Self = Self(1 << 12);
    pub const NODE_GONE: Self = Self(1 << 13);
    pub const ALL: Self = Self((1 << Self::COUNT) - 1);
    /// How many sorts of events there are.
    pub const COUNT: usize = 14;

    /// The first of them as upstream's metrics call it.
    pub fn label(self) -> &'static str {
        const LABELS: [&str; Events::COUNT] = [
            "NodeAdd",
            "NodeUpdateNodeAllocatable",
            "NodeUpdateNodeLabel",
            "NodeUpdateNodeTaint",
            "AssignedPodAdd",
            "AssignedPodDelete",
            "AssignedPodUpdatePodLabel",
            "AssignedPodUpdatePodScaleDown",
            "NamespaceUpdate",
            "PersistentVolumeClaimUpdate",
            "ResourceClaimUpdate",
            "ResourceSliceUpdate",
            "DeviceClassUpdate",
            "NodeDelete",
        ];
        LABELS.get(self.0.trailing_zeros() as usize).copied().unwrap_or_default()
    }

    /// Calls for the number of each event in the set.
    pub fn each(self, mut call: impl FnMut(usize)) {
        (0..Self::COUNT).filter(|event| self.0 >> event & 1 == 1).for_each(&mut call);
    }

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// One occurrence of such events, with the object it is about.
#[derive(Clone, Copy)]
pub struct Happening<'a> {
    pub events: Events,
    pub node: Option<&'a NodeInfo>,
    pub pod: Option<&'a PodInfo>,
    pub claim: Option<&'a Change<ResourceClaim>>,
}

impl<'a> Happening<'a> {
    pub fn of(events: Events) -> Self {
        Self { events, node: None, pod: None, claim: None }
    }

    /// About a pod.
    pub fn of_pod(events: Events, pod: &'a PodInfo) -> Self {
        Self { pod: Some(pod), ..Self::of(events) }
    }
}

/// Where plugins take part, in the order of a pod's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    QueueSort,
    PreEnqueue,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

/// Why a pod cannot be placed, on one node or at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reasons: Vec<Cow<'static, str>>,
    /// Whether removing other pods could change it.
    pub preemptible: bool,
    /// Something is wrong, whatever the node: the pod is tried again after a while.
    pub error: bool,
}

impl Rejection {
    pub fn preemptible(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reasons: vec![reason.into()], preemptible: true, error: false }
    }

    pub fn firm(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reasons: vec![reason.into()], preemptible: false, error: false }
    }

    pub fn error(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { error: true, ..Self::firm(reason) }
    }

    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}

pub type Verdict = Result<(), Rejection>;

/// What PreFilter says.
pub enum PreFilter {
    /// The plugin's Filter has nothing to say about this pod.
    Skip,
    Continue {
        data: Option<Box<dyn CycleData>>,
        /// The only nodes that can pass, where the plugin knows them.
        nodes: Option<BTreeSet<String>>,
    },
    Reject(Rejection),
}

impl PreFilter {
    pub fn with(data: impl CycleData) -> Self {
        Self::Continue { data: Some(Box::new(data)), nodes: None }
    }
}

/// What PreScore says.
pub enum PreScore {
    Skip,
    Continue(Option<Box<dyn CycleData>>),
}

impl PreScore {
    pub fn with(data: impl CycleData) -> Self {
        Self::Continue(Some(Box::new(data)))
    }
}

/// What PostFilter says.
pub enum PostFilter {
    /// Pods to remove, so that the pod fits that node later.
    Preempt(Preemption),
    /// Nothing helps. `clear` takes back an earlier nomination.
    Unhelpful { reason: String, clear: bool },
}

#[derive(Clone, Debug)]
pub struct Preemption {
    pub node: String,
    pub victims: Vec<Arc<PodInfo>>,
}

/// Allows a waiting pod, or says why not.
pub type Decision = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// What Permit says.
pub enum Permit {
    Allow,
    Reject(String),
    /// Until the decision is made. One that takes longer than this is a rejection.
    Wait {
        longest: Duration,
        decision: Decision,
    },
}

/// What a cycle sees besides the plugin's own data.
#[derive(Clone, Copy)]
pub struct Cycle<'a> {
    pub pod: &'a PodInfo,
    pub cache: &'a Cache,
    pub listers: &'a Listers,
}

/// What a plugin may use from the start to the end of the scheduler.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    pub listers: &'a Listers,
    pub recorder: &'a Recorder,
    pub tasks: &'a Tasks,
}

/// The data a plugin left at PreFilter or PreScore.
pub type Data<'a> = Option<&'a dyn Any>;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BindError(pub String);

#[async_trait]
#[expect(unused_variables, reason = "the defaults of points a plugin takes no part in")]
pub trait Plugin: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    fn points(&self) -> &'static [Point];

    /// Before the first pod.
    fn begin(&self, surroundings: Surroundings<'_>) {}

    /// Which events may help a pod that this plugin rejected.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// Whether this occurrence of such an event may help this pod.
    fn helps(&self, pod: &PodInfo, happening: &Happening<'_>) -> bool {
        true
    }

    /// QueueSort: who is tried first.
    fn order(&self, left: &QueuedPod, right: &QueuedPod) -> Ordering {
        Ordering::Equal
    }

    /// PreEnqueue: whether to try it at all.
    fn pre_enqueue(&self, pod: &PodInfo) -> Verdict {
        Ok(())
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        PreFilter::Continue { data: None, nodes: None }
    }

    /// Whether Filter could reject this pod on any node at all; asked once per cycle, so that most need not run.
    fn concerns(&self, cycle: &Cycle<'_>) -> bool {
        true
    }

    fn filter(&self, cycle: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        Ok(())
    }

    /// Keeps the PreFilter data true while a simulation adds (1) or removes (-1) another pod on a node.
    fn adjust(&self, cycle: &Cycle<'_>, data: &mut dyn Any, other: &PodInfo, node: &NodeInfo, change: i64) {}

    fn post_filter(&self, search: &Search<'_>, state: &CycleState, diagnosis: &Diagnosis) -> PostFilter {
        PostFilter::Unhelpful { reason: String::new(), clear: false }
    }

    fn pre_score(&self, cycle: &Cycle<'_>, nodes: &[&NodeInfo]) -> PreScore {
        PreScore::Continue(None)
    }

    fn score(&self, cycle: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> i64 {
        0
    }

    /// The scores of all these nodes, for plugins that can do better than one by one.
    fn scores(&self, cycle: &Cycle<'_>, data: Data<'_>, nodes: &[&NodeInfo]) -> Vec<i64> {
        nodes.iter().map(|node| self.score(cycle, data, node)).collect()
    }

    /// Brings the scores of all nodes into 0..=100.
    fn normalize(&self, cycle: &Cycle<'_>, data: Data<'_>, nodes: &[&NodeInfo], scores: &mut [i64]) {}

    fn reserve(&self, cycle: &Cycle<'_>, node: &str) -> Verdict {
        Ok(())
    }

    fn unreserve(&self, pod: &PodInfo, node: &str) {}

    fn permit(&self, pod: &PodInfo, node: &str) -> Permit {
        Permit::Allow
    }

    async fn pre_bind(&self, pod: &PodInfo, node: &str) -> Result<(), BindError> {
        Ok(())
    }

    /// Nothing when it leaves the pod to the next binder.
    async fn bind(&self, pod: &PodInfo, node: &str) -> Option<Result<(), BindError>> {
        None
    }

    fn post_bind(&self, pod: &PodInfo, node: &str) {}
}

/// Scales scores so that the highest becomes 100; reversed, so that the lowest does.
pub fn normalize_by_maximum(scores: &mut [i64], reversed: bool) {
    let highest = scores.iter().copied().max().unwrap_or_default();
    for score in scores {
        let scaled = if highest == 0 { 0 } else { MAX_SCORE * *score / highest };
        *score = if reversed { MAX_SCORE - scaled } else { scaled };
    }
}

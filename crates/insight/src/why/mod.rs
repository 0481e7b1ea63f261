//! Why an object is not (yet) ready, scheduled, running, reachable or deleted: the first hop that is stuck, and its cause.
//!
//! What is said is true: a cause comes from a typed reason, or from looking at the objects that it names. What is read out
//! of a message is said as "probably", with the message beside it.

mod access;
mod admission;
mod attachment;
mod autoscaler;
mod backend;
mod budget;
mod certificate;
mod claim;
mod cluster_objects;
mod containers;
mod crash;
mod cron_job;
mod deletion;
mod devices;
mod disruption;
mod external;
mod finalizers;
mod fit;
mod gateway;
mod grant;
mod growth;
mod hints;
mod image;
mod ingress;
mod job;
mod lease;
mod local;
mod misfit;
mod near;
mod network_policy;
mod node;
mod owner;
mod parts;
mod pod;
mod policies;
mod policy_dns;
mod policy_peers;
mod probes;
mod provisioner;
mod pull_failure;
mod reason;
mod references;
mod render;
mod rivals;
mod roles;
mod rollout;
mod route;
mod scheduling;
mod servers;
mod service;
mod short;
mod slices;
mod snapshot;
mod source;
#[cfg(test)]
mod tests;
mod volume;
mod waits_for;
mod webhook;
pub(crate) mod workload;

use ferry_meta::object;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::named::Named;
use crate::world::{World, condition, known_kind, time_at, title, word};

pub use crate::gather::world as look;
pub(crate) use access::{ACCOUNTS, accounts, role_plural};
pub(crate) use cron_job::next as next_job;
pub(crate) use devices::may_have as may_have_devices;
pub(crate) use external::meant as service_meant;
pub(crate) use fit::volumes::{CAPACITIES, claims as claims_of};
pub(crate) use gateway::secrets as secrets_of_gateway;
pub(crate) use near::names_of;
pub(crate) use policy_peers::names_pods_of_others;
pub use reason::Reason;
pub(crate) use references::of_pod as references_of;
pub use render::render;
pub(crate) use roles::SERVED;
pub(crate) use scheduling::wanted as wanted_of_pods;
pub(crate) use snapshot::{CLASSES as SNAPSHOT_CLASSES, CONTENTS as SNAPSHOT_CONTENTS};

/// Where a Node tells who drops packets of its pods: chains of others in which nothing could be done about it.
pub const PACKETS_DROPPED: &str = "ferry.dev/packets-dropped";

/// Set in the target where the object itself could not be read, because the server is not well.
pub(crate) const UNREAD: &str = "unread";

/// Where on the way from the client to a reachable pod it is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    Deletion,
    Controller,
    Admission,
    Scheduler,
    Storage,
    Node,
    Kubelet,
    Ready,
    Endpoints,
    Autoscaler,
    Network,
    Authorization,
    Store,
}

impl Hop {
    /// In words that need no knowledge of the hops.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deletion => "deletion",
            Self::Controller => "controller",
            Self::Admission => "admission, where the API server refuses objects",
            Self::Scheduler => "scheduler, which chooses a node for the pod",
            Self::Storage => "storage, which finds a volume for the claim",
            Self::Node => "node",
            Self::Kubelet => "kubelet, which starts the containers on the node",
            Self::Ready => "readiness of the pod",
            Self::Endpoints => "endpoints, the addresses behind a Service",
            Self::Autoscaler => "autoscaler",
            Self::Network => "network, between the two ends of a connection",
            Self::Authorization => "authorization, where the API server asks who may do what",
            Self::Store => "store, which keeps every object",
        }
    }

    /// Its number among the twelve hops.
    pub fn number(self) -> Option<u8> {
        match self {
            Self::Deletion | Self::Autoscaler | Self::Network => None,
            Self::Authorization => Some(3),
            Self::Store => Some(7),
            Self::Controller => Some(9),
            Self::Admission => Some(6),
            Self::Scheduler | Self::Storage => Some(10),
            Self::Node | Self::Kubelet => Some(11),
            Self::Ready | Self::Endpoints => Some(12),
        }
    }
}

/// One cause, in plain words, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub reason: Reason,
    pub hop: Hop,
    /// `pod/web-1`
    pub about: String,
    pub cause: String,
    pub details: Vec<String>,
    pub advice: Vec<String>,
    /// Nothing is wrong so far: it takes its time.
    pub underway: bool,
    /// It could not be proved by a typed reason or by an object; the details are the evidence.
    pub probably: bool,
    /// It is as somebody wants it to be: worth knowing, and nothing that holds the object up.
    pub note: bool,
}

impl Finding {
    pub(crate) fn new(reason: Reason, about: &Value, cause: impl Into<String>) -> Self {
        Self {
            reason,
            hop: reason.hop(),
            about: title(about),
            cause: cause.into(),
            details: Vec::new(),
            advice: Vec::new(),
            underway: false,
            probably: false,
            note: false,
        }
    }

    pub(crate) fn detail(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        if !text.trim().is_empty() && !self.details.contains(&text) {
            self.details.push(text);
        }
        self
    }

    pub(crate) fn advise(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        if !self.advice.contains(&text) {
            self.advice.push(text);
        }
        self
    }

    fn advise_all(self, texts: impl IntoIterator<Item = String>) -> Self {
        texts.into_iter().fold(self, Self::advise)
    }

    fn underway(mut self) -> Self {
        self.underway = true;
        self
    }

    fn underway_if(mut self, early: bool) -> Self {
        self.underway |= early;
        self
    }

    fn probably(mut self) -> Self {
        self.probably = true;
        self
    }

    fn note(mut self) -> Self {
        self.note = true;
        self
    }

    /// What holds up one of its parts holds it up: the part's cause, details and advice.
    pub(crate) fn because_of(mut self, inner: Self) -> Self {
        self.details.push(format!("{}: {}", inner.about, inner.sentence()));
        self.details.extend(inner.details);
        self.advice.extend(inner.advice);
        self.underway |= inner.underway;
        self
    }

    /// The cause, with how sure it is.
    pub(crate) fn sentence(&self) -> String {
        if self.probably { format!("probably: {}", self.cause) } else { self.cause.clone() }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "reason": self.reason.name(), "hop": self.hop.name(), "about": self.about, "cause": self.cause,
            "details": self.details, "advice": self.advice, "underway": self.underway, "probably": self.probably,
            "note": self.note,
        })
    }
}

/// One cause: None where it is not the one.
type Cause = fn(&World, &Value) -> Option<Finding>;

/// What holds the target up, the first hop first, then the notes. Nothing but notes: nothing does.
pub fn findings(world: &World) -> Vec<Finding> {
    // Where the server itself is not well, whatever else is said of the object may follow from that.
    let mut found = servers::findings(world);
    found.extend(all_findings(world));
    found.sort_by_key(|finding| finding.note);
    short::cut(found)
}

/// What holds it up before anything else does.
pub fn held(findings: &[Finding]) -> Option<&Finding> {
    findings.iter().find(|finding| !finding.note)
}

/// How an object is, as far as that was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing holds it up; there may be notes.
    Fine,
    OnItsWay,
    Stuck,
    /// Nothing was found to hold it up, but the server did not answer everything.
    Unknown,
}

/// What is to be said of the object as a whole. What is proved stays so, whatever else could not be read.
pub fn verdict(world: &World, findings: &[Finding]) -> Verdict {
    match held(findings) {
        Some(first) if !first.underway => Verdict::Stuck,
        _ if world.is_cut => Verdict::Unknown,
        Some(_) => Verdict::OnItsWay,
        None => Verdict::Fine,
    }
}

/// The objects of any kind that are to be looked up for what is said of the target.
pub(crate) fn named_by(world: &World) -> Vec<Named> {
    let target = &world.target;
    let mut found: Vec<Named> = match known_kind(target) {
        "PersistentVolumeClaim" => source::of(target).into_iter().chain(growth::attributes(target)).collect(),
        "Ingress" => ingress::resources(target).into_iter().map(|(_, named)| named).collect(),
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            policies::parameters(world, target).into_iter().collect()
        }
        _ => Vec::new(),
    };
    let unbound = |claim: &&Value| object::text(claim, "/status/phase") == "Pending";
    found.extend(world.all("persistentvolumeclaims").iter().filter(unbound).filter_map(source::of));
    found.extend(owner::owners(target).into_iter().map(|(owner, _)| owner));
    found.extend(world.own_pods_first().into_iter().take(8).flat_map(waits_for::named_by));
    found
}

fn all_findings(world: &World) -> Vec<Finding> {
    let target = &world.target;
    if target[UNREAD] == true {
        return Vec::new();
    }
    if let Some(held) = deletion::held(world, target) {
        return vec![held];
    }
    let mut found = of_kind(world, target);
    found.extend(owner::missing(world, target));
    found
}

fn of_kind(world: &World, target: &Value) -> Vec<Finding> {
    let one = |finding: Option<Finding>| finding.into_iter().collect::<Vec<_>>();
    match known_kind(target) {
        "Pod" => pod::findings(world, target),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "ReplicationController" => {
            workload::findings(world, target)
        }
        "Job" => job::findings(world, target),
        "CronJob" => cron_job::findings(world, target),
        "Service" => service::findings(world, target),
        "EndpointSlice" => slices::slice(world, target),
        "Ingress" => ingress::findings(world, target),
        "Gateway" => gateway::findings(world, target),
        "GatewayClass" => one(gateway::class_itself(world, target)),
        "HTTPRoute" | "GRPCRoute" | "TLSRoute" | "TCPRoute" | "UDPRoute" => route::findings(world, target),
        "NetworkPolicy" => network_policy::policy(world, target),
        "PersistentVolumeClaim" => one(claim::findings(world, target)),
        "PersistentVolume" => one(volume::persistent(world, target)),
        "Node" => node::findings(world, target),
        "PodDisruptionBudget" => budget::findings(world, target),
        "ResourceQuota" => cluster_objects::quota(world, target),
        "CertificateSigningRequest" => one(cluster_objects::certificate_request(world, target)),
        "HorizontalPodAutoscaler" => autoscaler::findings(world, target),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => webhook::configuration(world, target),
        "APIService" => one(webhook::api_service(world, target)),
        "CustomResourceDefinition" => webhook::conversion(world, target),
        "RoleBinding" | "ClusterRoleBinding" => access::binding(world, target),
        "Secret" => one(certificate::secret(world, target)),
        "Role" | "ClusterRole" => roles::findings(world, target),
        "StorageClass" => one(provisioner::class(world, target)),
        "VolumeAttributesClass" => one(provisioner::attributes(world, target)),
        "VolumeSnapshot" => one(snapshot::finding(world, target)),
        "ResourceClaimTemplate" => one(devices::missing_class(world, target, "/spec/spec/devices")),
        "ResourceClaim" => one(devices::device_claim(world, target)),
        "Lease" => one(lease::finding(world, target)),
        "VolumeAttachment" => one(attachment::finding(world, target)),
        "ServiceAccount" => one(references::of_account(world, target)),
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => policies::policy(world, target),
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => policies::binding(world, target),
        _ => one(cluster_objects::other(world, target)),
    }
}

/// The findings as a document for programs.
pub fn to_json(world: &World, findings: &[Finding]) -> Value {
    json!({
        "object": title(&world.target),
        "namespace": object::namespace(&world.target),
        "fine": verdict(world, findings) == Verdict::Fine,
        "findings": findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
        "unseen": world.unseen,
    })
}

/// What others do within this time is on its way.
const SOON_SECONDS: i64 = 30;

/// It was made a moment ago, and whoever takes care of it has not had the time.
fn is_young(world: &World, item: &Value) -> bool {
    time_at(item, "/metadata/creationTimestamp").is_some_and(|made| is_soon(world, made))
}

fn is_soon(world: &World, then: Timestamp) -> bool {
    world.now.as_second().saturating_sub(then.as_second()) < SOON_SECONDS
}

/// Reason and message of a condition, a state or an event.
fn said(what: &Value) -> String {
    match (object::text(what, "/reason"), object::text(what, "/message").trim()) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// `the first of 3`-lists do not grow without end.
pub(crate) fn named<T: AsRef<str>>(items: &[T]) -> String {
    const SHOWN: usize = 4;
    let texts: Vec<&str> = items.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match items.len() {
        ..=SHOWN => texts.join(", "),
        more => format!("{} and {} more", texts.join(", "), more - SHOWN),
    }
}

pub(crate) fn plural(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// `key=value,key=value`
fn pairs(map: &serde_json::Map<String, Value>) -> String {
    let pairs = map.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}

/// `-n namespace `, for commands.
pub(crate) fn in_namespace(item: &Value) -> String {
    let namespace = object::namespace(item);
    if namespace.is_empty() { String::new() } else { format!("-n {namespace} ") }
}

/// `deployment.apps/web`: with its group, so that a command means this kind and no other.
fn title_with_group(item: &Value) -> String {
    let group = object::text(item, "/apiVersion").split_once('/').map(|(group, _)| group).unwrap_or_default();
    match group {
        "" => title(item),
        group => {
            let kind = object::text(item, "/kind").to_lowercase();
            word(&format!("{kind}.{group}/{}", object::name(item))).into_owned()
        }
    }
}

/// The newest warning about an object.
fn warning<'a>(world: &'a World, about: &Value) -> Option<&'a Value> {
    world.events(about).into_iter().rfind(|event| object::text(event, "/type") == "Warning")
}

/// The condition where it does not stand at True.
fn is_failing<'a>(item: &'a Value, name: &str) -> Option<&'a Value> {
    condition(item, name).filter(|condition| object::text(condition, "/status") != "True")
}

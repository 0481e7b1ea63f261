//! What is known of the surroundings of an object: everything that causes and hops are found out from.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use ferry_meta::selector::LabelSelector;
use ferry_meta::{object, time};
use jiff::Timestamp;
use serde_json::Value;

use crate::cluster::Error;

/// Objects as they were read, by the plural of their resource.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub now: Timestamp,
    pub target: Value,
    lists: BTreeMap<String, Vec<Value>>,
    /// The places of Events in their list, by what they are about: its uid, and `Kind/name`.
    events_of: HashMap<String, Vec<usize>>,
    /// What the scheduler says of pods without a node, by name.
    pub(crate) verdicts: BTreeMap<String, Value>,
    /// The last line that a container wrote before it ended, by `pod/container`.
    pub(crate) last_lines: BTreeMap<String, String>,
    /// Containers whose log was read, by the same name.
    pub(crate) read_logs: BTreeSet<String>,
    /// Why the log of a container could not be read, by the same name.
    pub(crate) unread_logs: BTreeMap<String, String>,
    /// Objects that others name, by plural and name: what is known of each.
    named: BTreeMap<(String, String), Presence>,
    /// The namespaces that have an object which is missing here, by plural and name.
    elsewhere: BTreeMap<(String, String), Vec<String>>,
    /// What could not be read, and why.
    pub unseen: Vec<String>,
    /// The server did not answer everything that it was asked: it went away, or could not.
    pub is_cut: bool,
}

/// Whether an object that is named somewhere is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Absent,
    Present(Content),
    Unknown,
}

/// What of a ConfigMap or Secret matters here. Never its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub keys: Vec<String>,
    pub kind: String,
    /// The registries that a pull Secret has credentials for.
    pub registries: Vec<String>,
    /// What a Secret of type kubernetes.io/tls is for.
    pub certificate: Serving,
}

/// A certificate that a server shows, as far as it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Serving {
    #[default]
    Unseen,
    Unreadable,
    Read(ferry_x509::Certificate),
}

impl World {
    pub(crate) fn new(target: Value, now: Timestamp) -> Self {
        Self { now, target, ..Self::default() }
    }

    pub(crate) fn put(&mut self, plural: &str, items: Vec<Value>) {
        if plural == "events" {
            self.events_of = places(&items);
        }
        self.lists.insert(plural.to_owned(), items);
    }

    pub(crate) fn all(&self, plural: &str) -> &[Value] {
        self.lists.get(plural).map(Vec::as_slice).unwrap_or_default()
    }

    /// None where it was not read, which is not the same as nothing being there.
    pub(crate) fn seen(&self, plural: &str) -> Option<&[Value]> {
        self.lists.get(plural).map(Vec::as_slice)
    }

    pub(crate) fn find(&self, plural: &str, name: &str) -> Option<&Value> {
        self.all(plural).iter().find(|item| object::name(item) == name)
    }

    /// Something that the causes are found in and that could not be read.
    pub(crate) fn could_not_read(&mut self, what: &str, error: &Error) {
        self.is_cut |= error.is_no_answer();
        self.unseen.push(match error {
            Error::Refused { code: 401 | 403, .. } => format!("{what}, which you may not list"),
            error => format!("{what}: {error}"),
        });
    }

    /// What is known of an object that somebody names. Unknown where it was not looked for or may not be read.
    pub(crate) fn presence(&self, plural: &str, name: &str) -> &Presence {
        self.named.get(&(plural.to_owned(), name.to_owned())).unwrap_or(&Presence::Unknown)
    }

    pub(crate) fn note(&mut self, plural: &str, name: &str, presence: Presence) {
        self.named.insert((plural.to_owned(), name.to_owned()), presence);
    }

    /// The namespaces that have an object of that name, where this one does not.
    pub(crate) fn elsewhere(&self, plural: &str, name: &str) -> &[String] {
        self.elsewhere.get(&(plural.to_owned(), name.to_owned())).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn note_elsewhere(&mut self, plural: &str, name: &str, namespaces: Vec<String>) {
        self.elsewhere.insert((plural.to_owned(), name.to_owned()), namespaces);
    }

    /// Whether it was looked for and is not there.
    pub(crate) fn is_absent(&self, plural: &str, name: &str) -> bool {
        match self.seen(plural) {
            Some(items) => !items.iter().any(|item| object::name(item) == name),
            None => *self.presence(plural, name) == Presence::Absent,
        }
    }

    /// Those that have this one as their controller.
    pub(crate) fn owned<'a>(&'a self, plural: &str, owner: &'a Value) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.all(plural).iter().filter(|item| is_owned_by(item, object::uid(owner)))
    }

    /// The pods around the target, its own first: only so many can be asked about one by one.
    pub(crate) fn own_pods_first(&self) -> Vec<&Value> {
        let target = object::uid(&self.target);
        let between: BTreeSet<&str> = ["replicasets", "jobs"]
            .iter()
            .flat_map(|list| self.all(list))
            .filter(|item| is_owned_by(item, target))
            .map(object::uid)
            .collect();
        let selects = |pod: &Value| known_kind(&self.target) == "Service" && is_selected(&self.target, pod);
        let is_own = |pod: &Value| {
            let owners = object::items(pod, "/metadata/ownerReferences").iter();
            let mut owners = owners.map(|owner| object::text(owner, "/uid"));
            object::uid(pod) == target || owners.any(|uid| uid == target || between.contains(uid)) || selects(pod)
        };
        let mut pods: Vec<&Value> = self.all("pods").iter().collect();
        pods.sort_by_key(|pod| !is_own(pod));
        pods
    }

    /// The pods that the target means, which is a Service.
    pub(crate) fn selected_by_service(&self) -> Vec<&Value> {
        self.all("pods").iter().filter(|pod| is_selected(&self.target, pod)).collect()
    }

    /// Pods whose labels a selector of the form `matchLabels`/`matchExpressions` selects.
    pub(crate) fn selected(&self, selector: Option<&Value>) -> Vec<&Value> {
        let Some(selector) = selector.and_then(|selector| LabelSelector::from_object(selector).ok()) else {
            return Vec::new();
        };
        self.all("pods").iter().filter(|pod| selector.matches(object::labels(pod))).collect()
    }

    /// Events about an object, oldest first.
    pub(crate) fn events(&self, about: &Value) -> Vec<&Value> {
        let by_name = format!("{}/{}", object::text(about, "/kind"), object::name(about));
        let places =
            [object::uid(about), by_name.as_str()].into_iter().filter_map(|key| self.events_of.get(key)).flatten();
        let places: BTreeSet<usize> = places.copied().collect();
        let all = self.all("events");
        let events = places.into_iter().filter_map(|place| all.get(place));
        let mut found: Vec<&Value> = events.filter(|event| concerns(event, about)).collect();
        found.sort_by_key(|event| event_time(event));
        found
    }

    /// The newest event with one of these reasons.
    pub(crate) fn event(&self, about: &Value, reasons: &[&str]) -> Option<&Value> {
        let mut found = self.events(about);
        found.retain(|event| reasons.contains(&object::text(event, "/reason")));
        found.pop()
    }
}

fn places(events: &[Value]) -> HashMap<String, Vec<usize>> {
    let mut found: HashMap<String, Vec<usize>> = HashMap::new();
    for (place, event) in events.iter().enumerate() {
        let text = |field: &str| object::text(event, field);
        let by_name = format!("{}/{}", text("/involvedObject/kind"), text("/involvedObject/name"));
        let mut keys = vec![text("/involvedObject/uid"), text("/regarding/uid"), by_name.as_str()];
        keys.retain(|key| !key.is_empty());
        keys.dedup();
        keys.into_iter().for_each(|key| found.entry(key.to_owned()).or_default().push(place));
    }
    found
}

fn concerns(event: &Value, about: &Value) -> bool {
    let of = |field: &str| object::text(event, &format!("/involvedObject/{field}"));
    let regards = |field: &str| object::text(event, &format!("/regarding/{field}"));
    let uid = object::uid(about);
    if !uid.is_empty() && (of("uid") == uid || regards("uid") == uid) {
        return true;
    }
    // Kubelets name their node as its own uid.
    let kind = object::text(about, "/kind");
    of("name") == object::name(about) && of("kind") == kind && (kind == "Node" || of("uid").is_empty())
}

/// Whether a Service selects a pod.
fn is_selected(service: &Value, pod: &Value) -> bool {
    let selector = object::map(service, "/spec/selector");
    !selector.is_empty() && LabelSelector::from_map(selector).matches(object::labels(pod))
}

pub(crate) fn is_owned_by(item: &Value, uid: &str) -> bool {
    object::items(item, "/metadata/ownerReferences")
        .iter()
        .any(|owner| owner["controller"].as_bool() == Some(true) && object::text(owner, "/uid") == uid)
}

/// The group of the kinds of Kubernetes that are known here.
fn group_of(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Pod"
        | "Service"
        | "Node"
        | "Namespace"
        | "PersistentVolume"
        | "PersistentVolumeClaim"
        | "ResourceQuota"
        | "ServiceAccount"
        | "Secret"
        | "ReplicationController" => "",
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => "apps",
        "Job" | "CronJob" => "batch",
        "Ingress" | "NetworkPolicy" => "networking.k8s.io",
        "Gateway" | "GatewayClass" | "HTTPRoute" | "GRPCRoute" | "TLSRoute" | "TCPRoute" | "UDPRoute" => {
            "gateway.networking.k8s.io"
        }
        "PodDisruptionBudget" => "policy",
        "HorizontalPodAutoscaler" => "autoscaling",
        "CertificateSigningRequest" => "certificates.k8s.io",
        "ValidatingWebhookConfiguration"
        | "MutatingWebhookConfiguration"
        | "ValidatingAdmissionPolicy"
        | "ValidatingAdmissionPolicyBinding"
        | "MutatingAdmissionPolicy"
        | "MutatingAdmissionPolicyBinding" => "admissionregistration.k8s.io",
        "EndpointSlice" => "discovery.k8s.io",
        "ResourceClaim" | "ResourceClaimTemplate" => "resource.k8s.io",
        "Lease" => "coordination.k8s.io",
        "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding" => "rbac.authorization.k8s.io",
        "StorageClass" | "VolumeAttachment" | "VolumeAttributesClass" => "storage.k8s.io",
        "VolumeSnapshot" => "snapshot.storage.k8s.io",
        "APIService" => "apiregistration.k8s.io",
        "CustomResourceDefinition" => "apiextensions.k8s.io",
        _ => return None,
    })
}

/// The kind where it is one of Kubernetes; empty for a kind of others that only has its name, as Knative's Service.
pub(crate) fn kind_in<'a>(group: &str, kind: &'a str) -> &'a str {
    if group_of(kind) == Some(group) { kind } else { "" }
}

/// The same of an object. Items of lists name no version; their kind is known by what was listed.
pub(crate) fn known_kind(item: &Value) -> &str {
    let kind = object::text(item, "/kind");
    match item.get("apiVersion").and_then(Value::as_str) {
        None => kind,
        Some(version) => kind_in(version.split_once('/').map(|(group, _)| group).unwrap_or_default(), kind),
    }
}

/// When an event last happened.
pub(crate) fn event_time(event: &Value) -> Option<Timestamp> {
    ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/firstTimestamp", "/metadata/creationTimestamp"]
        .iter()
        .find_map(|pointer| time::parse(object::text(event, pointer)))
}

pub(crate) fn time_at(item: &Value, pointer: &str) -> Option<Timestamp> {
    time::parse(object::text(item, pointer))
}

/// The condition of a type.
pub(crate) fn condition<'a>(item: &'a Value, name: &str) -> Option<&'a Value> {
    object::items(item, "/status/conditions").iter().find(|condition| object::text(condition, "/type") == name)
}

pub(crate) fn is_true(item: &Value, name: &str) -> bool {
    condition(item, name).is_some_and(|condition| object::text(condition, "/status") == "True")
}

/// The condition where it stands at that status.
pub(crate) fn standing<'a>(item: &'a Value, name: &str, status: &str) -> Option<&'a Value> {
    condition(item, name).filter(|condition| object::text(condition, "/status") == status)
}

pub(crate) fn number(item: &Value, pointer: &str) -> i64 {
    item.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// `pod/web-1`
pub(crate) fn title(item: &Value) -> String {
    word(&format!("{}/{}", object::text(item, "/kind").to_lowercase(), object::name(item))).into_owned()
}

/// Letters that turn the order of what is shown.
fn turns(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// A text without the letters that turn the order of what is shown: a command that is to be copied is the one that is seen.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if text.contains(turns) { text.replace(turns, "\u{fffd}").into() } else { text.into() }
}

/// A name in a command, as a shell takes it. Many names are checked by nobody where they are referred to, and who made the
/// object is not who copies the command.
pub(crate) fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
    let unseen = |letter: char| letter.is_control() || turns(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace(unseen, "\u{fffd}").replace('\'', r"'\''")).into()
}

/// A time span as people say it.
pub(crate) fn span(micros: i64) -> String {
    let seconds = micros as f64 / 1e6;
    let (minutes, hours) = (micros / 60_000_000, micros / 3_600_000_000);
    if micros < 1_000 {
        format!("{micros} µs")
    } else if micros < 100_000 {
        format!("{:.1} ms", micros as f64 / 1e3)
    } else if micros < 1_000_000 {
        format!("{} ms", micros / 1_000)
    } else if minutes < 1 {
        format!("{seconds:.2} s")
    } else if hours < 1 {
        format!("{minutes} min {} s", micros / 1_000_000 % 60)
    } else if hours < 24 {
        format!("{hours} h {} min", minutes % 60)
    } else {
        format!("{} days", hours / 24)
    }
}

/// How long ago.
pub(crate) fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    match seconds {
        ..60 => format!("{seconds} s"),
        _ => span(seconds.saturating_mul(1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_what_is_shown_is_that_of_the_text() {
        assert_eq!(plain("kubectl \u{202e}x\u{2066}\u{2028}y"), "kubectl \u{fffd}x\u{fffd}\u{fffd}y");
        assert_eq!(plain("שלום: as it is written"), "שלום: as it is written");
    }

    #[test]
    fn a_name_is_one_word_of_a_command() {
        assert_eq!(word("deployment.apps/web"), "deployment.apps/web");
        assert_eq!(word("a;reboot"), "'a;reboot'");
        assert_eq!(word("a'$(id)\n#"), "'a'\\''$(id)\u{fffd}#'");
        assert_eq!(word(""), "''");
        let role = json!({ "kind": "Role", "metadata": { "name": "a b" } });
        assert_eq!(
            (title(&role), title(&json!({ "kind": "Pod", "metadata": { "name": "p" } }))),
            ("'role/a b'".into(), "pod/p".into())
        );
    }

    #[test]
    fn kinds_of_others_are_not_taken_for_those_of_kubernetes() {
        let of = |version: &str, kind: &str| known_kind(&json!({ "apiVersion": version, "kind": kind })).to_owned();
        assert_eq!((of("v1", "Service"), of("apps/v1", "Deployment")), ("Service".into(), "Deployment".into()));
        assert_eq!(of("serving.knative.dev/v1", "Service"), "");
        assert_eq!(of("batch.volcano.sh/v1alpha1", "Job"), "");
        assert_eq!(of("v1", "Job"), "");
        assert_eq!(known_kind(&json!({ "kind": "Job" })), "Job");
        assert_eq!((kind_in("batch", "Job"), kind_in("", "Widget")), ("Job", ""));
    }
}

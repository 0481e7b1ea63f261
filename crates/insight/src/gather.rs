//! Reads what is around an object.

use ferry_meta::object;
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Error};
use crate::kept;
use crate::log;
use crate::named;
use crate::nodes;
use crate::resolve::{self, Resource};
use crate::servers;
use crate::surroundings;
use crate::why;
use crate::world::{World, ago, event_time, is_true, kind_in, known_kind, standing};

/// Where a list is read from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The namespace of the object.
    Namespace,
    /// All namespaces, or a kind that has none.
    Cluster,
}
use Scope::{Cluster as All, Namespace as Own};

/// (the name in the world, where it is listed, of which scope)
const LISTS: &[(&str, &str, Scope)] = &[
    ("pods", "/api/v1/pods", Own),
    ("events", "/api/v1/events", Own),
    ("services", "/api/v1/services", Own),
    ("persistentvolumeclaims", "/api/v1/persistentvolumeclaims", Own),
    ("resourcequotas", "/api/v1/resourcequotas", Own),
    ("limitranges", "/api/v1/limitranges", Own),
    ("serviceaccounts", "/api/v1/serviceaccounts", Own),
    ("nodes", "/api/v1/nodes", All),
    ("namespaces", "/api/v1/namespaces", All),
    ("persistentvolumes", "/api/v1/persistentvolumes", All),
    (ALL_PODS, "/api/v1/pods", All),
    (ALL_CLAIMS, "/api/v1/persistentvolumeclaims", All),
    ("replicasets", "/apis/apps/v1/replicasets", Own),
    ("deployments", "/apis/apps/v1/deployments", Own),
    ("statefulsets", "/apis/apps/v1/statefulsets", Own),
    ("daemonsets", "/apis/apps/v1/daemonsets", Own),
    ("jobs", "/apis/batch/v1/jobs", Own),
    ("endpointslices", "/apis/discovery.k8s.io/v1/endpointslices", Own),
    ("networkpolicies", "/apis/networking.k8s.io/v1/networkpolicies", Own),
    ("poddisruptionbudgets", "/apis/policy/v1/poddisruptionbudgets", Own),
    (ALL_BUDGETS, "/apis/policy/v1/poddisruptionbudgets", All),
    (why::CAPACITIES, "/apis/storage.k8s.io/v1/csistoragecapacities", All),
    (why::SNAPSHOT_CLASSES, "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses", All),
    (why::SNAPSHOT_CONTENTS, "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents", All),
    (ALL_INGRESSES, "/apis/networking.k8s.io/v1/ingresses", All),
    ("ingressclasses", "/apis/networking.k8s.io/v1/ingressclasses", All),
    ("gatewayclasses", "/apis/gateway.networking.k8s.io/v1/gatewayclasses", All),
    (ALL_GATEWAYS, "/apis/gateway.networking.k8s.io/v1/gateways", All),
    ("storageclasses", "/apis/storage.k8s.io/v1/storageclasses", All),
    ("csidrivers", "/apis/storage.k8s.io/v1/csidrivers", All),
    ("csinodes", "/apis/storage.k8s.io/v1/csinodes", All),
    ("horizontalpodautoscalers", "/apis/autoscaling/v2/horizontalpodautoscalers", Own),
    ("resourceclaims", "/apis/resource.k8s.io/v1/resourceclaims", Own),
    ("resourceclaimtemplates", "/apis/resource.k8s.io/v1/resourceclaimtemplates", Own),
    ("deviceclasses", "/apis/resource.k8s.io/v1/deviceclasses", All),
    ("resourceslices", "/apis/resource.k8s.io/v1/resourceslices", All),
    ("apiservices", "/apis/apiregistration.k8s.io/v1/apiservices", All),
    (VALIDATING, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", All),
    (MUTATING, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", All),
    ("validatingadmissionpolicies", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", All),
    (
        "validatingadmissionpolicybindings",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        All,
    ),
    ("mutatingadmissionpolicies", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", All),
    ("mutatingadmissionpolicybindings", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", All),
    (CRDS, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", All),
];

/// Definitions of kinds, where one has taken the names of another.
pub(crate) const CRDS: &str = "customresourcedefinitions";

/// Pods of all namespaces: what is taken on the nodes.
pub(crate) const ALL_PODS: &str = "pods of all namespaces";
pub(crate) const ALL_CLAIMS: &str = "claims of all namespaces";
pub(crate) const ALL_BUDGETS: &str = "disruption budgets of all namespaces";
/// Ingresses of all namespaces: they share hosts and paths.
pub(crate) const ALL_INGRESSES: &str = "ingresses of all namespaces";
/// Gateways of all namespaces: routes name those of others too.
pub(crate) const ALL_GATEWAYS: &str = "gateways of all namespaces";
pub(crate) const VALIDATING: &str = "validatingwebhookconfigurations";
pub(crate) const MUTATING: &str = "mutatingwebhookconfigurations";
/// Objects that are left in a namespace or belong to an owner, with their metadata only.
pub(crate) const REMAINING: &str = "remaining objects";
/// Services and slices that webhooks and APIServices lead to.
pub(crate) const BEHIND: &str = "services behind the API server";
pub(crate) const BEHIND_SLICES: &str = "endpoints behind the API server";
/// Slices of the cluster's DNS.
pub(crate) const DNS_SLICES: &str = "endpoints of kube-dns";

/// What a pod's causes are found in.
const OF_PODS: &[&str] = &[
    "events",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses",
    "csidrivers",
    "csinodes",
    "services",
    "endpointslices",
    "networkpolicies",
    "replicasets",
    "serviceaccounts",
];
const OF_WORKLOADS: &[&str] = &[
    "pods",
    "deployments",
    "statefulsets",
    "daemonsets",
    "jobs",
    "resourcequotas",
    "limitranges",
    VALIDATING,
    MUTATING,
];

/// What has to be read for which kind of Kubernetes; of kinds of others, what happened to them.
fn needed(kind: &str) -> Vec<&'static str> {
    let more: &[&str] = match kind {
        // What makes the pod is what has its template.
        "Pod" => &["jobs", "deployments", "statefulsets", "daemonsets"],
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "ReplicationController" | "Job" | "CronJob" => {
            OF_WORKLOADS
        }
        "EndpointSlice" => &["pods", "deployments", "statefulsets", "daemonsets"],
        "Service" => &["pods", "deployments", "statefulsets", "daemonsets"],
        "Ingress" => &["pods", "deployments", "statefulsets", "daemonsets", "ingressclasses", ALL_INGRESSES],
        "Gateway" => return ["events", "gatewayclasses"].into(),
        "HTTPRoute" | "GRPCRoute" | "TLSRoute" | "TCPRoute" | "UDPRoute" => {
            &["pods", "deployments", "statefulsets", "daemonsets", "gatewayclasses", ALL_GATEWAYS]
        }
        "PodDisruptionBudget" => &["pods", "poddisruptionbudgets"],
        "ValidatingAdmissionPolicy" => return vec!["validatingadmissionpolicybindings"],
        "ValidatingAdmissionPolicyBinding" => return vec!["validatingadmissionpolicies"],
        "MutatingAdmissionPolicy" => return vec!["mutatingadmissionpolicybindings"],
        "MutatingAdmissionPolicyBinding" => return vec!["mutatingadmissionpolicies"],
        "HorizontalPodAutoscaler" => {
            &["pods", "deployments", "statefulsets", "replicasets", "apiservices", "horizontalpodautoscalers"]
        }
        "PersistentVolumeClaim" => {
            return ["events", "pods", "storageclasses", "persistentvolumes", "csidrivers", "csinodes", ALL_PODS]
                .into();
        }
        "ResourceClaim" => return vec!["events", "deviceclasses", "resourceslices", "pods"],
        "PersistentVolume" => return ["events", "nodes", "storageclasses", ALL_CLAIMS].into(),
        "Secret" => return ["events", "serviceaccounts"].into(),
        "StorageClass" => return ["events", "csidrivers", "csinodes", "persistentvolumes"].into(),
        "VolumeAttributesClass" => return ["events", "csidrivers", "csinodes"].into(),
        "VolumeSnapshot" => {
            return ["events", "persistentvolumeclaims", ALL_PODS, why::SNAPSHOT_CLASSES, why::SNAPSHOT_CONTENTS]
                .into();
        }
        "ResourceClaimTemplate" => return vec!["deviceclasses"],
        "VolumeAttachment" => return ["events", "nodes", "persistentvolumes", "csidrivers", "csinodes"].into(),
        "NetworkPolicy" => return ["events", "pods", "namespaces", "networkpolicies"].into(),
        "Node" => return ["events", "nodes", ALL_PODS, ALL_BUDGETS].into(),
        _ => return ["events"].into(),
    };
    OF_PODS.iter().chain(more).copied().collect()
}

/// Reads the object and what is around it.
pub async fn world(cluster: &Cluster, resource: &Resource, namespace: &str, name: &str) -> Result<World, Error> {
    let path = resource.object(namespace, name);
    let absent = || Error::NotFound(format!("there is no {} {name:?}{}", resource.title(), place(resource, namespace)));
    let kind = kind_in(&resource.group, &resource.kind);
    let mut target = match cluster.get(&path).await {
        Ok(Some(target)) => target,
        Ok(None) if kind == "Node" => {
            let world = nodes::joining(cluster, name).await;
            return world.ok_or_else(absent);
        }
        Ok(None) => {
            let (told, instead) = futures::join!(
                last_event(cluster, resource, namespace, name),
                whereabouts(cluster, resource, namespace, name)
            );
            let told = told.map(|told| format!("; its last Event: {told}")).unwrap_or_default();
            return Err(match absent() {
                Error::NotFound(text) => Error::NotFound(format!("{text}{instead}{told}")),
                error => error,
            });
        }
        Err(error) if error.is_of_server() => return unwell(cluster, resource, namespace, name).await.ok_or(error),
        Err(error) => return Err(error),
    };
    if let Some(map) = target.as_object_mut() {
        map.entry("kind").or_insert_with(|| resource.kind.clone().into());
    }
    // Events of nodes and of other objects without a namespace stand in the default one.
    let around = if resource.namespaced { namespace } else { "default" };
    let mut lists = needed(kind);
    let going = object::is_being_deleted(&target);
    if going && kind == "PersistentVolumeClaim" {
        // Who makes the pods that use it is what has to end, not a ReplicaSet that is made again.
        lists.extend(["pods", "replicasets"]);
    }
    if going {
        lists.push(ALL_PODS);
    }
    if going && kind == "Namespace" {
        lists.push("apiservices");
    }
    let mut world = around_it(cluster, target, around, &lists).await;
    if world.all("pods").iter().any(why::may_have_devices) {
        let devices = ["resourceclaims", "resourceclaimtemplates", "deviceclasses", "resourceslices"];
        let more = around_it(cluster, Value::Null, around, &devices).await;
        world.is_cut |= more.is_cut;
        devices.iter().for_each(|list| {
            if let Some(items) = more.seen(list) {
                world.put(list, items.to_vec());
            }
        });
    }
    for list in why::wanted_of_pods(&world) {
        add_list(cluster, &mut world, list).await;
    }
    if wants_all_pods(&world) {
        add_list(cluster, &mut world, ALL_PODS).await;
    }
    if matches!(kind, "Role" | "ClusterRole") {
        match cluster.groups().await {
            Ok(groups) => world.put(why::SERVED, groups),
            Err(error) => world.could_not_read(why::SERVED, &error),
        }
    }
    if kind == "CustomResourceDefinition" && standing(&world.target, "NamesAccepted", "False").is_some() {
        add_list(cluster, &mut world, CRDS).await;
    }
    if kind == "NetworkPolicy" && !object::items(&world.target, "/spec/egress").is_empty() {
        const OF_DNS: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dkube-dns";
        // Who may not look at it is told nothing of DNS.
        world.put(DNS_SLICES, cluster.list(OF_DNS).await.unwrap_or_default());
    }
    if kind == "Node" {
        nodes::add(cluster, &mut world).await;
    }
    if going {
        surroundings::add_remaining(cluster, &mut world, around).await;
    }
    surroundings::add_named(cluster, &mut world, around).await;
    named::add(cluster, &mut world).await;
    surroundings::add_behind(cluster, &mut world).await;
    surroundings::add_access(cluster, &mut world).await;
    add_verdicts(cluster, &mut world, around).await;
    add_last_lines(cluster, &mut world, around).await;
    let failing = servers::failing(cluster).await;
    world.put(servers::CHECKS, failing);
    Ok(world)
}

/// What was last said of an object that is not there (any more).
async fn last_event(cluster: &Cluster, resource: &Resource, namespace: &str, name: &str) -> Option<String> {
    let place = if resource.namespaced { namespace } else { "default" };
    let path =
        format!("/api/v1/namespaces/{place}/events?fieldSelector=involvedObject.name%3D{}", resolve::segment(name));
    let mut events = cluster.list(&path).await.ok()?;
    events.retain(|event| object::text(event, "/involvedObject/kind") == resource.kind);
    let last = events.into_iter().max_by_key(event_time)?;
    let when = event_time(&last).map(|at| format!("{} ago, ", ago(Timestamp::now(), at))).unwrap_or_default();
    Some(format!("{when}{}: {}", object::text(&last, "/reason"), object::text(&last, "/message")))
}

/// Where an object of that name is instead, or that its namespace is not there. Who may not look does without.
async fn whereabouts(cluster: &Cluster, resource: &Resource, namespace: &str, name: &str) -> String {
    if !resource.namespaced {
        return String::new();
    }
    let place = format!("/api/v1/namespaces/{}", resolve::segment(namespace));
    if let Ok(None) = cluster.get(&place).await {
        return format!("; there is no namespace {namespace:?}");
    }
    let everywhere = format!("{}?limit=5&fieldSelector=metadata.name%3D{}", resource.path(""), resolve::segment(name));
    let found = cluster.metadata(&everywhere).await.unwrap_or_default();
    match found.iter().map(object::namespace).collect::<Vec<_>>().as_slice() {
        [] => String::new(),
        namespaces => format!("; there is one in namespace {}", namespaces.join(", ")),
    }
}

/// The object cannot be read because the server is not well: what is known is how the server is.
async fn unwell(cluster: &Cluster, resource: &Resource, namespace: &str, name: &str) -> Option<World> {
    let failing = servers::failing(cluster).await;
    let metadata = json!({ "name": name, "namespace": namespace });
    let target = json!({ "kind": resource.kind, "metadata": metadata, why::UNREAD: true });
    let mut world = World::new(target, Timestamp::now());
    world.unseen.push(format!("{} {name}, which the server cannot read now", resource.title()));
    let is_failing = !failing.is_empty();
    world.put(servers::CHECKS, failing);
    is_failing.then_some(world)
}

fn place(resource: &Resource, namespace: &str) -> String {
    if resource.namespaced { format!(" in namespace {namespace:?}") } else { String::new() }
}

/// The pods of the whole cluster are many: they are read where a pod has no node, or somebody may be kept from it.
fn wants_all_pods(world: &World) -> bool {
    let is_held = |pod: &Value| !is_true(pod, "Ready") && object::text(pod, "/status/phase") != "Succeeded";
    let known = world.seen(ALL_PODS).is_some();
    if known_kind(&world.target) == "NetworkPolicy" {
        return !known && why::names_pods_of_others(&world.target);
    }
    // The pods that a Service means may stand in another namespace.
    let selects = !object::map(&world.target, "/spec/selector").is_empty();
    let without = known_kind(&world.target) == "Service" && selects && world.selected_by_service().is_empty();
    !known && (without || world.all("pods").iter().any(is_held) || !world.all("networkpolicies").is_empty())
}

async fn add_list(cluster: &Cluster, world: &mut World, wanted: &str) {
    let Some((_, path, _)) = LISTS.iter().find(|(name, ..)| *name == wanted) else { return };
    match kept::read(cluster, wanted, path).await {
        Ok(items) => world.put(wanted, items),
        Err(error) => world.could_not_read(wanted, &error),
    }
}

/// The lists of these names; what may not be read is noted.
pub(crate) async fn around_it(cluster: &Cluster, target: Value, namespace: &str, names: &[&str]) -> World {
    let mut world = World::new(target, Timestamp::now());
    let lists = LISTS.iter().filter(|(name, ..)| names.contains(name)).map(|(name, path, scope)| async move {
        let path = match (scope, path.rsplit_once('/')) {
            (Own, Some((root, plural))) => format!("{root}/namespaces/{namespace}/{plural}"),
            _ => (*path).to_owned(),
        };
        (*name, kept::read(cluster, name, &path).await)
    });
    for (plural, outcome) in join_all(lists).await {
        match outcome {
            Ok(items) => world.put(plural, items),
            Err(error) => world.could_not_read(plural, &error),
        }
    }
    // A pod is among the pods, so that whoever goes through them finds it.
    if known_kind(&world.target) == "Pod" {
        let pods = vec![world.target.clone()];
        world.put("pods", pods);
    }
    world
}

/// So many pods are asked about one by one; those that wait together mostly wait for the same.
const ASKED: usize = 8;

async fn add_verdicts(cluster: &Cluster, world: &mut World, namespace: &str) {
    let waiting: Vec<String> = (world.own_pods_first().into_iter())
        .filter(|pod| object::text(pod, "/spec/nodeName").is_empty())
        .map(|pod| object::name(pod).to_owned())
        .take(ASKED)
        .collect();
    let asked = waiting.into_iter().map(|name| async move {
        // Servers of others have none, and not everybody may ask.
        let verdict = cluster.get(&format!("/debug/verdicts/{namespace}/{name}")).await.ok().flatten();
        (name, verdict)
    });
    world.verdicts = join_all(asked).await.into_iter().filter_map(|(name, verdict)| Some((name, verdict?))).collect();
}

/// What containers that ended badly said last.
async fn add_last_lines(cluster: &Cluster, world: &mut World, namespace: &str) {
    let mut wanted = Vec::new();
    for pod in world.own_pods_first() {
        for list in ["/status/initContainerStatuses", "/status/containerStatuses"] {
            for status in object::items(pod, list) {
                let ended =
                    status.pointer("/state/terminated/exitCode").and_then(Value::as_i64).is_some_and(|c| c != 0);
                let before = status.pointer("/lastState/terminated").is_some() && !ended;
                // What an init container that takes its time says is what the pod waits for.
                let starting = list.contains("init") && status.pointer("/state/running").is_some();
                if ended || before || starting && !is_true(pod, "Initialized") {
                    wanted.push((object::name(pod).to_owned(), object::text(status, "/name").to_owned(), before));
                }
            }
        }
    }
    wanted.truncate(ASKED);
    let asked = wanted.into_iter().map(|(pod, container, previous)| async move {
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&tailLines=20&limitBytes=8192&previous={previous}"
        );
        (format!("{pod}/{container}"), cluster.text(&path).await)
    });
    for (container, text) in join_all(asked).await {
        match text.map(|text| log::line_that_matters(&text)) {
            Ok(line) => {
                world.read_logs.insert(container.clone());
                if !line.is_empty() {
                    world.last_lines.insert(container, line);
                }
            }
            Err(Error::Refused { code: 401 | 403, .. }) => {
                world.unread_logs.insert(container, "you may not read its log".to_owned());
            }
            // The kubelet says that there is none any more.
            Err(Error::Refused { code: 400 | 404, .. }) => {
                world.read_logs.insert(container);
            }
            Err(Error::Refused { message, .. }) => {
                world.unread_logs.insert(container, format!("its log could not be read: {message}"));
            }
            Err(error) => {
                world.unread_logs.insert(container, format!("its log could not be read: {error}"));
            }
        }
    }
}

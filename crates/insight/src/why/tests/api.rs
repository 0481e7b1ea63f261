//! An API server of a few objects: what is asked of it is what `ferry why` asks of a real one, so that a cause is only found
//! where what it is found in is read.

use std::convert::Infallible;

use ferry_meta::object;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::NOW;
use crate::cluster::Cluster;
use crate::world::World;

/// (group and version, plural, kind, whether it stands in a namespace), as discovery tells them.
const KINDS: &[(&str, &str, &str, bool)] = &[
    ("v1", "pods", "Pod", true),
    ("v1", "events", "Event", true),
    ("v1", "services", "Service", true),
    ("v1", "secrets", "Secret", true),
    ("v1", "configmaps", "ConfigMap", true),
    ("v1", "persistentvolumeclaims", "PersistentVolumeClaim", true),
    ("v1", "persistentvolumes", "PersistentVolume", false),
    ("v1", "resourcequotas", "ResourceQuota", true),
    ("v1", "limitranges", "LimitRange", true),
    ("v1", "serviceaccounts", "ServiceAccount", true),
    ("v1", "replicationcontrollers", "ReplicationController", true),
    ("v1", "nodes", "Node", false),
    ("v1", "namespaces", "Namespace", false),
    ("apps/v1", "replicasets", "ReplicaSet", true),
    ("apps/v1", "deployments", "Deployment", true),
    ("apps/v1", "statefulsets", "StatefulSet", true),
    ("apps/v1", "daemonsets", "DaemonSet", true),
    ("batch/v1", "jobs", "Job", true),
    ("batch/v1", "cronjobs", "CronJob", true),
    ("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true),
    ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", true),
    ("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", true),
    ("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", true),
    ("networking.k8s.io/v1", "ingresses", "Ingress", true),
    ("networking.k8s.io/v1", "ingressclasses", "IngressClass", false),
    ("gateway.networking.k8s.io/v1", "gatewayclasses", "GatewayClass", false),
    ("gateway.networking.k8s.io/v1", "gateways", "Gateway", true),
    ("gateway.networking.k8s.io/v1", "httproutes", "HTTPRoute", true),
    ("gateway.networking.k8s.io/v1", "grpcroutes", "GRPCRoute", true),
    ("storage.k8s.io/v1", "storageclasses", "StorageClass", false),
    ("storage.k8s.io/v1", "csidrivers", "CSIDriver", false),
    ("storage.k8s.io/v1", "csinodes", "CSINode", false),
    ("storage.k8s.io/v1", "csistoragecapacities", "CSIStorageCapacity", true),
    ("snapshot.storage.k8s.io/v1", "volumesnapshots", "VolumeSnapshot", true),
    ("snapshot.storage.k8s.io/v1", "volumesnapshotclasses", "VolumeSnapshotClass", false),
    ("snapshot.storage.k8s.io/v1", "volumesnapshotcontents", "VolumeSnapshotContent", false),
    ("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", false),
    ("storage.k8s.io/v1", "volumeattributesclasses", "VolumeAttributesClass", false),
    ("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", true),
    ("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate", true),
    ("resource.k8s.io/v1", "deviceclasses", "DeviceClass", false),
    ("resource.k8s.io/v1", "resourceslices", "ResourceSlice", false),
    ("coordination.k8s.io/v1", "leases", "Lease", true),
    ("certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest", false),
    ("rbac.authorization.k8s.io/v1", "roles", "Role", true),
    ("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", false),
    ("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", true),
    ("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", false),
    ("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", false),
    ("apiregistration.k8s.io/v1", "apiservices", "APIService", false),
    ("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", false),
    ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false),
    ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false),
    ("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false),
    ("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false),
    ("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", false),
    ("flowcontrol.apiserver.k8s.io/v1", "flowschemas", "FlowSchema", false),
    ("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", false),
];

/// A resource of discovery: group and version, plural, kind, whether it stands in a namespace.
type Kind = (String, String, String, bool);

#[derive(Clone)]
struct Api {
    objects: Vec<Value>,
    kinds: Vec<Kind>,
}

/// What `ferry why` reads of `kind/name` in namespace `d`, at the time of the tests. Objects of kinds that are not of
/// Kubernetes are of a definition of their own; a `Log` is what `pod/container` wrote.
pub(super) fn seen(object: &str, objects: &Value) -> World {
    let (kind, name) = object.split_once('/').unwrap_or_default();
    let api = Api::new(objects.as_array().cloned().unwrap_or_default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut world = runtime.block_on(async {
        let cluster = Cluster::new(api.client());
        let resource = cluster.resolve(kind).await.unwrap();
        let namespace = if resource.namespaced { "d" } else { "" };
        crate::why::look(&cluster, &resource, namespace, name).await.unwrap_or_else(|error| panic!("{object}: {error}"))
    });
    world.now = ferry_meta::time::parse(NOW).unwrap();
    world
}

impl Api {
    fn new(mut objects: Vec<Value>) -> Self {
        let own = |(version, plural, kind, namespaced): &(&str, &str, &str, bool)| {
            (str::to_owned(version), str::to_owned(plural), str::to_owned(kind), *namespaced)
        };
        let mut kinds: Vec<Kind> = KINDS.iter().map(own).collect();
        for item in &mut objects {
            let kind = object::text(item, "/kind").to_owned();
            let version = object::text(item, "/apiVersion").to_owned();
            let known = kinds.iter().find(|(of, _, known, _)| *known == kind && (version.is_empty() || *of == version));
            match known {
                Some((version, _, _, namespaced)) => {
                    item["apiVersion"] = version.clone().into();
                    if *namespaced && object::namespace(item).is_empty() {
                        item["metadata"]["namespace"] = "d".into();
                    }
                }
                None if kind == "Log" => {}
                None => {
                    let version = if version.is_empty() { "example.com/v1".to_owned() } else { version };
                    kinds.push((version.clone(), format!("{}s", kind.to_lowercase()), kind, true));
                    item["apiVersion"] = version.into();
                    if object::namespace(item).is_empty() {
                        item["metadata"]["namespace"] = "d".into();
                    }
                }
            }
            if object::uid(item).is_empty() {
                let uid = format!("{}-{}", object::text(item, "/kind").to_lowercase(), object::name(item));
                item["metadata"]["uid"] = uid.into();
            }
        }
        // Every namespace that something stands in is there.
        let mut names: Vec<String> = objects.iter().map(|item| object::namespace(item).to_owned()).collect();
        names.extend(["d", "default", "kube-system"].map(str::to_owned));
        names.sort();
        names.dedup();
        let there = |name: &String| {
            objects.iter().any(|item| object::text(item, "/kind") == "Namespace" && object::name(item) == name)
        };
        names.retain(|name| !name.is_empty() && !there(name));
        for name in names {
            objects.push(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": name, "uid": name, "labels": { "kubernetes.io/metadata.name": name } },
            }));
        }
        Self { objects, kinds }
    }

    fn client(self) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, text) = self.answer(request.uri(), request.headers());
            let answer = Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap();
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "d")
    }

    fn answer(&self, uri: &http::Uri, headers: &http::HeaderMap) -> (u16, String) {
        let accept = headers.get("accept").and_then(|text| text.to_str().ok()).unwrap_or_default();
        let path: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let query = uri.query().unwrap_or_default();
        match path.as_slice() {
            ["readyz"] => return (200, "ok".into()),
            ["api"] => return (200, self.groups(true).to_string()),
            ["apis"] => return (200, self.groups(false).to_string()),
            ["api", "v1", "namespaces", namespace, "pods", pod, "log"] => return self.log(namespace, pod, query),
            _ => {}
        }
        let (version, rest) = match path.as_slice() {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return absent(),
        };
        let (namespace, plural, name) = match rest {
            ["namespaces", namespace, plural] => (Some(*namespace), *plural, None),
            ["namespaces", namespace, plural, name] => (Some(*namespace), *plural, Some(*name)),
            [plural] => (None, *plural, None),
            [plural, name] => (None, *plural, Some(*name)),
            _ => return absent(),
        };
        let Some((_, _, kind, _)) = self.kinds.iter().find(|(of, known, ..)| *of == version && known == plural) else {
            return absent();
        };
        let is_it = |item: &&Value| {
            object::text(item, "/apiVersion") == version
                && object::text(item, "/kind") == kind
                && namespace.is_none_or(|namespace| object::namespace(item) == namespace)
        };
        let found: Vec<&Value> = self.objects.iter().filter(is_it).filter(|item| is_selected(item, query)).collect();
        if let Some(name) = name {
            let one = found.into_iter().find(|item| object::name(item) == name);
            return one.map_or_else(absent, |item| (200, item.to_string()));
        }
        let items: Vec<Value> = found
            .into_iter()
            .map(|item| match accept.contains("PartialObjectMetadata") {
                true => json!({ "metadata": item["metadata"] }),
                false => {
                    // Items of lists name neither kind nor version.
                    let mut item = item.clone();
                    item.as_object_mut().map(|item| (item.remove("kind"), item.remove("apiVersion")));
                    item
                }
            })
            .collect();
        (200, json!({ "kind": format!("{kind}List"), "apiVersion": version, "items": items }).to_string())
    }

    fn groups(&self, core: bool) -> Value {
        let mut names: Vec<&str> = Vec::new();
        for (version, ..) in &self.kinds {
            let group = version.split_once('/').map_or("", |(group, _)| group);
            if group.is_empty() == core && !names.contains(&group) {
                names.push(group);
            }
        }
        let of = |name: &str| {
            let all = self.kinds.iter().filter(|(of, ..)| of.split_once('/').map_or("", |(group, _)| group) == name);
            let resource = |(_, plural, kind, namespaced): &Kind| {
                json!({
                    "resource": plural, "singularResource": kind.to_lowercase(), "responseKind": { "kind": kind },
                    "scope": if *namespaced { "Namespaced" } else { "Cluster" }, "verbs": ["get", "list", "delete"],
                })
            };
            let version = all.clone().next().map(|(of, ..)| of.rsplit('/').next().unwrap_or_default().to_owned());
            let resources: Vec<Value> = all.map(resource).collect();
            json!({ "metadata": { "name": name }, "versions": [{ "version": version, "resources": resources }] })
        };
        json!({ "items": names.into_iter().map(of).collect::<Vec<_>>() })
    }

    fn log(&self, namespace: &str, pod: &str, query: &str) -> (u16, String) {
        let container = query.split('&').find_map(|part| part.strip_prefix("container=")).unwrap_or_default();
        let name = format!("{pod}/{container}");
        let is_it = |item: &&Value| {
            object::text(item, "/kind") == "Log" && object::name(item) == name && ["d", ""].contains(&namespace)
        };
        let found = self.objects.iter().find(is_it);
        found.map_or_else(absent, |log| (200, object::text(log, "/text").to_owned()))
    }
}

fn is_selected(item: &Value, query: &str) -> bool {
    query.split('&').all(|part| match part.split_once('=') {
        Some(("fieldSelector", selector)) => {
            let wanted = selector.rsplit("%3D").next().unwrap_or_default();
            match selector.split_once("%3D") {
                Some(("metadata.name", _)) => object::name(item) == wanted,
                Some(("involvedObject.name", _)) => object::text(item, "/involvedObject/name") == wanted,
                _ => true,
            }
        }
        Some(("labelSelector", selector)) => selector
            .replace("%2F", "/")
            .split_once("%3D")
            .is_none_or(|(key, value)| object::labels(item).get(key).and_then(Value::as_str) == Some(value)),
        _ => true,
    })
}

fn absent() -> (u16, String) {
    (
        404,
        json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found" })
            .to_string(),
    )
}

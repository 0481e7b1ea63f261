//! Fields whose features are off. They are dropped once the writer's managed fields are known: a writer owns what it sent.

use serde_json::Value;

use crate::resource::Resource;

/// Where each kind keeps a pod's spec.
const POD_SPECS: [(&str, &str, &str); 9] = [
    ("", "Pod", "spec"),
    ("", "PodTemplate", "template.spec"),
    ("", "ReplicationController", "spec.template.spec"),
    ("apps", "ReplicaSet", "spec.template.spec"),
    ("apps", "Deployment", "spec.template.spec"),
    ("apps", "DaemonSet", "spec.template.spec"),
    ("apps", "StatefulSet", "spec.template.spec"),
    ("batch", "Job", "spec.template.spec"),
    ("batch", "CronJob", "spec.jobTemplate.spec.template.spec"),
];

/// Paths below a pod's spec; `*` is every item of a list.
const OF_PODS: [&str; 17] = [
    "schedulingGroup",
    "evictionResponders",
    "volumes.*.emptyDir.mode",
    "volumes.*.configMap.defaultUser",
    "volumes.*.configMap.items.*.user",
    "volumes.*.secret.defaultUser",
    "volumes.*.secret.items.*.user",
    "volumes.*.downwardAPI.defaultUser",
    "volumes.*.downwardAPI.items.*.user",
    "volumes.*.projected.defaultUser",
    "volumes.*.projected.sources.*.configMap.items.*.user",
    "volumes.*.projected.sources.*.secret.items.*.user",
    "volumes.*.projected.sources.*.downwardAPI.items.*.user",
    "volumes.*.projected.sources.*.serviceAccountToken.user",
    "volumes.*.projected.sources.*.clusterTrustBundle.user",
    "volumes.*.projected.sources.*.podCertificate.user",
    "volumes.*.emptyDir.user",
];

/// Paths below a container.
const OF_CONTAINERS: [&str; 12] = [
    "lifecycle.stopSignal",
    "volumeMounts.*.bindMountOptions",
    "livenessProbe.httpGet.protocol",
    "livenessProbe.grpc.mode",
    "readinessProbe.httpGet.protocol",
    "readinessProbe.grpc.mode",
    "startupProbe.httpGet.protocol",
    "startupProbe.grpc.mode",
    "lifecycle.postStart.httpGet.protocol",
    "lifecycle.postStart.grpc.mode",
    "lifecycle.preStop.httpGet.protocol",
    "lifecycle.preStop.grpc.mode",
];

const OTHERS: [(&str, &str, &str); 33] = [
    ("batch", "Job", "spec.scheduling"),
    ("batch", "CronJob", "spec.jobTemplate.spec.scheduling"),
    ("", "Node", "spec.configSource"),
    ("", "Node", "spec.podPreemptionPolicy"),
    ("", "ServiceAccount", "secrets.*.kind"),
    ("", "ServiceAccount", "secrets.*.namespace"),
    ("", "ServiceAccount", "secrets.*.uid"),
    ("", "ServiceAccount", "secrets.*.apiVersion"),
    ("", "ServiceAccount", "secrets.*.resourceVersion"),
    ("", "ServiceAccount", "secrets.*.fieldPath"),
    ("coordination.k8s.io", "Lease", "spec.preferredHolder"),
    ("coordination.k8s.io", "Lease", "spec.strategy"),
    ("resource.k8s.io", "ResourceSlice", "spec.devices.*.nodeAllocatableResources"),
    ("resource.k8s.io", "ResourceSlice", "spec.partitionTypeAttribute"),
    ("resource.k8s.io", "ResourceSlice", "spec.skipNodeOperations"),
    ("resource.k8s.io", "ResourceSlice", "spec.devices.*.consumesCounters.*.compatibilityGroups"),
    ("resource.k8s.io", "ResourceClaim", "status.allocation.devices.results.*.skipNodeOperations"),
    ("resource.k8s.io", "ResourceSlice", "spec.devices.*.attributes.*.ints"),
    ("resource.k8s.io", "ResourceSlice", "spec.devices.*.attributes.*.bools"),
    ("resource.k8s.io", "ResourceSlice", "spec.devices.*.attributes.*.strings"),
    ("resource.k8s.io", "ResourceSlice", "spec.devices.*.attributes.*.versions"),
    ("resource.k8s.io", "ResourceClaim", "spec.devices.requests.*.exactly.derivedAttributes"),
    ("resource.k8s.io", "ResourceClaim", "spec.devices.requests.*.firstAvailable.*.derivedAttributes"),
    ("resource.k8s.io", "ResourceClaimTemplate", "spec.spec.devices.requests.*.exactly.derivedAttributes"),
    ("resource.k8s.io", "ResourceClaimTemplate", "spec.spec.devices.requests.*.firstAvailable.*.derivedAttributes"),
    ("", "Pod", "status.nodeAllocatableResourceClaimStatuses"),
    ("", "Pod", "status.volumeHealth"),
    ("", "Pod", "status.containerStatuses.*.volumeMounts.*.volumeStatus"),
    ("", "Pod", "status.initContainerStatuses.*.volumeMounts.*.volumeStatus"),
    ("", "Pod", "status.ephemeralContainerStatuses.*.volumeMounts.*.volumeStatus"),
    ("", "Node", "status.config"),
    ("", "PersistentVolumeClaim", "status.healthStatus"),
    ("storage.k8s.io", "CSINode", "status.storageHealth"),
];

impl Resource {
    /// Drops what this server has no use for from an object on its way in.
    pub fn drop_disabled(&self, object: &mut Value, old: Option<&Value>) {
        if self.strategy.custom_type().is_some() {
            return;
        }
        let own = |group: &str, kind: &str| group == self.gvk.group && kind == self.gvk.kind;
        for (_, _, path) in POD_SPECS.iter().filter(|(group, kind, _)| own(group, kind)) {
            let Some(spec) = object.pointer_mut(&format!("/{}", path.replace('.', "/"))) else { continue };
            let volumes = spec.get("volumes").is_some();
            OF_PODS.iter().filter(|path| volumes || !path.starts_with("volumes.")).for_each(|path| drop(spec, path));
            for list in ["containers", "initContainers", "ephemeralContainers"] {
                for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    let stops = container.pointer("/lifecycle/stopSignal").is_some();
                    OF_CONTAINERS.iter().for_each(|path| drop(container, path));
                    // A lifecycle that held nothing else goes with it.
                    if stops && container["lifecycle"].as_object().is_some_and(serde_json::Map::is_empty) {
                        drop(container, "lifecycle");
                    }
                }
            }
        }
        OTHERS.iter().filter(|(group, kind, _)| own(group, kind)).for_each(|(_, _, path)| drop(object, path));
        // Data of another namespace is taken by claims that had such before alone.
        let elsewhere = |object: &Value| !ferry_meta::object::text(object, "/spec/dataSourceRef/namespace").is_empty();
        let had = old.is_some_and(|old| old.pointer("/spec/dataSourceRef").is_some_and(|from| !from.is_null()));
        if own("", "PersistentVolumeClaim") && elsewhere(object) && !had {
            drop(object, "spec.dataSourceRef");
        }
    }
}

fn drop(value: &mut Value, path: &str) {
    match path.split_once('.') {
        Some(("*", rest)) => match value {
            Value::Array(items) => items.iter_mut().for_each(|item| drop(item, rest)),
            Value::Object(map) => map.values_mut().for_each(|item| drop(item, rest)),
            _ => {}
        },
        Some((key, rest)) => {
            if let Some(inner) = value.get_mut(key) {
                drop(inner, rest);
            }
        }
        None => {
            if let Some(map) = value.as_object_mut() {
                map.remove(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::resource::ResourceTable;

    /// An object with something at the end of a path.
    fn with(path: &str) -> serde_json::Value {
        match path.split_once('.') {
            Some(("*", rest)) => json!([with(rest)]),
            Some((key, rest)) => json!({key: with(rest)}),
            None => json!({path: "x", "kept": "y"}),
        }
    }

    fn at<'a>(value: &'a serde_json::Value, path: &str) -> Option<&'a serde_json::Value> {
        path.split('.').try_fold(value, |value, key| if key == "*" { value.get(0) } else { value.get(key) })
    }

    #[test]
    fn every_field_of_a_pod_without_its_feature_goes() {
        let table = ResourceTable::builtin();
        let row = table.find("", "v1", "pods").expect("pods");
        let of_pods = super::OF_PODS.iter().map(|path| format!("spec.{path}"));
        let of_containers = super::OF_CONTAINERS.iter().map(|path| format!("spec.containers.*.{path}"));
        for path in of_pods.chain(of_containers) {
            let mut pod = with(&path);
            assert!(at(&pod, &path).is_some(), "{path}");
            row.drop_disabled(&mut pod, None);
            let folder = path.rsplit_once('.').map_or("", |(folder, _)| folder);
            assert_eq!(at(&pod, &path), None, "{path}");
            assert_eq!(at(&pod, &format!("{folder}.kept")), Some(&json!("y")), "{path}");
        }
    }

    #[test]
    fn fields_without_their_feature_go() {
        let table = ResourceTable::builtin();
        let check = |group: &str, plural: &str, mut object: serde_json::Value, want: serde_json::Value| {
            table.find(group, "v1", plural).expect(plural).drop_disabled(&mut object, None);
            assert_eq!(object, want, "{plural}");
        };
        let container = json!({"lifecycle": {"stopSignal": "x", "preStop": {"grpc": {"mode": "x"}}}});
        let bare = json!({"name": "c", "lifecycle": {"stopSignal": "x"}});
        let kept = json!({"lifecycle": {"preStop": {"grpc": {}}}});
        check(
            "",
            "pods",
            json!({"spec": {"schedulingGroup": {}, "containers": [container, bare]}}),
            json!({"spec": {"containers": [kept, {"name": "c"}]}}),
        );
        check(
            "resource.k8s.io",
            "resourceslices",
            json!({"spec": {"devices": [{"attributes": {"a": {"int": 1, "ints": [1]}}}]}}),
            json!({"spec": {"devices": [{"attributes": {"a": {"int": 1}}}]}}),
        );
        check(
            "resource.k8s.io",
            "resourceclaims",
            json!({"status": {"allocation": {"devices": {"results": [{"device": "d", "skipNodeOperations": ["*"]}]}}}}),
            json!({"status": {"allocation": {"devices": {"results": [{"device": "d"}]}}}}),
        );
        check(
            "",
            "pods",
            json!({"status": {"containerStatuses": [{"volumeMounts": [{"name": "v", "volumeStatus": {}}]}]}}),
            json!({"status": {"containerStatuses": [{"volumeMounts": [{"name": "v"}]}]}}),
        );
        check(
            "",
            "persistentvolumeclaims",
            json!({"spec": {"dataSourceRef": {"kind": "x", "name": "y", "namespace": "z"}}, "status": {"healthStatus": {}}}),
            json!({"spec": {}, "status": {}}),
        );
        check(
            "batch",
            "cronjobs",
            json!({"spec": {"jobTemplate": {"spec": {"scheduling": {}, "template": {"spec": {"evictionResponders": []}}}}}}),
            json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {}}}}}}),
        );
        check(
            "",
            "serviceaccounts",
            json!({"secrets": [{"name": "s", "kind": "k"}]}),
            json!({"secrets": [{"name": "s"}]}),
        );
        check("", "configmaps", json!({"data": {"a": "b"}}), json!({"data": {"a": "b"}}));
    }
}

//! Updates that are refused, and the lines they are refused with, in upstream's order.

use ferry_meta::{FieldError, UserInfo};
use serde_json::{Value, json};

use crate::ResourceTable;
use crate::strategy::Context;

/// What an update of this resource is told, each line up to the text of a rule.
fn told(group: &str, plural: &str, old: &Value, new: &Value) -> Vec<String> {
    let table = ResourceTable::builtin();
    let row = table.find(group, "v1", plural).expect("a row");
    let user = UserInfo::new("u", &[]);
    let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
    let errors = row.strategy.validate_update(&context, new, old);
    errors.iter().map(|error| error.line().chars().take(60).collect()).collect()
}

#[test]
fn lines_come_in_order() {
    let node = |cidr: &str| json!({"metadata": {"name": "n"}, "spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
    let class = |provisioner: &str, parameters: Value| {
        json!({"metadata": {"name": "c"}, "provisioner": provisioner, "parameters": parameters,
               "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})
    };
    let attachment = |attacher: &str| json!({"metadata": {"name": "a"}, "spec": {"attacher": attacher, "nodeName": "n", "source": {}}});
    for (group, plural, old, new, starts) in [
        (
            "",
            "nodes",
            node("10.0.0.0/24"),
            node("odd"),
            vec!["spec.podCIDRs[0]: Invalid value", "spec.podCIDRs: Forbidden: node updates"],
        ),
        (
            "",
            "nodes",
            json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "p"}}),
            json!({"spec": {"taints": [{"key": "-", "effect": "NoSchedule"}], "externalID": "e"}}),
            vec![
                "metadata.taints[0].key: Invalid value",
                "spec.podCIDRs: Forbidden: node updates",
                "spec.providerID: Invalid value",
                "spec.externalID: Forbidden",
            ],
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            class("p", json!({"a": "b"})),
            class("q", json!({"a": "c"})),
            vec!["provisioner: Invalid value", "parameters: Invalid value"],
        ),
        (
            "storage.k8s.io",
            "volumeattachments",
            attachment(""),
            attachment(""),
            vec!["spec.attacher: Required value", "spec.source: Required value"],
        ),
    ] {
        let lines = told(group, plural, &old, &new);
        assert_eq!(lines.len(), starts.len(), "{plural}: {lines:?}");
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.starts_with(start), "{plural}: {lines:?}");
        }
    }
}

#[test]
fn a_service_of_an_unknown_type_keeps_its_address() {
    let service = |kind: &str| {
        json!({"metadata": {"name": "s"}, "spec": {"type": kind, "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
               "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
               "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}})
    };
    let table = ResourceTable::builtin();
    let row = table.find("", "v1", "services").expect("a row");
    let user = UserInfo::new("u", &[]);
    let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
    for (kind, left) in [("Odd", json!("10.0.0.1")), ("ExternalName", Value::Null)] {
        let mut new = service(kind);
        row.strategy.prepare_update(&context, &mut new, &service("ClusterIP"));
        assert_eq!(new["spec"]["clusterIP"], left, "{kind}");
    }
}

/// Warnings about templates come with a change of the template, and for a ReplicationController with the old one, as upstream.
#[test]
fn templates_are_warned_about_when_they_change() {
    let table = ResourceTable::builtin();
    let user = UserInfo::new("u", &[]);
    let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
    let object = |generation: i64, doubtful: bool, other: &str| {
        let selector = if doubtful { "beta.kubernetes.io/os" } else { "kubernetes.io/os" };
        json!({"metadata": {"name": "a", "generation": generation}, "spec": {"other": other,
            "template": {"spec": {"nodeSelector": {selector: "linux"}}}}})
    };
    let (sound, doubtful) =
        (|generation, other| object(generation, false, other), |generation, other| object(generation, true, other));
    for (group, plural, new, old, wanted) in [
        ("apps", "daemonsets", doubtful(2, "b"), doubtful(1, "a"), 0),
        ("apps", "daemonsets", doubtful(2, "a"), sound(1, "a"), 1),
        ("apps", "deployments", doubtful(2, "b"), doubtful(1, "a"), 1),
        ("", "replicationcontrollers", doubtful(2, "a"), sound(1, "a"), 0),
        ("", "replicationcontrollers", sound(2, "a"), doubtful(1, "a"), 1),
        ("", "replicationcontrollers", doubtful(1, "a"), doubtful(1, "a"), 0),
    ] {
        let row = table.find(group, "v1", plural).expect(plural);
        let found = row.strategy.warnings(&context, &new, Some(&old));
        assert_eq!(found.len(), wanted, "{plural}: {found:?}");
    }
}

#[test]
fn conditions_of_an_autoscaler_are_judged_before_its_counts() {
    let table = ResourceTable::builtin();
    let row = table.find("autoscaling", "v2", "horizontalpodautoscalers").expect("a row");
    let user = UserInfo::new("u", &[]);
    let context = Context { user: &user, subresource: "status", dry_run: false, patch: false, reader: None };
    let status = json!({"currentReplicas": -1, "desiredReplicas": -1, "conditions": [{"observedGeneration": -1}]});
    let autoscaler = json!({"metadata": {"name": "a"}, "status": status});
    let metric = json!({"spec": {"metrics": [{"type": "Other"}]}});
    let of_type = |error: &&FieldError| error.path.to_string() == "spec.metrics[0].type";
    let errors = row.strategy.validate_create(&context, &metric);
    assert_eq!(errors.iter().filter(of_type).count(), 2, "once for each look at the type");
    let errors = row.strategy.validate_update(&context, &autoscaler, &autoscaler);
    let paths: Vec<String> = errors.iter().map(|error| error.path.to_string()).collect();
    assert_eq!(paths, ["status.conditions[0].observedGeneration", "status.currentReplicas", "status.desiredReplicas"]);
}

#[test]
fn templates_of_claims_are_judged_whole_before_they_are_immutable() {
    let template = |name: &str| {
        let requests = json!([{"name": name, "exactly": {"deviceClassName": "c", "allocationMode": "All"}}]);
        json!({"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": requests}}}})
    };
    let lines = told("resource.k8s.io", "resourceclaimtemplates", &template("a"), &template("B"));
    let starts = ["spec.spec.devices.requests[0].name: Invalid value: \"B\"", "spec: Invalid value: "];
    assert!(lines.len() == 2 && lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:?}");
    assert!(told("resource.k8s.io", "resourceclaimtemplates", &template("a"), &template("a")).is_empty());
}

#[test]
fn a_source_of_a_claim_that_had_a_group_may_have_an_odd_one() {
    let claim = |group: &str| {
        json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v",
            "resources": {"requests": {"storage": "1Gi"}},
            "dataSource": {"apiGroup": group, "kind": "K", "name": "n"}}})
    };
    let lines = told("", "persistentvolumeclaims", &claim("example.com"), &claim("Odd"));
    assert!(lines.len() == 1 && lines[0].starts_with("spec: Forbidden: "), "{lines:?}");
}

/// What the hand-written rules find comes in their order, what only the generic pass finds after it.
#[test]
fn rules_of_new_objects_come_in_upstreams_order() {
    let table = ResourceTable::builtin();
    let user = UserInfo::new("u", &[]);
    let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
    let toleration = |seconds: i64| json!({"operator": "Odd", "effect": "NoExecute", "tolerationSeconds": seconds});
    let mutation = json!({"patchType": "ApplyConfiguration", "jsonPatch": {"expression": "[]"}});
    for (group, plural, object, wanted) in [
        (
            "networking.k8s.io",
            "ingressclasses",
            json!({"spec": {"controller": "e.com/c", "parameters": {"name": "n", "scope": "Cluster", "namespace": "n"}}}),
            vec!["spec.parameters.namespace", "spec.parameters.kind"],
        ),
        (
            "node.k8s.io",
            "runtimeclasses",
            json!({"handler": "h", "scheduling": {"tolerations": [toleration(1), toleration(2)]}}),
            vec![
                "scheduling.tolerations[0].operator",
                "scheduling.tolerations[0].operator",
                "scheduling.tolerations[1].operator",
                "scheduling.tolerations[1].operator",
                "scheduling.tolerations[1]",
            ],
        ),
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicies",
            json!({"spec": {"mutations": [mutation], "reinvocationPolicy": "Never", "matchConstraints": {
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]}}}),
            vec!["spec.mutations[0].applyConfiguration", "spec.mutations[0].jsonPatch"],
        ),
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings",
            json!({"spec": {"paramRef": {"name": "n"}}}),
            vec!["spec.policyName", "spec.paramRef.parameterNotFoundAction"],
        ),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings",
            json!({"spec": {"paramRef": {"name": "n"}, "validationActions": ["Deny"]}}),
            vec!["spec.paramRef.parameterNotFoundAction", "spec.policyName"],
        ),
    ] {
        let row = table.find(group, "v1", plural).expect(plural);
        let errors = row.strategy.validate_create(&context, &object);
        let mut paths: Vec<String> = errors.iter().map(|error| error.path.to_string()).collect();
        paths.retain(|path| wanted.contains(&path.as_str()));
        assert_eq!(paths, wanted, "{plural}: {errors:?}");
    }
}

/// Amounts of pods and nodes are kept to thousandths; those of a class stay as they are.
#[test]
fn overheads_of_classes_are_not_rounded() {
    let table = ResourceTable::builtin();
    let row = table.find("node.k8s.io", "v1", "runtimeclasses").expect("a row");
    let mut class = json!({"metadata": {"name": "c"}, "handler": "h", "overhead": {"podFixed": {"cpu": "100u"}}});
    row.strategy.default(&mut class);
    assert_eq!(class["overhead"]["podFixed"]["cpu"], "100u");
}

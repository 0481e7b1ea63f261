//! What belongs to the cluster: namespaces, nodes, rights, webhooks.

use serde_json::json;

use super::*;

#[test]
fn what_all_share() {
    let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z" }, "status": { "phase": "Terminating", "conditions": [{ "type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain", "message": "Some resources are remaining: pods. has 1 resource instances" }, { "type": "NamespaceFinalizersRemaining", "status": "False" }] }, "spec": { "finalizers": ["kubernetes"] } });
    let old = json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:01:00Z", "deletionGracePeriodSeconds": 30 } });
    let just = json!({ "metadata": { "namespace": "shop", "deletionTimestamp": "2026-01-01T12:00:20Z", "deletionGracePeriodSeconds": 30 } });
    let there = |parts: &Value| with(serving(json!({ "metadata": { "namespace": "shop" } })), parts);
    let tainted = |key: &str, effect: &str| {
        with(
            node("n", "True"),
            &json!({ "spec": { "taints": [{ "key": key, "value": "nodeshutdown", "effect": effect }] } }),
        )
    };
    let says = |name: &str, status: &str| {
        let mut item = node("n", "True");
        item["status"]["conditions"].as_array_mut().unwrap().push(json!({ "type": name, "status": status, "reason": "DockerHung", "message": "task docker:20744 blocked for more than 120 seconds." }));
        item
    };
    let role = |rules: Value| made("Role", "r", json!({ "rules": rules }));
    let quota = made(
        "ResourceQuota",
        "q",
        json!({ "spec": { "hard": { "pods": "2" } }, "status": { "hard": { "pods": "2" }, "used": { "pods": "0" } } }),
    );
    let hook = |bundle: &str| {
        made(
            "ValidatingWebhookConfiguration",
            "w",
            json!({ "webhooks": [{ "name": "a.b.c", "failurePolicy": "Fail", "clientConfig": { "caBundle": bundle, "service": { "namespace": "d", "name": "hook", "port": 443 } } }] }),
        )
    };
    let behind = json!([
        made("Service", "hook", json!({ "spec": { "selector": { "app": "hook" }, "ports": [{ "port": 443 }] } })),
        made(
            "EndpointSlice",
            "hook-1",
            json!({ "metadata": { "labels": { "kubernetes.io/service-name": "hook" } }, "endpoints": [{ "addresses": ["10.0.0.3"], "conditions": { "ready": true } }] })
        )
    ]);
    let behind = |item: Value| json!([item, behind[0], behind[1]]);
    let api = |reason: &str, message: &str| {
        made(
            "APIService",
            "v1beta1.metrics.k8s.io",
            json!({ "spec": { "group": "metrics.k8s.io", "service": { "namespace": "d", "name": "hook", "port": 443 } }, "status": { "conditions": [{ "type": "Available", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T11:00:00Z" }] } }),
        )
    };
    let cases: Vec<Case<'_>> = vec![
        (
            "a pod without finalizers that does not end",
            "namespace/shop",
            json!([made("Namespace", "shop", going.clone()), there(&old)]),
            Stuck(Reason::NamespaceTerminating),
            &["ferry why -n shop pod/p"],
        ),
        (
            "a pod that is ending",
            "namespace/shop",
            json!([made("Namespace", "shop", going), there(&just)]),
            Way(Reason::NamespaceTerminating),
            &[],
        ),
        (
            "a node that somebody has declared off",
            "node/n",
            json!([tainted("node.kubernetes.io/out-of-service", "NoExecute")]),
            Note(Reason::NodeTaints),
            &["kubectl taint nodes n node.kubernetes.io/out-of-service=nodeshutdown:NoExecute-"],
        ),
        (
            "a taint that was left behind",
            "node/n",
            json!([with(
                node("n", "True"),
                &json!({ "spec": { "taints": [{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }] } })
            )]),
            Stuck(Reason::NodeTaints),
            &["Ready=True", "kubectl taint nodes n node.kubernetes.io/not-ready:NoSchedule-"],
        ),
        (
            "a taint of a pressure that is there",
            "node/n",
            json!([with(
                says("DiskPressure", "True"),
                &json!({ "spec": { "taints": [{ "key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule" }] } })
            )]),
            Stuck(Reason::NodePressure),
            &["!nobody has taken the taint away"],
        ),
        ("a node that would rather not", "node/n", json!([tainted("team", "PreferNoSchedule")]), Well, &[]),
        (
            "a kernel that hangs",
            "node/n",
            json!([says("KernelDeadlock", "True")]),
            Stuck(Reason::NodeProblem),
            &["KernelDeadlock", "blocked for more than 120 seconds"],
        ),
        ("a kernel that does not", "node/n", json!([says("KernelDeadlock", "False")]), Well, &[]),
        ("a member of the store", "node/n", json!([says("EtcdIsVoter", "True")]), Well, &[]),
        (
            "a right to make what has a name",
            "role/r",
            json!([role(
                json!([{ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["settings"], "verbs": ["get", "create"] }])
            )]),
            Note(Reason::RoleNames),
            &["rule 1", "create"],
        ),
        (
            "a right to read what has a name",
            "role/r",
            json!([role(
                json!([{ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["settings"], "verbs": ["get", "update"] }])
            )]),
            Well,
            &[],
        ),
        (
            "a right to list what has a name",
            "role/r",
            json!([role(
                json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["tls"], "verbs": ["get", "list", "watch"] }])
            )]),
            Note(Reason::RoleNames),
            &["list", "fieldSelector"],
        ),
        ("a quota with room", "resourcequota/q", json!([quota.clone()]), Well, &[]),
        (
            "a quota that nobody has counted",
            "resourcequota/q",
            json!([with(quota, &json!({ "status": null }))]),
            Stuck(Reason::ControllerBehind),
            &["has not been counted"],
        ),
        (
            "a webhook with a CA that has expired",
            "validatingwebhookconfiguration/w",
            behind(hook(EXPIRED)),
            Stuck(Reason::CaBundle),
            &["expired"],
        ),
        (
            "a webhook whose CA is no certificate",
            "validatingwebhookconfiguration/w",
            behind(hook("bm90IGEgY2VydGlmaWNhdGU=")),
            Stuck(Reason::CaBundle),
            &["no certificate"],
        ),
        (
            "a webhook as it should be",
            "validatingwebhookconfiguration/w",
            behind(with(hook(""), &json!({}))),
            Well,
            &[],
        ),
        (
            "an API whose server answers with an error",
            "apiservice/v1beta1.metrics.k8s.io",
            behind(api(
                "FailedDiscoveryCheck",
                "failing or missing response from https://10.96.0.9:443/apis/metrics.k8s.io/v1beta1: bad status from https://10.96.0.9:443/apis/metrics.k8s.io/v1beta1: 404",
            )),
            Stuck(Reason::ApiServiceUnavailable),
            &["404", "ferry why -n d service/hook", "only if"],
        ),
        (
            "an API whose Service is gone",
            "apiservice/v1beta1.metrics.k8s.io",
            json!([api("ServiceNotFound", "service/hook in \"d\" is not present")]),
            Stuck(Reason::ApiServiceUnavailable),
            &["its Service d/hook does not exist"],
        ),
    ];
    examine(&cases);
}

/// A certificate that was good in 2020.
const EXPIRED: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJBRENCcGdJQkFUQUtCZ2dxaGtqT1BRUURBakFNTVFvd0NBWURWUVFEREFGNE1CNFhEVEl3TURFd01UQXcKTURBd01Gb1hEVEl4TURFd01UQXdNREF3TUZvd0RERUtNQWdHQTFVRUF3d0JlREJaTUJNR0J5cUdTTTQ5QWdFRwpDQ3FHU000OUF3RUhBMElBQkZMNXd4YUdCTGhxNG9pbmZVeGxzZTdWOE5yRTB3T0tsQTg2UlFRMzBnY0cxMUU0ClgvZlZrTFM5NVRRNFQrMVF4OXpYZ2h0ODYxQjVBb0lyK0lSQ2xsSXdDZ1lJS29aSXpqMEVBd0lEU1FBd1JnSWgKQUk5SE1WM3BBTDd2NmZtZ0J4UkZabjB3cG1CME9UZnlyWEwrWmFTMDhJWTFBaUVBcUdvWUVZNnhaRTVZQ0Y2NworZVpjNEM3eEFVbHFYcnEvM3VDbkNrelZVYzg9Ci0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";
